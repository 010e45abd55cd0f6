"""The author's code that runs in the task manager itself: planning functions, connectors, foreach_batch.

What runs in a Python worker of Spark's ends with its Spark job. Code in this process can only be ended by an exception
that is raised inside it, which Python does between two of its steps: a loop without end ends, a call into a library
that never returns does not.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from taskmanager.task.program import Canceled

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_lock = threading.Lock()
_inside: dict[int, int] = {}  # threads that are in the author's code: how often an exception was raised in each
_GENTLE = 3


class _Ended(Exception):
    """Raised in the author's code. Libraries clean up after it as after any other."""


class _EndedForGood(BaseException):
    """The same for code that goes on after every Exception."""


@contextmanager
def may_be_ended() -> Iterator[None]:
    """The block is the author's code; `end` ends it from another thread, and Canceled leaves the block."""
    here = threading.get_ident()
    with _lock:
        is_outermost = here not in _inside
        _inside.setdefault(here, 0)
    try:
        yield
    except (_Ended, _EndedForGood):
        raise Canceled("the author's code was ended") from None
    finally:
        if is_outermost:
            _leave(here)


def end(thread: int) -> bool:
    """Raises an exception in the author's code, when the thread is in it; False when it is not. May be repeated."""
    with _lock:
        times = _inside.get(thread)
        if times is None:
            return False
        _inside[thread] = times + 1
        kind = _Ended if times < _GENTLE else _EndedForGood
        return bool(_raise_in(ctypes.c_ulong(thread), ctypes.py_object(kind)))


def _leave(here: int) -> None:
    """From here on nothing is raised any more, not even what was already on its way."""
    while True:
        try:
            with _lock:
                _inside.pop(here, None)
                _raise_in(ctypes.c_ulong(here), None)
            return
        except (_Ended, _EndedForGood):
            continue
