"""A sink that starts removes what older attempts have staged in vain, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_proto.messages import FileFormat, FileSink
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import make_backend

pytestmark = pytest.mark.spark


def staged(folder: Path, attempt: int) -> FileWriter:
    """An attempt that has staged one file."""
    sink = FileWriter(
        SinkContext("job", "run", attempt, "v", 0, "op", "the sink", parallelism=1),
        FileSink(str(folder / "out"), FileFormat.PARQUET),
    )
    sink.prepare(pa.schema([("n", pa.int64())]))
    sink.write(pa.table({"n": [attempt]}))
    (pending,) = sink.seal(attempt)
    pending.persist(make_backend(None, (folder / "state").as_uri(), "p").writer(attempt))
    return sink


def attempts(folder: Path) -> set[str]:
    return {path.name.partition("-")[0] for path in (folder / "out" / "_staging").rglob("*.parquet")}


@pytest.mark.parametrize("late", [1, 2, 3])
def test_an_attempt_that_starts_late_keeps_its_successors_output(tmp_path: Path, late: int) -> None:
    sinks = {number: staged(tmp_path, number) for number in (1, 2, 3)}
    assert attempts(tmp_path) == {"a1", "a2", "a3"}
    sinks[late].restore(())
    assert attempts(tmp_path) == {f"a{number}" for number in range(late, 4)}
