"""What stored state is, from its signature alone: the job's graph is not needed to read it."""

from __future__ import annotations

from typing import Any

from lockgate_common.json_input import JsonError, parse_json
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CumulatingWindow,
    EarlyFiringWindow,
    KeyedAggregate,
    SessionWindow,
    SlidingWindow,
    TriggeredWindow,
    TumblingWindow,
    Window,
)

from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import StateUnreadable, UserError

_KINDS = (TumblingWindow, SlidingWindow, CumulatingWindow, SessionWindow, TriggeredWindow, EarlyFiringWindow)
_WINDOWS = {kind.__name__: kind for kind in _KINDS}
QuerySpec = StoreSpec | RowSpec


def spec_of(operator_id: str, signature: str, max_parallelism: int) -> QuerySpec:
    """The identity of all key groups' state. Raises UserError for state that has no values by key, StateUnreadable."""
    groups = range(max_parallelism)
    try:
        said = parse_json(signature)
        if "rows" in said:
            return RowSpec(operator_id, str(said["rows"]), tuple(said["keys"]), max_parallelism, groups)
        if "aggregates" in said:
            return StoreSpec(operator_id, _aggregation(said), max_parallelism, groups)
        is_join, are_contents = "join" in said, "contents" in said
        is_counted = "counted" in said
    except (JsonError, LookupError, TypeError, ValueError) as error:
        raise StateUnreadable(f"the state of operator {operator_id} has a signature that cannot be read") from error
    if is_join:
        raise UserError(f"operator {operator_id} is a join: it keeps rows that wait for others, and no values by key")
    if are_contents:
        raise UserError(f"operator {operator_id} keeps the records of windows for a function, and no values by key")
    if is_counted:
        raise UserError(f"operator {operator_id} has count windows: it keeps incomplete ones, and no values by key")
    raise StateUnreadable(f"the state of operator {operator_id} is of a kind that this task manager does not know")


def _aggregation(said: dict[str, Any]) -> KeyedAggregate:
    aggregates = tuple(Aggregate(output, AggregateFunction[name], given) for output, name, given in said["aggregates"])
    if "window" not in said:
        return KeyedAggregate(tuple(said["keys"]), aggregates)
    window = dict(said["window"])
    kind, event_time = _WINDOWS[window.pop("kind")], window.pop("event_time")
    return KeyedAggregate(tuple(said["keys"]), aggregates, Window(kind(**window), event_time))
