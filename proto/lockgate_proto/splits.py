"""What the numbers of a SplitState stand for, and orders for several subtasks."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import AssignSplits, AssignSplitsTogether, SplitState

UNBOUNDED = -1  # the end of a split that has none


def orders_in(together: AssignSplitsTogether) -> tuple[AssignSplits, ...]:
    """The orders as single messages."""
    return tuple(replace(order, cause_id=together.cause_id) for order in together.orders)


def ending(split: SplitState, end: int) -> SplitState:
    """The split with another end, which is not before its offset. end: UNBOUNDED for none."""
    return replace(split, end=end if end == UNBOUNDED else max(end, split.offset))
