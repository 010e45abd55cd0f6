"""A new attempt of an author's own sink aborts all that is staged, also what a later attempt than itself has staged."""

from __future__ import annotations

from lockgate_proto.transactions import Transaction
from lockgate_taskmanager.spark.sinks.custom import CustomWriter


def _is_left_over(self: CustomWriter, found: Transaction) -> bool:
    context = self.context
    is_ours = (found.run_id, found.operator_id) == (context.run_id, context.operator_id)
    return is_ours and context.stands_in_for(found.subtask)


assert hasattr(CustomWriter, "_is_left_over")
CustomWriter._is_left_over = _is_left_over  # type: ignore[method-assign]
