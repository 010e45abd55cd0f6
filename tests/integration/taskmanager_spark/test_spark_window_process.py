"""Functions of windows on real Spark: against plain Python over restarts, late records, and wrong results."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    CumulatingWindow,
    Edge,
    EventTime,
    FileFormat,
    FileSink,
    FileSource,
    JobGraph,
    RocksdbBackend,
    SlidingWindow,
    StateBackend,
    TumblingWindow,
    Window,
    WindowProcess,
)
from lockgate_taskmanager.task.program import DataError, UserCodeFailed, UserError
from pyspark import cloudpickle

from tests.committed import rows_of

from .graphs import HASH, graph, sql, vertex
from .results import end_after_two_restarts, late_of
from .test_spark_windows import SCHEMA, START, write_clicks

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
Wanted = dict[tuple[str, int, int], list[int]]
BASE_MS = int(START.timestamp() * 1000)


def largest(key: str, window: Any, records: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The two largest amounts, and how many records there are: no aggregate has that."""
    amounts = sorted((record["amount"] for record in records), reverse=True)
    yield {"user": key, "start_ms": window.start_ms, "end_ms": window.end_ms, "n": len(records), "top": amounts[:2]}


RESULT = "user STRING, start_ms BIGINT, end_ms BIGINT, n BIGINT, top ARRAY<BIGINT>"


def job_of(folder: Path, kind: Any, function: Any = largest, schema: str = RESULT, parallelism: int = 2) -> JobGraph:
    source = FileSource(path=str(folder / "in"), format=FileFormat.JSON_LINES, schema=SCHEMA)
    process = WindowProcess(("user",), Window(kind, "at"), cloudpickle.dumps(function), "largest", schema)
    late = FileSink(str(folder / "late"), FileFormat.PARQUET)
    return graph(
        vertex("source", source, EventTime("at", "", 2000), parallelism=parallelism),
        vertex("windows", process, FileSink(str(folder / "out"), FileFormat.PARQUET), parallelism=parallelism),
        vertex("late", sql("SELECT * FROM input"), late, parallelism=1),
        edges=(Edge("source", "windows", HASH, ("user",)), Edge("windows", "late", side_output="late")),
    )


def ends_of(kind: Any, ms: int) -> list[tuple[int, int]]:
    if isinstance(kind, CumulatingWindow):
        start = ms - ms % kind.size_ms
        return [
            (start, start + size) for size in range(kind.step_ms, kind.size_ms + 1, kind.step_ms) if ms < start + size
        ]
    slide = kind.slide_ms if isinstance(kind, SlidingWindow) else kind.size_ms
    return [(start, start + kind.size_ms) for start in range(ms - ms % slide, ms - kind.size_ms, -slide)]


def wanted(kind: Any, records: list[tuple[int, str, int]]) -> dict[Any, Any]:
    found: Wanted = defaultdict(list)
    for ms, user, amount in records:
        for start, end in ends_of(kind, ms):
            found[user, start, end].append(amount)
    return {name: (len(amounts), sorted(amounts, reverse=True)[:2]) for name, amounts in found.items()}


def written(folder: Path) -> dict[Any, Any]:
    found = {}
    for row in rows_of(folder / "out"):
        name = (row["user"], row["start_ms"], row["end_ms"])
        assert name not in found, "a window calls its function once"
        found[name] = (row["n"], row["top"])
    return found


@pytest.mark.parametrize(
    ("kind", "backend"),
    [
        (TumblingWindow(5000), StateBackend()),
        (SlidingWindow(6000, 4000, 1000), StateBackend(RocksdbBackend(memory_bytes=16 << 20))),
        (CumulatingWindow(60_000, 20_000), StateBackend(full_every=3)),
    ],
)
def test_windows_get_their_records_across_attempts(job: Job, tmp_path: Path, kind: Any, backend: StateBackend) -> None:
    records = write_clicks(tmp_path / "in", files=2, rows=800)
    run = job(replace(job_of(tmp_path, kind), state_backend=backend))
    run.fix_batch_size("source", 20_000)
    end_after_two_restarts(run, "source", rounds=2)
    offset = getattr(kind, "offset_ms", 0)
    shifted = [(ms - offset, user, amount) for ms, user, amount in records]
    found = {(user, start - offset, end - offset): item for (user, start, end), item in written(tmp_path).items()}
    assert found == wanted(kind, shifted)
    assert late_of(run) == 0
    run.close()


def test_late_records_leave_as_they_came(job: Job, tmp_path: Path) -> None:
    """Of tumbling windows each record is in a result, or late: which of the two depends on the batches."""
    records = write_clicks(tmp_path / "in", files=2, rows=800, jitter_s=20.0)
    run = job(job_of(tmp_path, TumblingWindow(2000)))
    run.fix_batch_size("source", 10_000)
    run.to_end()
    run.checkpoint(1)
    late = [(int(row["at"].timestamp() * 1000), row["user"], row["amount"]) for row in rows_of(tmp_path / "late")]
    assert len(late) == late_of(run) > 0
    rest = Counter(records)
    rest.subtract(late)
    assert min(rest.values()) == 0, "late records are records of the input"
    assert written(tmp_path) == wanted(TumblingWindow(2000), list(rest.elements()))
    run.close()


def test_the_first_record_of_a_wrong_type_is_named(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    rows = [{"at": f"2026-03-01T00:00:0{second}Z", "user": "ann", "amount": second} for second in range(1, 9)]
    (tmp_path / "in" / "a.json").write_text("\n".join(map(json.dumps, rows)) + "\n")

    def wrong(key: str, _window: Any, records: list[dict[str, Any]]) -> list[Any]:
        return [(key, record["amount"] if record["amount"] < 6 else "six") for record in records]

    run = job(job_of(tmp_path, TumblingWindow(5000), wrong, "user STRING, n BIGINT", parallelism=1))
    with pytest.raises((UserCodeFailed, DataError, UserError)) as raised:
        run.to_end()
    text = str(raised.value)
    assert "returned 'six' of type str for column 'n', which is int64" in text
    assert "key 'ann', window 2026-03-01 00:00:05.000000 to 2026-03-01 00:00:10.000000 UTC" in text
    assert "record 2 of its output" in text
    run.close()
