"""The author's code that runs in the task manager itself: planning functions, connectors, foreach_batch.

Code in one of Spark's Python workers ends with its Spark job. Code in this process can only be interrupted by an
exception raised inside it, which Python does between two bytecodes: an endless loop can be interrupted, a library call
that never returns cannot.
"""

from __future__ import annotations

import ctypes
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lockgate_taskmanager.spark.raised import Exited, with_type
from lockgate_taskmanager.task.program import Canceled

LOG = logging.getLogger(__name__)

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_lock = threading.Lock()
_inside: dict[int, int] = {}  # threads that are running the author's code: how often an exception was raised in each
_GENTLE = 3


class _Ended(Exception):
    """Raised in the author's code. Libraries clean up after it as after any other."""


class _EndedForGood(BaseException):
    """The same for code that continues after every Exception."""


@contextmanager
def may_be_ended() -> Iterator[None]:
    """The block is the author's code; `end` interrupts it from another thread, and Canceled leaves the block.

    Raises Exited in place of SystemExit and the like, which would end this process or thread without a word.
    """
    here = threading.get_ident()
    with _lock:
        is_outermost = here not in _inside
        _inside.setdefault(here, 0)
    try:
        yield
    except (_Ended, _EndedForGood):
        raise Canceled("the author's code was interrupted") from None
    except Exception:
        raise
    except BaseException as error:
        raise caught(error) from error
    finally:
        if is_outermost:
            _leave(here)


def end(thread: int) -> bool:
    """Raises an exception in the author's code, if the thread is running it; otherwise returns False.

    May be repeated.
    """
    with _lock:
        times = _inside.get(thread)
        if times is None:
            return False
        _inside[thread] = times + 1
        kind = _Ended if times < _GENTLE else _EndedForGood
        return bool(_raise_in(ctypes.c_ulong(thread), ctypes.py_object(kind)))


def caught(error: BaseException) -> Exception:
    """What the author's code has raised, as an Exception: an Exited in place of SystemExit and the like.

    Raises those that are not the author's: of `end`, of a generator that is closed, and of Ctrl-C, which Python raises
    in the main thread only.
    """
    if isinstance(error, Exception):
        return error
    is_signal = isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
    if isinstance(error, _EndedForGood | GeneratorExit) or is_signal:
        raise error
    return Exited(error)


class Closes(Protocol):
    """Anything with a close method."""

    def close(self) -> None: ...


def close_quietly(closes: Closes, where: str) -> None:
    """Calls `close` of the author's object, which may be ended. It is done, or has failed: an error is only logged."""
    try:
        with may_be_ended():
            closes.close()
    except Canceled:
        LOG.warning("%s: close() did not return, and was interrupted", where)
    except Exception as error:
        LOG.warning("%s: close() raised %s", where, with_type(error))


def is_end(error: BaseException) -> bool:
    """Whether an exception inside such a block is the one that `end` raises: it must reach the end of the block."""
    return isinstance(error, _Ended | _EndedForGood)


def _leave(here: int) -> None:
    """From here on nothing is raised any more, not even an exception that was already pending."""
    while True:
        try:
            with _lock:
                _inside.pop(here, None)
                _raise_in(ctypes.c_ulong(here), None)
            return
        except (_Ended, _EndedForGood):
            continue
