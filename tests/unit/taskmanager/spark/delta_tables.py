"""What is in a Delta table, and a table in an object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs as pafs
from deltalake import DeltaTable
from lockgate_common.storage import Location
from lockgate_taskmanager.spark.sinks.delta_log import DeltaLog

from tests.unit.taskmanager.spark.object_store import ObjectStore


def rows_of(table: Path) -> list[dict[str, Any]]:
    """Its rows in any order, as whoever asks delta-rs gets them; none where there is no table."""
    if not DeltaTable.is_deltatable(str(table)):
        return []
    found: list[dict[str, Any]] = DeltaTable(table).to_pyarrow_table().to_pylist()
    return found


def in_a_store(log: DeltaLog, path: str) -> Location:
    """In the place of `DeltaLog._located`: a folder of this machine that has the manners of a store."""
    del log
    return Location(Path(path).as_uri(), pafs.PyFileSystem(ObjectStore()), path)
