"""Blocking work off the actor thread: in order for each key, side by side for different keys."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import TypeVar

from coordinator.runtime.errors import Stopped

log = logging.getLogger(__name__)

T = TypeVar("T")

_Task = tuple[Callable[[], object], "Future[object]"]

_CLOSE_S = 3.0  # for the calls that run when everything ends; one on a storage that hangs never returns


class KeyedWorkers:
    """Calls handed in under one key run one at a time and in that order; a slow key holds up no other.

    Every key with work has a thread, which ends with that work. `threads` bounds how many keys are served at the same
    time: only for calls that are sure to end, for those beyond it wait.
    """

    def __init__(self, name: str, threads: int | None = None) -> None:
        self._name = name
        self._most = threads
        self._lock = threading.Lock()
        self._queues: dict[str, deque[_Task]] = {}
        self._waiting: deque[str] = deque()  # keys that wait for a thread
        self._running: dict[threading.Thread, tuple[str, Future[object]]] = {}  # the call that each thread is at
        self._closed = False

    def submit(self, key: str, call: Callable[[], T]) -> Future[T]:
        """Queues the call behind those already queued under `key`. Fails with Stopped after `close`."""
        answer: Future[T] = Future()
        task: _Task = (call, answer)  # type: ignore[assignment]
        with self._lock:
            if self._closed:
                answer.set_exception(Stopped("this coordinator is shutting down"))
            elif key in self._queues:
                self._queues[key].append(task)
            elif self._most is not None and len(self._running) >= self._most:
                self._queues[key] = deque([task])
                self._waiting.append(key)
            else:
                self._start(key, task)
        return answer

    def group(self, name: str) -> WorkerGroup:
        """Keys of its own on these workers."""
        return WorkerGroup(self, name)

    def close(self) -> None:
        """Fails the calls that wait with Stopped, and gives those that run now some seconds to end.

        What hangs is named in the log and left behind; it fails with Stopped, too, and holds up the end of no process.
        """
        with self._lock:
            self._closed = True
            waiting = [task for queue in self._queues.values() for task in queue]
            for queue in self._queues.values():
                queue.clear()
            self._waiting.clear()
            threads = list(self._running)
        for _, answer in waiting:
            answer.set_exception(Stopped("this coordinator is shutting down"))
        deadline = time.monotonic() + _CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._lock:
            hung = list(self._running.values())
        if hung:
            names = ", ".join(sorted(key for key, _ in hung))
            log.warning("%s: left behind what did not end within %g s, work for: %s", self._name, _CLOSE_S, names)
        for _, answer in hung:
            with contextlib.suppress(InvalidStateError):  # it came to its end just now
                answer.set_exception(Stopped("this coordinator is shutting down; the outcome is not known"))

    def _start(self, key: str, task: _Task) -> None:
        """Under the lock. The thread is a daemon: one that hangs must not keep the process."""
        thread = threading.Thread(target=self._run, args=(key, task), name=f"{self._name} {key}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # the host has no more threads
            task[1].set_exception(error)
            return
        self._queues[key] = deque()
        self._running[thread] = (key, task[1])

    def _run(self, key: str, task: _Task) -> None:
        following: tuple[str, _Task] | None = (key, task)
        while following is not None:
            key, (call, answer) = following
            try:
                result = call()
            except Exception as error:
                with contextlib.suppress(InvalidStateError):  # `close` did not wait for it any more
                    answer.set_exception(error)
            else:
                with contextlib.suppress(InvalidStateError):
                    answer.set_result(result)
            following = self._next(key)

    def _next(self, key: str) -> tuple[str, _Task] | None:
        """What the present thread does after a call of `key`: the next one of it, or of a key that waits."""
        with self._lock:
            if not self._queues[key]:
                del self._queues[key]
                if not self._waiting:
                    del self._running[threading.current_thread()]
                    return None
                key = self._waiting.popleft()
            task = self._queues[key].popleft()
            self._running[threading.current_thread()] = (key, task[1])
            return key, task


class WorkerGroup:
    """Part of the workers: a call that hangs under a key holds up the same key of no other group."""

    def __init__(self, workers: KeyedWorkers, name: str) -> None:
        self._workers = workers
        self._name = name

    def submit(self, key: str, call: Callable[[], T]) -> Future[T]:
        """See KeyedWorkers."""
        return self._workers.submit(f"{key} ({self._name})", call)
