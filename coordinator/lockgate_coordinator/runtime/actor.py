"""One thread that owns mutable state, with a queue of calls and a heap of timers.

Calls must not block. Calls after `stop` are refused, so that no caller waits for ever. A short call may run on the
caller's thread while the actor has nothing else to do: still one at a time, but without two switches between threads,
each of which waits for a core on a busy machine.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from lockgate_common.clock import monotonic_ms

from lockgate_coordinator.runtime.errors import Stopped

log = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_WAIT_MS = 3_600_000  # the operating system limits waits; the loop wakes up early and waits again


class Timer:
    """A call that is due later."""

    __slots__ = ("call", "due_ms")

    def __init__(self, due_ms: int, call: Callable[[], None]) -> None:
        self.due_ms = due_ms
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancels the call. No effect after it was made."""
        self.call = None

    def fire(self) -> None:
        """Makes the call unless it was cancelled."""
        if self.call is not None:
            self.call()


class Actor:
    """Runs calls one after the other on its own thread; an exception in one is logged and stops no other."""

    def __init__(self, name: str) -> None:
        self._ready = threading.Condition()
        self._calls: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Timer]] = []
        self._order = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name)
        self._running: threading.Thread | None = None  # makes a call now

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Runs what is queued, then ends the thread and waits for it. Timers that are not due are dropped."""
        with self._ready:
            self._stopped = True
            self._ready.notify()
        if self._thread.is_alive() and not self.is_current():
            self._thread.join()

    @property
    def ident(self) -> int | None:
        """Of the thread that makes a call now, or would make the next one, for its stack; None before `start`."""
        return (self._running or self._thread).ident

    def is_current(self) -> bool:
        """True inside a call."""
        return threading.current_thread() is self._running

    def tell(self, call: Callable[[], None], *, here: bool = False) -> bool:
        """Queues a call. False when the actor has stopped and the call will never run.

        here: makes it at once, on this thread, if no other is queued or running.
        """
        with self._ready:
            if self._stopped:
                return False
            if not here or self._calls or self._running is not None or self._thread.ident is None:
                self._calls.append(call)
                self._ready.notify()
                return True
            self._running = threading.current_thread()
        try:
            self._make(call)
        finally:
            with self._ready:
                self._running = None
                if self._calls or self._stopped:
                    self._ready.notify()
        return True

    def ask(self, call: Callable[[], T], *, here: bool = False) -> Future[T]:
        """As `tell`, and returns the outcome. Fails with Stopped when the actor has stopped."""
        answer: Future[T] = Future()

        def run() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(call())
            except Exception as error:
                answer.set_exception(error)

        if not self.tell(run, here=here):
            answer.set_exception(Stopped("this coordinator is shutting down"))
        return answer

    def at(self, due_ms: int, call: Callable[[], None]) -> Timer:
        """Makes the call when the monotonic clock reaches `due_ms`."""
        timer = Timer(due_ms, call)
        with self._ready:
            heapq.heappush(self._timers, (due_ms, next(self._order), timer))
            if self._timers[0][2] is timer:
                self._ready.notify()
        return timer

    def _run(self) -> None:
        while (call := self._next()) is not None:
            self._make(call)

    def _make(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            log.exception("a call on the %s thread failed; the thread continues", self._thread.name)

    def _next(self) -> Callable[[], None] | None:
        with self._ready:
            if self.is_current():
                self._running = None
            while True:
                now = monotonic_ms()
                # A due timer is queued after the waiting calls: a heartbeat that has arrived is handled before
                # the timer that would declare it missing.
                while self._timers and (self._timers[0][2].call is None or self._timers[0][0] <= now):
                    self._calls.append(heapq.heappop(self._timers)[2].fire)
                if self._running is None and self._calls:
                    self._running = self._thread
                    return self._calls.popleft()
                if self._running is None and self._stopped:
                    return None
                self._ready.wait(min(self._timers[0][0] - now, _LONGEST_WAIT_MS) / 1000 if self._timers else None)
