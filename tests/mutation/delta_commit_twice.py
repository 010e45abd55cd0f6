"""The Delta sink does not look whether a checkpoint's rows, or newer ones, are in the log already."""

from __future__ import annotations

from typing import Any

from lockgate_taskmanager.spark.sinks.delta_log import DeltaLog


def _version_of(self: DeltaLog, table: Any, application: str) -> int:
    del self, table, application
    return 0


assert hasattr(DeltaLog, "_version_of")
DeltaLog._version_of = _version_of  # type: ignore[method-assign]
