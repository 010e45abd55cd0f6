"""What the numbers of a SplitState stand for, and orders for several subtasks."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import AssignSplits, AssignSplitsTogether

UNBOUNDED = -1  # the end of a split that has none


def orders_in(together: AssignSplitsTogether) -> tuple[AssignSplits, ...]:
    """The orders as single messages."""
    return tuple(replace(order, cause_id=together.cause_id) for order in together.orders)
