"""Threads for work that may hang, for example on a storage that does not answer. They never keep the process from
ending.

Some of this work is the author's code (a sink that stages, a source that lists its splits). It can be interrupted, and
must be: otherwise an endless loop would occupy a core until the process ends.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent import futures
from contextvars import copy_context
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["futures.Future[Any]", Callable[[], Any]]


class BackgroundThreads(futures.Executor):
    """Runs calls in order, a limited number at a time. The standard ThreadPoolExecutor is joined at interpreter exit.

    A thread ends when the queue has been empty for a while.
    """

    def __init__(
        self,
        most: int,
        name: str,
        interrupt_user_code: Callable[[int], object] | None = None,
        *,
        idle_s: float = 0.0,
    ) -> None:
        """interrupt_user_code: interrupts the author's code running in a thread; None: the threads never run any.

        idle_s: how long a thread waits for another call. To start one takes several switches between threads, each of
        which waits for a processor on a busy machine.
        """
        self._most, self._name, self._end_call, self._idle_s = most, name, interrupt_user_code, idle_s
        self._changed = threading.Condition()
        self._idle = 0  # threads that wait for a call
        self._waiting: deque[_Call] = deque()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """Raises RuntimeError after `shutdown`."""
        future: futures.Future[T] = futures.Future()
        with self._changed:
            if self._closed:
                raise RuntimeError(f"the threads {self._name} are shut down")
            context = copy_context()  # its log lines are about what those of the caller are about
            self._waiting.append((future, lambda: context.run(fn, *args, **kwargs)))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            left = [future for future, _ in self._waiting] if cancel_futures else []
            threads = list(self._threads)
        for future in left:
            future.cancel()
        for thread in threads if wait else ():
            thread.join()

    def interrupt(self) -> None:
        """Interrupts author code that is running now. Never raises."""
        for thread in self._running():
            if thread.ident is not None and self._end_call is not None:
                self._end_call(thread.ident)

    def join(self, timeout_s: float) -> bool:
        """Waits until the queue is empty. False on timeout."""
        until = time.monotonic() + timeout_s
        for thread in self._running():
            thread.join(max(0.0, until - time.monotonic()))
        return not self._running()

    def _running(self) -> list[threading.Thread]:
        with self._changed:
            return [thread for thread in self._threads if thread.is_alive()]

    def _run(self) -> None:
        while (following := self._next()) is not None:
            future, call = following
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = call()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _next(self) -> _Call | None:
        with self._changed:
            if not self._waiting and self._idle_s:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting or self._closed, self._idle_s)
                self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads.discard(threading.current_thread())
            return None
