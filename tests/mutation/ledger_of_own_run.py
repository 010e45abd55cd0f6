"""What a snapshot had pending is looked for under the run that restores it, not under the one that staged it."""

from __future__ import annotations

from lockgate_proto.messages import SinkTransaction
from lockgate_taskmanager.spark.sinks.transaction import Owner, SinkContext


def owner_of(self: SinkContext, transaction: SinkTransaction) -> Owner:
    return Owner(self.job_key, self.run_id, transaction.subtask)


assert hasattr(SinkContext, "owner_of")
SinkContext.owner_of = owner_of  # type: ignore[method-assign]
