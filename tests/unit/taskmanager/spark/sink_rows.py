"""The rows that tests write into sinks, and sinks that write files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import FileFormat, FileSink, SinkTransaction
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import InlineBackend

SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64())])


def context(attempt: int = 1, subtask: int = 0) -> SinkContext:
    return SinkContext("job", "run", attempt, "v", subtask, "op", "operator 'op'")


def rows(*pairs: tuple[str | None, int | None]) -> pa.Table:
    return pa.table([[k for k, _ in pairs], [n for _, n in pairs]], schema=SCHEMA)


def writer(path: Path, attempt: int = 1) -> FileWriter:
    sink = FileWriter(context(attempt), FileSink(str(path), FileFormat.PARQUET))
    sink.prepare(SCHEMA)
    return sink


def persisted(sink: Any, checkpoint_id: int) -> tuple[SinkTransaction, ...]:
    return tuple(sealed.persist(InlineBackend(1 << 20).writer(checkpoint_id)) for sealed in sink.seal(checkpoint_id))
