"""The value of an author's object as it is at the barrier: pickled later, in the background, where a copy is cheap.

unchangeable (numbers, text, bytes)                            is kept as it is
list, dict, set ... of unchangeable values, numpy array        is copied, and pickled in the background
function, where one may stand for a value                      is called in the background
everything else                                                is pickled at once: the author may change it

Arrow data is not unchangeable: it may lie in the memory of a numpy array or a bytearray.
"""

from __future__ import annotations

import datetime as dt
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
from pyspark import cloudpickle

from lockgate_taskmanager.spark.errors import lasts
from lockgate_taskmanager.spark.outages import is_outage
from lockgate_taskmanager.spark.raised import raised
from lockgate_taskmanager.spark.user_code import is_end, may_be_ended
from lockgate_taskmanager.task.program import ProgramError, StateRefused, UserCodeFailed

_UNCHANGEABLE = frozenset(
    {
        *(int, float, complex, bool, str, bytes, type(None), Decimal, UUID, np.bool_),
        *(dt.datetime, dt.date, dt.time, dt.timedelta),
        *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64),
    }
)
_MAPPINGS = frozenset({dict, OrderedDict, Counter, defaultdict})
_COLLECTIONS = frozenset({list, set, deque})
_FUNCTIONS = (types.FunctionType, types.MethodType, partial)
_PROTOCOL = 5


def is_deferred(value: Any) -> bool:
    """Whether it is a function, which makes the value in the background."""
    return isinstance(value, _FUNCTIONS)


def frozen(value: Any, what: str, *, may_defer: bool = False) -> Callable[[], bytes]:
    """What makes the bytes of the value as it is now. Raises StateRefused.

    what: the value, for messages; may_defer: a function makes the value, and is none itself.
    """
    if may_defer and is_deferred(value):
        return lambda: pickled(called(value, f"{what}: "), what)
    if type(value) is tuple or type(value) is frozenset:
        kept = value if _UNCHANGEABLE.issuperset(map(type, value)) else None
    else:
        kept = copied(value)
    if kept is None and value is not None:
        data = pickled(value, what)
        return lambda: data
    return lambda: pickled(kept, what)


def copied(value: Any) -> Any:
    """The value, or a copy of it, that nothing changes any more; None when only pickling can make one."""
    kind = type(value)
    if kind in _UNCHANGEABLE:
        return value
    if kind is np.ndarray and not value.dtype.hasobject:
        return value.copy()
    if kind is bytearray:
        return bytearray(value)
    if kind in _MAPPINGS:
        return value.copy() if _are_unchangeable(value) and _are_unchangeable(value.values()) else None
    if kind in _COLLECTIONS:
        return value.copy() if _are_unchangeable(value) else None
    return None


def called(make: Callable[[], Any], what: str) -> Any:
    """What the author's code returns. what: it, for messages. Raises StateRefused, UserCodeFailed, Canceled."""
    try:
        with may_be_ended():
            return make()
    except ProgramError:
        raise
    except Exception as error:  # the author's code
        if is_end(error):
            raise
        text = f"{what}{raised(error)}"
        if is_outage(error) or not lasts(type(error)):
            raise UserCodeFailed(text, is_environmental=is_outage(error)) from error
        raise StateRefused(text) from error


def pickled(value: Any, what: str) -> bytes:
    """Its bytes. Raises StateRefused, Canceled."""
    try:
        with may_be_ended():
            dumps: Any = cloudpickle.dumps
            return bytes(dumps(value, protocol=_PROTOCOL))
    except ProgramError:
        raise
    except Exception as error:  # pickling runs the author's code
        if is_end(error):
            raise
        raise StateRefused(
            f"{what} cannot be pickled ({type(error).__name__}: {error}); keep open files, connections, locks and"
            " generators out of it, and make them in open()"
        ) from error


def _are_unchangeable(values: Collection[Any]) -> bool:
    return _UNCHANGEABLE.issuperset(map(type, values))
