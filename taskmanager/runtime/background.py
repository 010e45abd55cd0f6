"""Threads for work that may hang, as on a storage that does not answer. They never keep the process from ending."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent import futures
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_Call = tuple["futures.Future[Any]", Callable[[], Any]]


class BackgroundThreads(futures.Executor):
    """Runs calls in order, some at a time. The standard ThreadPoolExecutor is joined when the interpreter ends.

    A thread ends when nothing is left to do.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> futures.Future[T]:
        """See Executor. Raises RuntimeError after `shutdown`."""
        future: futures.Future[T] = futures.Future()
        with self._lock:
            if self._closed:
                raise RuntimeError(f"the threads {self._name} take nothing any more")
            self._waiting.append((future, lambda: fn(*args, **kwargs)))
            if len(self._threads) < self._most:
                thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See Executor."""
        with self._lock:
            self._closed = True
            left = [future for future, _ in self._waiting] if cancel_futures else []
            threads = list(self._threads)
        for future in left:
            future.cancel()
        for thread in threads if wait else ():
            thread.join()

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
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._threads.discard(threading.current_thread())
            return None
