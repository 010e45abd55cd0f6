"""Blocking work off the actor thread: in order for each key, concurrent for different keys."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from lockgate_coordinator.runtime.errors import Stopped

log = logging.getLogger(__name__)

T = TypeVar("T")

_Task = tuple[Callable[[], object], "Future[object]"]

_CLOSE_S = 3.0  # for running calls at shutdown; one on a hanging storage never returns


class _Worker(threading.Thread):
    """One thread of a pool, and its current call. Everything but `run` is called under the pool's lock."""

    def __init__(self, pool: KeyedWorkers, name: str, key: str, task: _Task) -> None:
        """A daemon thread, so that a hanging one does not keep the process alive."""
        super().__init__(name=name, daemon=True)
        self._pool = pool
        self.is_slow = False
        self.take(key, task)

    def take(self, key: str, task: _Task) -> None:
        """Sets the next call."""
        self.key, self.task, self.began = key, task, time.monotonic()

    def run(self) -> None:
        """Makes calls until the pool has none left."""
        while True:
            call, answer = self.task
            try:
                result = call()
            except Exception as error:
                with contextlib.suppress(InvalidStateError):  # `close` did not wait for it any more
                    answer.set_exception(error)
            else:
                with contextlib.suppress(InvalidStateError):
                    answer.set_result(result)
            if not self._pool.next_for(self):
                return


class KeyedWorkers:
    """Runs the calls of one key in order, one at a time; a slow key delays no other.

    Every key with work has a thread, which ends with that work. `threads` bounds the number of keys served at a time;
    further keys wait. A call that takes longer than `patience_s` does not count towards the bound, so the others are
    served however many calls hang; without `patience_s` all calls must be sure to end.
    """

    def __init__(self, name: str, threads: int | None = None, *, patience_s: float | None = None) -> None:
        self._name = name
        self._most = threads
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._queues: dict[str, deque[_Task]] = {}
        self._waiting: deque[str] = deque()  # keys that wait for a thread
        self._running: set[_Worker] = set()
        self._watch: threading.Thread | None = None  # looks for slow calls while keys wait
        self._closed = False

    def submit(self, key: str, call: Callable[[], T]) -> Future[T]:
        """Queues the call after those already queued under `key`. Fails with Stopped after `close`.

        Its log lines are about what those of the caller are about.
        """
        answer: Future[T] = Future()
        task: _Task = (partial(copy_context().run, call), answer)  # type: ignore[assignment]
        with self._changed:
            if self._closed:
                answer.set_exception(Stopped("this coordinator is shutting down"))
            elif key in self._queues:
                self._queues[key].append(task)
            elif self._is_full() or not self._start(key, task):
                self._wait_in_line(key, task)
        return answer

    def group(self, name: str) -> WorkerGroup:
        """A separate key space on these workers."""
        return WorkerGroup(self, name)

    def close(self) -> None:
        """Fails waiting calls with Stopped, and gives running ones some seconds to end.

        A hanging call is logged and abandoned; it fails with Stopped, too, and does not delay the end of the process.
        """
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            waiting = [task for queue in self._queues.values() for task in queue]
            for queue in self._queues.values():
                queue.clear()
            self._waiting.clear()
            threads: list[threading.Thread] = list(self._running)
            if self._watch is not None:
                threads.append(self._watch)
        for _, answer in waiting:
            answer.set_exception(Stopped("this coordinator is shutting down"))
        deadline = time.monotonic() + _CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        with self._changed:
            hung = [(worker.key, worker.task[1]) for worker in self._running]
        if hung:
            names = ", ".join(sorted(key for key, _ in hung))
            log.warning("%s: abandoned calls that did not end within %g s, for: %s", self._name, _CLOSE_S, names)
        for _, answer in hung:
            with contextlib.suppress(InvalidStateError):  # it came to its end just now
                answer.set_exception(Stopped("this coordinator is shutting down; the outcome is not known"))

    def next_for(self, worker: _Worker) -> bool:
        """Gives a worker its next call, of the key that has waited longest. False: the worker may end."""
        with self._changed:
            worker.is_slow = False
            if not self._queues[worker.key]:
                del self._queues[worker.key]
            elif self._waiting:
                self._waiting.append(worker.key)
            else:
                worker.take(worker.key, self._queues[worker.key].popleft())
                return True
            if not self._waiting or self._is_over_full():
                self._running.discard(worker)
                return False
            key = self._waiting.popleft()
            worker.take(key, self._queues[key].popleft())
            return True

    # -- under the lock -----------------------------------------------------------------------------------------------

    def _counted(self) -> int:
        return sum(not worker.is_slow for worker in self._running)

    def _is_full(self) -> bool:
        return self._most is not None and (bool(self._waiting) or self._counted() >= self._most)

    def _is_over_full(self) -> bool:
        return self._most is not None and self._counted() > self._most

    def _start(self, key: str, task: _Task) -> bool:
        """Starts a thread. False when the host has no more threads."""
        worker = _Worker(self, f"{self._name} {key}", key, task)
        try:
            worker.start()
        except RuntimeError:
            return False
        self._queues.setdefault(key, deque())
        self._running.add(worker)
        return True

    def _wait_in_line(self, key: str, task: _Task) -> None:
        if not self._running:  # no worker would run it
            task[1].set_exception(RuntimeError("can't start new thread: this host has no more of them"))
            return
        self._queues[key] = deque([task])
        self._waiting.append(key)
        if self._patience_s is not None and self._watch is None:
            self._watch = threading.Thread(target=self._look_for_slow_ones, name=f"{self._name}-watch", daemon=True)
            try:
                self._watch.start()
            except RuntimeError:
                self._watch = None  # the next waiting key tries again

    def _look_for_slow_ones(self) -> None:
        """Runs on a thread as long as keys wait."""
        assert self._patience_s is not None
        with self._changed:
            while self._waiting and not self._closed:
                now = time.monotonic()
                for worker in self._running:
                    worker.is_slow = worker.is_slow or now - worker.began >= self._patience_s
                self._admit()
                oldest = min((worker.began for worker in self._running if not worker.is_slow), default=now)
                self._changed.wait(max(0.001, oldest + self._patience_s - now))
            self._watch = None

    def _admit(self) -> None:
        while self._waiting and self._most is not None and self._counted() < self._most:
            key = self._waiting.popleft()
            task = self._queues[key].popleft()
            if not self._start(key, task):
                self._queues[key].appendleft(task)
                self._waiting.appendleft(key)
                return


class WorkerGroup:
    """A separate key space of the workers: a call that hangs under a key does not delay that key in other groups."""

    def __init__(self, workers: KeyedWorkers, name: str) -> None:
        self._workers = workers
        self._name = name

    def submit(self, key: str, call: Callable[[], T]) -> Future[T]:
        return self._workers.submit(f"{key} ({self._name})", call)
