"""The state that a process function declares, read from its class."""

from __future__ import annotations

from typing import Any

from lockgate_proto.messages import DeclaredState, StateShape

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.processing import ListState, MapState, ProcessFunction, State, ValueState

_SHAPES = {ValueState: StateShape.VALUE_STATE, ListState: StateShape.LIST_STATE, MapState: StateShape.MAP_STATE}


def declared_states(function: ProcessFunction) -> tuple[DeclaredState, ...]:
    """Every declaration, by name. Raises PipelineError for an invalid one."""
    found: dict[str, Any] = {}
    for kind in reversed(type(function).__mro__):
        found.update(vars(kind))
    found.update(vars(function))
    return tuple(_declared(name, state) for name, state in sorted(found.items()) if isinstance(state, State))


def _declared(name: str, state: State) -> DeclaredState:
    shape = _SHAPES.get(type(state))
    if shape is None:
        kinds = "ValueState, ListState or MapState"
        raise PipelineError(f"process(): state '{name}' is a {type(state).__name__}; use {kinds}")
    kind = checks.text("process", f"the type of state '{name}'", state.type, "DOUBLE")
    keys = ""
    if isinstance(state, MapState):
        keys = checks.text("process", f"the type of the keys of state '{name}'", state.key_type, "STRING")
    ttl_ms = 0 if state.ttl is None else checks.duration("process", f"the ttl of state '{name}'", state.ttl, 1)
    return DeclaredState(name, shape, kind, keys, ttl_ms)
