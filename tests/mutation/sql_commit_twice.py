"""The SQL sink does not look whether a checkpoint's rows, or newer ones, are there already."""

from __future__ import annotations

import sqlalchemy as sa
from lockgate_taskmanager.spark.sinks.sql import SqlSink
from lockgate_taskmanager.spark.sinks.transaction import Owner


def _claimed(self: SqlSink, connection: sa.Connection, checkpoint_id: int, owner: Owner) -> bool:
    del self, connection, checkpoint_id, owner
    return True


assert hasattr(SqlSink, "_claimed")
SqlSink._claimed = _claimed  # type: ignore[method-assign]
