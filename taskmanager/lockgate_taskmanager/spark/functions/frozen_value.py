"""The value of an author's object as it is at the barrier: pickled later, in the background, where a copy is cheap.

unchangeable (numbers, text, bytes)                            is kept as it is
list, dict, set ... of unchangeable values, numpy array        is copied, and pickled in the background
function, where one may stand for a value                      is called in the background
everything else                                                is pickled at once: the author may change it
fields that may refer to the same objects                      are pickled together

Arrow data is not unchangeable: it may lie in the memory of a numpy array or a bytearray.
"""

from __future__ import annotations

import datetime as dt
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

import numpy as np
from pyspark import cloudpickle

from lockgate_taskmanager.spark.outages import is_outage
from lockgate_taskmanager.spark.raised import lasts, raised, with_type
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
    if type(value) in _UNCHANGEABLE:
        return value
    return value.copy() if _is_plain(value) else None


def frozen_together(values: Mapping[str, Any], what: Callable[[str], str]) -> Callable[[], bytes]:
    """What makes the bytes of a dict of fields, which keeps what is one object in several of them. Raises StateRefused.

    what: a field by name, for messages.
    """
    copies = {id(value): copied(value) for value in values.values()}
    if any(copy is None for copy in copies.values()):
        data = _pickled_fields(values, what)
        return lambda: data
    kept = {name: copies[id(value)] for name, value in values.items()}
    return lambda: _pickled_fields(kept, what)


def may_be_shared(owner: Any, name: str) -> bool:
    """Whether something in this field may be in another one, too: what is unchangeable does not matter there."""
    is_only_there = _references(owner, name) <= _ONLY_THERE  # before there is a variable for it
    value = getattr(owner, name)
    kind = type(value)
    if kind in _UNCHANGEABLE or (kind in (tuple, frozenset) and _are_unchangeable(value)):
        return False
    return not (is_only_there and _is_plain(value))


def _is_plain(value: Any) -> bool:
    """Whether it can be copied, and refers to nothing that can change."""
    kind = type(value)
    if kind in _MAPPINGS:
        return _are_unchangeable(value) and _are_unchangeable(value.values())
    if kind in _COLLECTIONS:
        return _are_unchangeable(value)
    return kind is bytearray or (kind is np.ndarray and not value.dtype.hasobject)


def _references(owner: Any, name: str) -> int:
    return sys.getrefcount(getattr(owner, name))


_ONLY_THERE = _references(types.SimpleNamespace(field=[]), "field")


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
            f"{what} cannot be pickled ({with_type(error)}); keep open files, connections, locks and"
            " generators out of it, and make them in open()"
        ) from error


def _pickled_fields(values: Mapping[str, Any], what: Callable[[str], str]) -> bytes:
    try:
        return pickled(values, what("', '".join(values)))
    except StateRefused:
        for name, value in values.items():  # to name the field
            pickled(value, what(name))
        raise


def _are_unchangeable(values: Collection[Any]) -> bool:
    return _UNCHANGEABLE.issuperset(map(type, values))
