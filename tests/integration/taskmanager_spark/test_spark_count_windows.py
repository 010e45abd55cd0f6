"""Count windows on real Spark: against plain Python over restarts and rescales, whatever the batches are."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CountWindow,
    Edge,
    FileFormat,
    FileSink,
    FileSource,
    JobGraph,
    RocksdbBackend,
    StateBackend,
)
from lockgate_taskmanager.task.program import DataError, UserCodeFailed, UserError
from pyspark import cloudpickle

from tests.committed import rows_of

from .graphs import HASH, graph, vertex
from .results import rescale

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

Job = Callable[..., Any]
AGGREGATES = (
    Aggregate("n", AggregateFunction.COUNT, ""),
    Aggregate("total", AggregateFunction.SUM, "amount"),
    Aggregate("mean", AggregateFunction.AVG, "amount * 2"),
    Aggregate("last", AggregateFunction.MAX, "page"),
)
RESULT = "User STRING, start BIGINT, end BIGINT, amounts ARRAY<BIGINT>, pages ARRAY<STRING>"
Clicks = list[tuple[str, int | None, str]]


def write_clicks(folder: Path, rows: int, seed: int) -> Clicks:
    """One file, so that the records arrive in its order."""
    choice = random.Random(seed)
    folder.mkdir(exist_ok=True)
    found = [
        (f"u{int(choice.paretovariate(0.9)) % 40}", choice.choice([None, *range(9)]), f"p{choice.randrange(99)}")
        for _ in range(rows)
    ]
    lines = [json.dumps({"user": user, "amount": amount, "page": page}) for user, amount, page in found]
    (folder / "clicks.json").write_text("\n".join(lines) + "\n")
    return found


def everything(key: str, window: Any, records: list[dict[str, Any]]) -> dict[str, Any]:
    amounts, pages = ([record[name] for record in records] for name in ("amount", "page"))
    return {"User": key, "start": window.start, "end": window.end, "amounts": amounts, "pages": pages}


def job_of(folder: Path, window: CountWindow, parallelism: int = 2) -> JobGraph:
    source = FileSource(
        path=str(folder / "in"), format=FileFormat.JSON_LINES, schema="user STRING, amount BIGINT, page STRING"
    )
    sink = FileSink(str(folder / "out"), FileFormat.PARQUET)
    return graph(
        vertex("source", source),
        vertex("windows", window, sink, parallelism=parallelism),
        edges=(Edge("source", "windows", HASH, ("User",)),),
    )


def called(size: int, every: int, function: Any = everything, schema: str = RESULT) -> CountWindow:
    return CountWindow(("User",), size, every, (), cloudpickle.dumps(function), "everything", schema)


def windows_of(clicks: Clicks, size: int, every: int) -> dict[tuple[str, int, int], tuple[list[Any], list[str]]]:
    """Amounts and pages of each window, one record after the other."""
    seen: dict[str, Clicks] = defaultdict(list)
    found = {}
    for click in clicks:
        mine = seen[click[0]]
        mine.append(click)
        if len(mine) % every == 0:
            start = max(0, len(mine) - size)
            found[click[0], start, len(mine)] = ([c[1] for c in mine[start:]], [c[2] for c in mine[start:]])
    return found


def to_end_with_restarts(run: Any, wider: JobGraph) -> None:
    """With a restart that loses batches, and one with other subtasks."""
    run.fix_batch_size("source", 4_000)
    run.batch("source")
    kept = run.checkpoint(1)
    run.batch("source")
    run.batch("source")
    run.close()
    run.start(kept, 1)
    run.batch("source")
    kept = run.checkpoint(2)
    rescale(run, wider, kept, 2)
    run.batch("source")
    run.checkpoint(3)
    run.to_end()
    run.checkpoint(4)


@pytest.mark.parametrize("backend", [StateBackend(full_every=3), StateBackend(RocksdbBackend(memory_bytes=16 << 20))])
@pytest.mark.parametrize(("size", "every"), [(10, 10), (12, 5)])
def test_aggregates_across_attempts(job: Job, tmp_path: Path, size: int, every: int, backend: StateBackend) -> None:
    clicks = write_clicks(tmp_path / "in", 900, size)
    made = replace(job_of(tmp_path, CountWindow(("User",), size, every, AGGREGATES)), state_backend=backend)
    run = job(made)
    to_end_with_restarts(run, replace(job_of(tmp_path, made.vertices[1].operators[0].kind, 3), state_backend=backend))
    run.close()

    def result(amounts: list[Any], pages: list[str]) -> tuple[Any, ...]:
        known = [amount for amount in amounts if amount is not None]
        mean = 2 * sum(known) / len(known) if known else None
        return len(amounts), sum(known) if known else None, mean, max(pages)

    found = [tuple(row.values()) for row in rows_of(tmp_path / "out")]
    wanted = [(*name, *result(*content)) for name, content in windows_of(clicks, size, every).items()]
    assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("backend", [StateBackend(), StateBackend(RocksdbBackend(memory_bytes=16 << 20))])
def test_a_function_gets_the_records_in_order_across_attempts(job: Job, tmp_path: Path, backend: StateBackend) -> None:
    clicks = write_clicks(tmp_path / "in", 900, 3)
    run = job(replace(job_of(tmp_path, called(12, 5)), state_backend=backend))
    to_end_with_restarts(run, replace(job_of(tmp_path, called(12, 5), 3), state_backend=backend))
    run.close()
    found = rows_of(tmp_path / "out")
    assert {(row["User"], row["start"], row["end"]): (row["amounts"], row["pages"]) for row in found} == windows_of(
        clicks, 12, 5
    )
    assert len(found) == len(windows_of(clicks, 12, 5)), "a window calls its function once"


def test_a_wrong_result_names_the_window(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", 900, 3)

    def wrong(key: str, _window: Any, _records: list[Any]) -> tuple[str, str]:
        return key, "six"

    run = job(job_of(tmp_path, called(12, 5, wrong, "User STRING, n BIGINT"), 1))
    with pytest.raises((UserCodeFailed, DataError, UserError)) as raised:
        run.to_end()
    assert "returned 'six' of type str for column 'n', which is int64" in str(raised.value)
    assert "window of records 0 to 5, record 1 of its output" in str(raised.value)
    run.close()


def test_an_aggregate_that_cannot_be_merged_is_named(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", 9, 3)
    distinct = Aggregate("n", AggregateFunction.COUNT, "DISTINCT page")
    with pytest.raises(UserError, match="aggregate 'n' of 'DISTINCT page'"):
        job(job_of(tmp_path, CountWindow(("User",), 3, 3, (distinct,))))
