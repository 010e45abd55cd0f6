"""Blocking work off the actor thread: in order for each key, side by side for different keys."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from coordinator.runtime.errors import Stopped

log = logging.getLogger(__name__)

T = TypeVar("T")

_Task = tuple[Callable[[], object], "Future[object]"]


class KeyedWorkers:
    """Calls handed in under one key run one at a time and in that order; a slow key holds up no other.

    At most `threads` keys are served at the same time.
    """

    def __init__(self, name: str, threads: int = 16) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._queues: dict[str, deque[_Task]] = {}
        self._closed = False

    def submit(self, key: str, call: Callable[[], T]) -> Future[T]:
        """Queues the call behind those already queued under `key`. Fails with Stopped after `close`."""
        answer: Future[T] = Future()
        with self._lock:
            if self._closed:
                answer.set_exception(Stopped("this coordinator is shutting down"))
                return answer
            first = key not in self._queues
            self._queues.setdefault(key, deque()).append((call, answer))  # type: ignore[arg-type]
            if first:
                self._pool.submit(self._drain, key)
        return answer

    def close(self) -> None:
        """Lets the calls that run now end, fails those that wait with Stopped, and joins every thread."""
        with self._lock:
            self._closed = True
            waiting = [task for queue in self._queues.values() for task in queue]
            for queue in self._queues.values():
                queue.clear()
        for _, answer in waiting:
            answer.set_exception(Stopped("this coordinator is shutting down"))
        self._pool.shutdown(wait=True)

    def _drain(self, key: str) -> None:
        while (task := self._take(key)) is not None:
            call, answer = task
            try:
                result = call()
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)

    def _take(self, key: str) -> _Task | None:
        with self._lock:
            queue = self._queues[key]
            if queue:
                return queue.popleft()
            del self._queues[key]
            return None
