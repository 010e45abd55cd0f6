"""The state of an object given to `map`, `flat_map` or `filter`: read from its methods and attributes."""

from __future__ import annotations

import inspect
from functools import partial
from inspect import getattr_static, ismethod
from typing import Any

from lockgate_proto.messages import ObjectState, OnError

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError

_ON_RESCALE = {"split": ObjectState.OBJECT_STATE_SPLIT, "union": ObjectState.OBJECT_STATE_UNION}
_TAKE, _GIVE, _CHANGES = "snapshot_state", "restore_state", "changes_since_last_checkpoint"
_BROADCAST = "process_broadcast"


def object_state(method: str, function: Any) -> ObjectState:
    """Whether the object has state, and how that is distributed. Raises PipelineError."""
    if isinstance(function, type):
        return ObjectState.OBJECT_STATE_UNSPECIFIED
    _refuse_part_of_object(method, function)
    name = type(function).__name__
    has = {found: callable(_declared(function, found)) for found in (_TAKE, _GIVE, _CHANGES)}
    fields, on_rescale = _declared(function, "state_fields"), _declared(function, "on_rescale")
    if fields is not None:
        _check_fields(method, name, fields)
        if any(has.values()) or on_rescale is not None:
            raise PipelineError(
                f"{method}(): {name} has state_fields, and so none of snapshot_state(), restore_state(), "
                "changes_since_last_checkpoint() and on_rescale; keep one of the two ways"
            )
    elif has[_TAKE] != has[_GIVE]:
        there, missing = (f"{_TAKE}()", f"{_GIVE}(state)") if has[_TAKE] else (f"{_GIVE}(state)", f"{_TAKE}()")
        raise PipelineError(f"{method}(): {name} has {there}, and needs {missing} as well")
    elif not has[_TAKE]:
        if has[_CHANGES]:
            raise PipelineError(f"{method}(): {name} has {_CHANGES}(), and needs {_TAKE}() and {_GIVE}(state) as well")
        return ObjectState.OBJECT_STATE_UNSPECIFIED
    most = _declared(function, "max_state_bytes")
    if most is not None:
        checks.whole(f"{method}()", f"max_state_bytes of {name}", most, 1, 2**62)
    if on_rescale is None:
        return ObjectState.OBJECT_STATE_FIXED
    found = checks.one_of(f"{method}()", f"on_rescale of {name}", on_rescale, _ON_RESCALE)
    if found is ObjectState.OBJECT_STATE_UNION and has[_CHANGES]:
        raise PipelineError(
            f'{method}(): {name} has {_CHANGES}(), so its on_rescale can be "split" but not "union": two subtasks may '
            "have a part of the same name, and no subtask could get both"
        )
    return found


def broadcast_state(method: str, function: Any) -> ObjectState:
    """The state of an object behind `with_broadcast`. Raises PipelineError unless it can have one."""
    _refuse_part_of_object(method, function)
    handler = _declared(function, _BROADCAST)
    if isinstance(function, type) or not callable(handler):
        raise PipelineError(
            f"{method}() behind with_broadcast() takes an object with the methods {_BROADCAST}(record), for the records"
            " of the broadcast stream, and __call__(record), for the others"
        )
    name = type(function).__name__
    if inspect.isgeneratorfunction(handler) or inspect.iscoroutinefunction(handler):
        raise PipelineError(f"{method}(): {_BROADCAST}() of {name} puts nothing out; write it without yield and async")
    try:
        inspect.signature(handler).bind("record")
    except TypeError:
        taken = inspect.signature(handler)
        raise PipelineError(
            f"{method}() calls {_BROADCAST}(record) of {name} with a record, but it takes {taken}"
        ) from None
    state = object_state(method, function)
    if state is ObjectState.OBJECT_STATE_UNSPECIFIED:
        raise PipelineError(
            f"{method}(): what {name} keeps of the broadcast stream would be lost at the first failure; name its"
            ' fields, such as state_fields = ("model",), or give it snapshot_state() and restore_state(state)'
        )
    if state is not ObjectState.OBJECT_STATE_FIXED:
        raise PipelineError(
            f"{method}(): {name} has on_rescale, but its state comes from a broadcast stream and is the same in every"
            " subtask, of which a new one gets a copy; leave on_rescale out"
        )
    return ObjectState.OBJECT_STATE_BROADCAST


def _declared(function: Any, name: str) -> Any:
    """An attribute that the object really has; a proxy's `__getattr__` has every one."""
    return None if getattr_static(function, name, None) is None else getattr(function, name, None)


def _refuse_part_of_object(method: str, function: Any) -> None:
    """A method of an object with state, or the object in a `partial`: its state would not be found."""
    inner = function.__self__ if ismethod(function) else function.func if isinstance(function, partial) else None
    if inner is None or isinstance(inner, type):
        return
    if any(_declared(inner, name) is not None for name in (_TAKE, _GIVE, _BROADCAST, "state_fields")):
        name = type(inner).__name__
        raise PipelineError(
            f"{method}() finds the state of an object only if it gets the object itself: give {name} a method __call__"
            f", and write {method}({name}(...))"
        )


def refuse_repeated_calls(method: str, state: ObjectState, is_vectorized: bool, on_error: OnError) -> None:
    """A vectorised function is called again with parts of a table to find a record that it fails on."""
    if state is ObjectState.OBJECT_STATE_UNSPECIFIED or not is_vectorized:
        return
    if on_error in (OnError.SKIP, OnError.DEAD_LETTER):
        raise PipelineError(
            f"{method}(): the function of an object with state cannot be vectorized and have on_error: to find the "
            "record that it fails on, it would be called with the same records again"
        )


def _check_fields(method: str, name: str, fields: Any) -> None:
    is_named = isinstance(fields, tuple | list) and all(
        isinstance(field, str) and field.isidentifier() for field in fields
    )
    if not is_named or not fields or len(set(fields)) < len(fields):
        raise PipelineError(
            f'{method}(): state_fields of {name} must name its fields, each once, such as ("count",), not {fields!r}'
        )
