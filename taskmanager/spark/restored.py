"""What sources and sinks of a chain have stored, given back to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import OperatorState, SinkState, SourceState, SplitState, StateKind

from taskmanager.spark.layout import ChainLayout
from taskmanager.state.backend import load
from taskmanager.state.stores import KEYED_KINDS
from taskmanager.task.program import StateUnreadable


def restore_plain(
    layout: ChainLayout, operator: OperatorState, take: Callable[[Sequence[SplitState], bool], None]
) -> None:
    """Takes one piece of state, of a rescaled job perhaps one of several of its operator; not the keyed ones.

    take: what the source does with its splits. Raises StateUnreadable, OSError.
    """
    if operator.handle is None or operator.kind in KEYED_KINDS:
        return
    data = load(operator.handle)
    where = operator.handle.path or f"of operator {operator.operator_id} inside the checkpoint"
    try:
        if operator.kind == StateKind.SOURCE_STATE and layout.source is not None:
            state = decode(SourceState, data.to_pybytes())
            take(state.splits, state.complete)
        elif operator.kind == StateKind.SINK_STATE:
            layout.sink_stage(operator.operator_id).restored += decode(SinkState, data.to_pybytes()).pending
        else:
            raise StateUnreadable(f"the state {where} belongs to an operator that the job does not have")
    except MalformedMessage as error:
        raise StateUnreadable(f"the state {where} cannot be read: {error}") from error
