"""Event time on real Spark: windows against plain Python, restored in the middle, late records, and what is refused."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    AggregateFunction,
    ConsoleSink,
    CumulatingWindow,
    Edge,
    EventTime,
    FileFormat,
    FileSink,
    FileSource,
    FilesystemBackend,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    PythonTransform,
    RocksdbBackend,
    SessionWindow,
    SlidingWindow,
    SqlSink,
    StateBackend,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.task.program import Batch, Idle, UserError
from pyspark import cloudpickle

from tests.committed import rows_of

from .graphs import HASH, aggregate, count_by, graph, sql, vertex
from .results import EPOCH, end_after_two_restarts, late_of, millis

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
START = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "at TIMESTAMP, user STRING, amount BIGINT"


def write_clicks(folder: Path, files: int = 4, rows: int = 4000, jitter_s: float = 2.0) -> list[tuple[int, str, int]]:
    """Files over the same two minutes, each out of order by less than `jitter_s`; what is in them."""
    rng = random.Random(11)
    folder.mkdir(exist_ok=True)
    records = []
    for number in range(files):
        lines = []
        for row in range(rows):
            ms = int(120_000 * row / rows + rng.uniform(0, jitter_s * 1000))
            user, amount = f"u{int(rng.paretovariate(0.9)) % 50}", rng.randrange(100)
            records.append((int(START.timestamp() * 1000) + ms, user, amount))
            lines.append(json.dumps({"at": _text(ms), "user": user, "amount": amount}))
        (folder / f"{number}.json").write_text("\n".join(lines) + "\n")
    return records


def _text(ms: int) -> str:
    return (START + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def windowed(keys: tuple[str, ...], window: Window) -> KeyedAggregate:
    plain = aggregate(
        keys,
        n=(AggregateFunction.COUNT, ""),
        total=(AggregateFunction.SUM, "amount"),
        mean=(AggregateFunction.AVG, "amount"),
    )
    return KeyedAggregate(plain.keys, plain.aggregates, window)


def clicks(folder: Path, window: Window, parallelism: int = 2, **event_time: Any) -> JobGraph:
    source = FileSource(path=str(folder / "in"), format=FileFormat.JSON_LINES, schema=SCHEMA)
    when = EventTime(**{"expression": "at", "out_of_orderness_ms": 2000, **event_time})
    sink = FileSink(str(folder / "out"), FileFormat.PARQUET)
    return graph(
        vertex("source", source, sql("SELECT * FROM input"), when, sql("SELECT * FROM input"), parallelism=parallelism),
        vertex("windows", windowed(("user",), window), sink, parallelism=parallelism),
        edges=(Edge("source", "windows", HASH, ("user",)),),
    )


def expected(
    records: list[tuple[int, str, int]], size: int, slide: int
) -> dict[tuple[str, int], tuple[int, int, float]]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for ms, user, amount in records:
        for start in range(ms - ms % slide, ms - size, -slide):
            found[user, start].append(amount)
    return {name: (len(item), sum(item), sum(item) / len(item)) for name, item in found.items()}


def written(folder: Path) -> dict[tuple[str, int], tuple[int, int, float]]:
    found = {}
    for row in rows_of(folder / "out"):
        start = millis(row["window_start"])
        assert millis(row["window_end"]) > start
        assert (row["user"], start) not in found, "a window fires once"
        found[row["user"], start] = (row["n"], row["total"], row["mean"])
    return found


@pytest.mark.parametrize(
    ("kind", "size", "slide"),
    [
        (TumblingWindow(5000), 5000, 5000),
        (SlidingWindow(5000, 1000), 5000, 1000),
        (SlidingWindow(5000, 2000), 5000, 2000),
    ],
)
def test_windows_are_exact_across_attempts(job: Job, tmp_path: Path, kind: Any, size: int, slide: int) -> None:
    records = write_clicks(tmp_path / "in")
    run = job(clicks(tmp_path, Window(kind, "at")))
    end_after_two_restarts(run, "source", rounds=2)
    assert written(tmp_path) == expected(records, size, slide)
    assert late_of(run) == 0
    run.close()


def test_cumulating_windows_are_exact_across_attempts(job: Job, tmp_path: Path) -> None:
    records = write_clicks(tmp_path / "in", rows=1000)
    run = job(clicks(tmp_path, Window(CumulatingWindow(60_000, 15_000), "at")))
    end_after_two_restarts(run, "source")
    wanted: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for ms, user, amount in records:
        start = ms - ms % 60_000
        for end in range(start + 15_000, start + 60_001, 15_000):
            if ms < end:
                wanted[user, start, end].append(amount)
    rows = rows_of(tmp_path / "out")
    found = {(row["user"], millis(row["window_start"]), millis(row["window_end"])): row for row in rows}
    assert len(found) == len(rows), "a window fires once"
    assert {name: (row["n"], row["total"]) for name, row in found.items()} == {
        name: (len(amounts), sum(amounts)) for name, amounts in wanted.items()
    }
    assert late_of(run) == 0
    run.close()


def test_sessions_are_exact_across_attempts(job: Job, tmp_path: Path) -> None:
    records = write_clicks(tmp_path / "in", files=3, rows=1500)
    run = job(clicks(tmp_path, Window(SessionWindow(1500), "at")))
    end_after_two_restarts(run, "source")
    wanted: dict[tuple[str, int], list[int]] = {}
    latest: dict[str, tuple[int, int]] = {}  # start of the user's last session, last click in it
    for ms, user, amount in sorted(records):
        start, last = latest.get(user, (ms, ms))
        start = start if ms <= last + 1500 else ms
        latest[user] = (start, ms)
        wanted.setdefault((user, start), []).append(amount)
    assert len(wanted) > 500
    assert written(tmp_path) == {name: (len(item), sum(item), sum(item) / len(item)) for name, item in wanted.items()}
    assert late_of(run) == 0
    run.close()


@pytest.mark.parametrize("kind", [TumblingWindow(60_000), SlidingWindow(60_000, 30_000), SessionWindow(4000)])
@pytest.mark.parametrize("backend", [StateBackend(FilesystemBackend(), full_every=5), StateBackend(RocksdbBackend())])
def test_increments_of_windows_are_exact_across_attempts(
    job: Job, tmp_path: Path, kind: Any, backend: StateBackend
) -> None:
    records = write_clicks(tmp_path / "in", files=2)
    made = clicks(tmp_path, Window(kind, "at"))
    both = ("user", "amount")
    windows = replace(
        made.vertices[1],
        operators=(replace(made.vertices[1].operators[0], kind=counted(both, kind)), made.vertices[1].operators[1]),
    )
    edges = (replace(made.edges[0], keys=both),)
    run = job(replace(made, vertices=(made.vertices[0], windows), edges=edges, state_backend=backend))

    def fill(number: int) -> None:
        run.fix_batch_size("source", 120_000 if number < 4 else 6_000)
        run.batch("source", number % 2)

    chains = run.chained(fill, "windows", 9)
    assert max(chains) > 1, "no snapshot built on another one"
    found = Counter()
    for row in rows_of(tmp_path / "out"):
        start = round((row["window_start"] - EPOCH).total_seconds() * 1000)
        assert (row["user"], row["amount"], start) not in found, "a window fires once"
        found[row["user"], row["amount"], start] = row["n"]
    assert found == wanted_of(kind, records)
    assert late_of(run) == 0
    run.close()


def counted(keys: tuple[str, ...], kind: Any) -> KeyedAggregate:
    return KeyedAggregate(keys, aggregate(keys, n=(AggregateFunction.COUNT, "")).aggregates, Window(kind, "at"))


def wanted_of(kind: Any, records: list[tuple[int, str, int]]) -> Counter[tuple[str, int, int]]:
    """Records of each user and amount by start of the window."""
    found: Counter[tuple[str, int, int]] = Counter()
    latest: dict[tuple[str, int], tuple[int, int]] = {}  # start of the last session, last click in it
    for ms, user, amount in sorted(records):
        if isinstance(kind, SessionWindow):
            start, last = latest.get((user, amount), (ms, ms))
            start = start if ms <= last + kind.gap_ms else ms
            latest[user, amount] = (start, ms)
            found[user, amount, start] += 1
        else:
            slide = kind.slide_ms if isinstance(kind, SlidingWindow) else kind.size_ms
            for start in range(ms - ms % slide, ms - kind.size_ms, -slide):
                found[user, amount, start] += 1
    return found


def test_windows_are_upserted_by_key_and_start(job: Job, tmp_path: Path) -> None:
    records = write_clicks(tmp_path / "in", files=2, rows=500)
    plain = clicks(tmp_path, Window(TumblingWindow(5000), "at"))
    sink = SqlSink(f"sqlite:///{tmp_path}/out.db", "clicks", ("user", "window_start"))
    windows = replace(plain.vertices[1], operators=(plain.vertices[1].operators[0], Operator("sink", "sink", sink)))
    run = job(replace(plain, vertices=(plain.vertices[0], windows)))
    run.to_end()
    run.checkpoint(1)
    with closing(sqlite3.connect(tmp_path / "out.db")) as database:
        rows = database.execute("SELECT user, window_start, n, total FROM clicks").fetchall()
    found = {(user, datetime.fromisoformat(start).replace(tzinfo=UTC)): (n, total) for user, start, n, total in rows}
    wanted = expected(records, 5000, 5000)
    assert found == {(user, EPOCH + timedelta(milliseconds=start)): item[:2] for (user, start), item in wanted.items()}
    run.close()


def test_a_subtask_without_a_file_holds_nothing_back(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", files=1, rows=300)
    plain = clicks(tmp_path, Window(TumblingWindow(5000), "at"), idle_after_ms=3_600_000)
    read = plain.vertices[0]
    source = replace(read.operators[0].kind, continuous=True, poll_interval_ms=10)
    read = replace(read, operators=(replace(read.operators[0], kind=source), *read.operators[1:]))
    run = job(replace(plain, vertices=(read, plain.vertices[1])))
    while run.batch("source", 1):  # it has nothing, and says so
        pass
    while run.batch("source", 0):
        pass
    run.checkpoint(1)
    last = max(start for _, start in written(tmp_path))
    assert EPOCH + timedelta(milliseconds=last) >= START + timedelta(seconds=105)
    run.close()


def test_a_folder_that_is_watched_fires_once_its_files_are_idle(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", files=2, rows=300)
    plain = clicks(tmp_path, Window(TumblingWindow(5000), "at"), parallelism=1, idle_after_ms=50)
    source = FileSource(
        path=str(tmp_path / "in"), format=FileFormat.JSON_LINES, schema=SCHEMA, continuous=True, poll_interval_ms=10
    )
    read = plain.vertices[0]
    read = replace(read, operators=(replace(read.operators[0], kind=source), *read.operators[1:]))
    run = job(replace(plain, vertices=(read, plain.vertices[1])))
    deadline = time.monotonic() + 60
    records: list[Any] = []
    while not (records and records[-1].idle) and time.monotonic() < deadline:
        poll = run.programs["source", 0].poll()
        if isinstance(poll, Batch):
            run.deliver("source", poll)
            if poll.watermark is not None:
                records.append(poll.watermark)
                run.advance("source", 0, poll.watermark)
        else:
            assert isinstance(poll, Idle)
            assert poll.wait_ms <= 50
    assert records[-1].idle
    run.checkpoint(1)
    last = max(start for _, start in written(tmp_path))
    assert START + timedelta(seconds=110) <= EPOCH + timedelta(milliseconds=last) <= START + timedelta(seconds=115)
    run.close()


def test_windows_fire_while_the_stream_continues(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", files=2, rows=6000)
    run = job(clicks(tmp_path, Window(TumblingWindow(5000), "at"), parallelism=1))
    run.fix_batch_size("source", 50_000)
    for _ in range(8):
        run.batch("source")
    run.checkpoint(1)
    assert written(tmp_path), "event time passed some windows long before the end"
    run.close()


def test_each_split_has_its_own_mark_in_the_snapshot(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", files=2, rows=20_000)
    run = job(clicks(tmp_path, Window(TumblingWindow(5000), "at"), parallelism=1))
    run.fix_batch_size("source", 50_000)
    news = []
    for _ in range(3):
        poll = run.programs["source", 0].poll()
        assert isinstance(poll, Batch)
        news.append(poll.watermark)
    assert news[0] is None, "nothing was read of the second file, which may be older"
    assert news[1] is not None
    source = run.programs["source", 0]
    marks = [split.max_event_time_ms for split in source._event_time.marked(source._layout.source.splits())]
    first = int(START.timestamp() * 1000)
    assert all(mark is not None and first < mark < first + 125_000 for mark in marks)
    assert news[1].event_time_ms <= min(marks) - 2001, "the least of them counts"
    assert news[2] is None or news[2].event_time_ms == min(marks) - 2001
    run.close()


def late_job(folder: Path, lateness: int) -> JobGraph:
    """Sequence 0..99 at 10 ms each, but every tenth record 300 ms too old; bound 0."""
    shift = "sequence * 10 - IF(sequence % 10 = 9, 300, 0)"
    source = vertex("source", GeneratorSource(1, 400), EventTime(shift, "at", 0, 0))
    window = Window(TumblingWindow(100), "at", lateness)
    counts = KeyedAggregate(("partition",), count_by("partition").aggregates, window)
    return graph(
        source,
        vertex("windows", counts, FileSink(str(folder / "out"), FileFormat.PARQUET)),
        vertex("late", FileSink(str(folder / "late"), FileFormat.PARQUET)),
        edges=(
            Edge("source", "windows", HASH, ("partition",)),
            Edge("windows", "late", Partitioning.FORWARD, side_output="late"),
        ),
    )


@pytest.mark.parametrize("backend", [None, StateBackend(RocksdbBackend())])
@pytest.mark.parametrize(("lateness", "late"), [(0, True), (1000, False)])
def test_late_records_go_to_the_side_output_or_update_a_window(
    job: Job, tmp_path: Path, lateness: int, late: bool, backend: StateBackend | None
) -> None:
    run = job(replace(late_job(tmp_path, lateness), state_backend=backend))
    run.fix_batch_size("source", 16 * 50)
    run.to_end()
    run.checkpoint(1)
    shown, side = rows_of(tmp_path / "out"), rows_of(tmp_path / "late")
    last: dict[Any, int] = {}
    for row in shown:
        last[row["window_start"]] = max(row["n"], last.get(row["window_start"], 0))
    moved = Counter(
        ms - ms % 100 for ms in (sequence * 10 - (300 if sequence % 10 == 9 else 0) for sequence in range(400))
    )
    by_start = {EPOCH + timedelta(milliseconds=start): count for start, count in moved.items()}
    side_counts: Counter[Any] = Counter()
    for row in side:
        side_counts[row["window_start"]] += row["n"]
    if late:
        assert side
        assert late_of(run) == sum(side_counts.values())
    else:
        assert not side
        assert late_of(run) == 0
        assert len(shown) > len(last), "windows that had fired gave their new results"
    assert {start: last.get(start, 0) + side_counts[start] for start in by_start} == by_start
    run.close()


@pytest.mark.parametrize("kind", [TumblingWindow(100), SessionWindow(100)], ids=["tumbling", "sessions"])
@pytest.mark.parametrize("time_sql", ["NULL", "1793000000000000000L", "-9223372036854775L"])
def test_records_whose_time_no_timestamp_can_hold_are_in_no_window(
    job: Job, tmp_path: Path, time_sql: str, kind: Any
) -> None:
    """The second of the times is in nanoseconds, the third is the first of TIMESTAMP: its window begins earlier."""
    source = vertex(
        "source", GeneratorSource(1, 100), EventTime(f"IF(sequence < 90, sequence, {time_sql})", "at", 0, 0)
    )
    counts = KeyedAggregate(("partition",), count_by("partition").aggregates, Window(kind, "at"))
    sink = FileSink(str(tmp_path / "out"), FileFormat.PARQUET)
    run = job(graph(source, vertex("w", counts, sink), edges=(Edge("source", "w", HASH, ("partition",)),)))
    run.to_end()
    run.checkpoint(1)
    assert [row["n"] for row in rows_of(tmp_path / "out")] == [90]
    assert late_of(run) == 10
    run.close()


def test_an_invalid_time_is_refused_with_a_hint(job: Job) -> None:
    source = vertex("source", GeneratorSource(1, 10), EventTime("CAST(sequence AS STRING)", "at", 0, 0), ConsoleSink())
    with pytest.raises(UserError, match=r"'CAST\(sequence AS STRING\)' is of type string.*to_timestamp"):
        job(graph(source))


def test_the_highest_time_is_known_behind_a_view_that_the_author_has_made(job: Job, tmp_path: Path) -> None:
    def through_a_view(frame: Any) -> Any:
        frame.createOrReplaceTempView("mine")
        return frame.sparkSession.sql("SELECT * FROM mine")

    function = PythonTransform(cloudpickle.dumps(through_a_view))
    source = vertex("source", GeneratorSource(1, 100), EventTime("sequence", "at", 0, 0), function)
    counts = KeyedAggregate(("partition",), count_by("partition").aggregates, Window(TumblingWindow(10), "at"))
    sink = FileSink(str(tmp_path / "out"), FileFormat.PARQUET)
    edges = (Edge("source", "as it is", Partitioning.FORWARD), Edge("as it is", "w", HASH, ("partition",)))
    run = job(graph(source, vertex("as it is", sql("SELECT * FROM input")), vertex("w", counts, sink), edges=edges))
    run.batch("source", 0)
    run.checkpoint(1)
    assert [row["n"] for row in rows_of(tmp_path / "out")] == [10] * 9, "all but the one that the last record is in"
    run.close()


@pytest.mark.skipif("LOCKGATE_TEST_SPARK" in os.environ, reason="only a local Spark has plans that are executed again")
def test_a_plan_that_declares_event_time_is_still_prepared(job: Job, tmp_path: Path) -> None:
    write_clicks(tmp_path / "in", files=1, rows=10)
    run = job(clicks(tmp_path, Window(TumblingWindow(5000), "at"), parallelism=1))
    stage = run.programs["source", 0]._layout.stages[0]
    assert stage._plan.repeatable
    run.close()
