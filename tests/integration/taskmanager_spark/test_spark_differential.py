"""Random jobs against plain Spark over the same files: their results are equal, however the records are cut.

Every run tries other jobs. The seed of a run is printed when it fails: LOCKGATE_TEST_SEED=<it> repeats that run, and
LOCKGATE_SHRINK=1 looks for a smaller job that fails as well, which takes minutes. LOCKGATE_TEST_EXAMPLES multiplies the
number of jobs and the time for them: `make test-soak` tries thousands.
"""

from __future__ import annotations

import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, note, seed, settings
from hypothesis import strategies as st
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CountWindow,
    Deduplicate,
    Edge,
    EventTime,
    FileFormat,
    FileSource,
    IntervalJoin,
    JobGraph,
    JoinSide,
    KeyedAggregate,
    Partitioning,
    SessionWindow,
    SlidingWindow,
    TriggeredWindow,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.spark.engine import SparkEngine

from tests.share import SHARE

from .conftest import Run
from .expressions import KEYS, RECORDS, expressions, of_types, records
from .graphs import HASH, graph, sql, vertex

pytestmark = [pytest.mark.integration, pytest.mark.first]

SEED = int(os.environ.get("LOCKGATE_TEST_SEED") or secrets.randbelow(1 << 32))
TIMES = float(os.environ.get("LOCKGATE_TEST_EXAMPLES", "1"))
LEAST, SECONDS = 3, 40 * max(1.0, TIMES) / SHARE
PHASES = (Phase.generate, Phase.shrink) if os.environ.get("LOCKGATE_SHRINK") else (Phase.generate,)
COUNT, SUM, MIN, MAX, AVG = (AggregateFunction[name] for name in ("COUNT", "SUM", "MIN", "MAX", "AVG"))
Test = TypeVar("Test", bound=Callable[..., Any])
_numbers = count()


def timely(test: Test) -> Test:
    """No new job after SECONDS: a busy machine compares fewer, but always LEAST. How many is printed."""
    begun: list[float] = []

    @wraps(test)
    def limited(*args: Any, **kwargs: Any) -> None:
        if len(begun) < LEAST or time.monotonic() - begun[0] < SECONDS:
            begun.append(time.monotonic())
            print(f"job {len(begun)} of {test.__name__}, LOCKGATE_TEST_SEED={SEED}")
            test(*args, **kwargs)

    return limited  # type: ignore[return-value]


def compared(jobs: int) -> Callable[[Test], Test]:
    """So many jobs in a run of CI, and TIMES as many where there is time."""

    def decorate(test: Test) -> Test:
        chosen = settings(
            max_examples=max(1, round(jobs * TIMES)),
            database=None,
            print_blob=False,
            phases=PHASES,
            suppress_health_check=list(HealthCheck),
        )
        return pytest.mark.timeout(900 + 2 * SECONDS)(seed(SEED)(chosen(test)))  # type: ignore[no-any-return]

    return decorate


@dataclass(frozen=True)
class Cut:
    """How a job meets its records. batches: micro-batches of each file; restored: after the first of them."""

    seed: int
    rows: int
    files: int
    parallelism: int
    batches: int
    restored: bool


CUTS = st.builds(
    Cut,
    st.integers(0, 10_000),
    st.sampled_from([60, 80, 40, 1, 0]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.booleans(),
)


class TestingSpark:
    """One Spark for jobs and for what they are compared with."""

    def __init__(self, engine: SparkEngine, folder: Path) -> None:
        self.engine = engine
        self._folder = folder
        self.plain = engine._session.newSession()
        self.plain.conf.set("spark.sql.shuffle.partitions", "1")

    def written(self, cut: Cut) -> Path:
        """The files of a job."""
        folder = self._folder / f"{next(_numbers)}"
        folder.mkdir()
        table = records(cut.seed, cut.rows)
        for number in range(cut.files):
            share = table.slice(number * cut.rows // cut.files, (number + 1) * cut.rows // cut.files)
            end = (number + 1) * cut.rows // cut.files - number * cut.rows // cut.files
            pq.write_table(share.slice(0, end), folder / f"{number}.parquet")
        return folder

    def result(self, made: JobGraph, folder: Path, cut: Cut, sources: tuple[str, ...] = ("source",)) -> list[pa.Table]:
        """What comes to the vertex `end`."""
        run = Run(self.engine, folder, made, f"{folder.name}")
        size = records(cut.seed, cut.rows).nbytes // cut.files // cut.batches + 1
        try:
            run.start()
            for source in sources:
                run.fix_batch_size(source, size)
            kept: list[pa.Table] = []
            if cut.restored:
                for source in sources:
                    run.batch(source)
                states = run.checkpoint(1)
                kept = self._received(run)
                run.close()
                run.start(states, 1)
            run.to_end()
            return kept + self._received(run)
        finally:
            run.close()

    def expected(self, folder: Path, query: str) -> pa.Table:
        """What plain Spark makes of the same files, as the relation `input`."""
        note(query)
        self.plain.read.schema(self._schema()).parquet(str(folder)).createOrReplaceTempView("input")
        return self.plain.sql(query).toArrow()

    def _schema(self) -> Any:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(RECORDS)

    def _received(self, run: Run) -> list[pa.Table]:
        return [table for (vertex_id, _), tables in run.received.items() if vertex_id == "end" for table in tables]


@pytest.fixture(scope="module")
def testing(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> TestingSpark:
    return TestingSpark(engine, tmp_path_factory.mktemp("differential"))


def files(folder: Path) -> FileSource:
    """All of them; the declared schema makes types the same without any file."""
    return FileSource(str(folder), FileFormat.PARQUET, include="*.parquet")


def plainly(value: Any) -> Any:
    """Something that is equal to itself, and 0.0 to -0.0, also inside."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, plainly(inner)) for name, inner in value.items())
    return tuple(map(plainly, value)) if isinstance(value, list) else value


def rows_of(tables: list[pa.Table], names: list[str]) -> Counter[Any]:
    return Counter(
        tuple(plainly(row[name]) for name in names) for table in tables for row in table.select(names).to_pylist()
    )


def types_of(schema: pa.Schema) -> dict[str, str]:
    return {field.name: str(field.type).replace(" not null", "") for field in schema}


def assert_same(found: list[pa.Table], expected: pa.Table) -> None:
    names = expected.column_names
    for table in found[:1]:
        assert types_of(table.schema) == types_of(expected.schema)
    ours, theirs = rows_of(found, names), rows_of([expected], names)
    more, less = (list(item.items())[:3] for item in (ours - theirs, theirs - ours))
    assert ours == theirs, f"too many: {more}; missing: {less}"


@compared(70)
@given(CUTS, st.lists(of_types(), min_size=1, max_size=6), expressions("bool"), st.booleans(), st.booleans())
@timely
def test_chains(
    testing: TestingSpark, cut: Cut, columns: list[str], condition: str, is_keyed: bool, is_split: bool
) -> None:
    folder = testing.written(cut)
    chosen = ", ".join(f"{text} AS c{number}" for number, text in enumerate(columns))
    first = f"SELECT *, {chosen} FROM input WHERE {condition}"
    then = "SELECT *, struct(c0, id) AS again, CAST(id AS STRING) AS t0 FROM input WHERE id % 3 <> 1"
    spread = (HASH, ("id",)) if is_keyed else (Partitioning.REBALANCE, ())
    middle = (vertex("middle", sql(then), parallelism=cut.parallelism),)
    made = graph(
        vertex("source", files(folder), sql("SELECT * FROM input"), sql(first)),
        *(middle if is_split else ()),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "middle", *spread), Edge("middle", "end", Partitioning.REBALANCE))
        if is_split
        else (Edge("source", "end", *spread),),
    )
    query = f"WITH input AS ({first}) {then}" if is_split else first
    assert_same(testing.result(made, folder, cut), testing.expected(folder, query))


AGGREGATES = st.one_of(
    st.tuples(st.just(COUNT), of_types()),
    st.just((COUNT, "")),
    st.tuples(st.just(SUM), st.sampled_from(["CAST(g AS BIGINT)", "d", "f", "pmod(n, 7L)", "id", "x * 2"])),
    st.tuples(st.just(SUM), expressions("decimal")),
    st.tuples(st.sampled_from([MIN, MAX]), of_types("int", "double", "decimal", "text", "date", "time", "bytes")),
    st.tuples(st.just(AVG), st.sampled_from(["g", "f", "pmod(n, 7L)", "id"])),
)
PLAIN = {COUNT: "count", SUM: "sum", MIN: "min", MAX: "max", AVG: "avg"}


def sql_of(function: AggregateFunction, text: str) -> str:
    if function is AVG:
        return f"avg(CAST({text} AS DOUBLE))"
    return f"{PLAIN[function]}({text or '*'})"


def aggregated(
    keys: list[str], made: list[tuple[AggregateFunction, str]], window: Window | None = None
) -> KeyedAggregate:
    return KeyedAggregate(tuple(keys), tuple(Aggregate(f"a{n}", *item) for n, item in enumerate(made)), window)


@compared(60)
@given(
    CUTS,
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True),
    st.lists(AGGREGATES, min_size=1, max_size=5),
)
@timely
def test_aggregates(
    testing: TestingSpark, cut: Cut, keys: list[str], made: list[tuple[AggregateFunction, str]]
) -> None:
    folder = testing.written(cut)
    job = graph(
        vertex("source", files(folder), sql("SELECT * FROM input")),
        vertex("totals", aggregated(keys, made), parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "totals", HASH, tuple(keys)), Edge("totals", "end", Partitioning.REBALANCE)),
    )
    found = testing.result(job, folder, cut)
    newest: dict[Any, dict[str, Any]] = {}
    for table in found:
        for row in table.to_pylist():
            newest[tuple(plainly(row[key]) for key in keys)] = row
    columns = ", ".join(f"{sql_of(*item)} AS a{n}" for n, item in enumerate(made))
    expected = testing.expected(folder, f"SELECT {', '.join(keys)}, {columns} FROM input GROUP BY {', '.join(keys)}")
    last = [pa.Table.from_pylist(list(newest.values()), schema=found[0].schema)] if found else []
    assert_same(last, expected)


@compared(40)
@given(
    CUTS,
    st.sampled_from([(1000, 1000), (5000, 1000), (3000, 2000), (500, 500)]),
    st.sampled_from([["k"], ["g", "b"], ["x"], ["t"]]),
    st.lists(AGGREGATES, min_size=1, max_size=3),
)
@timely
def test_windows(
    testing: TestingSpark, cut: Cut, size: tuple[int, int], keys: list[str], made: list[tuple[AggregateFunction, str]]
) -> None:
    folder = testing.written(cut)
    size_ms, slide_ms = size
    kind = TumblingWindow(size_ms) if size_ms == slide_ms else SlidingWindow(size_ms, slide_ms)
    when = EventTime(expression="at", out_of_orderness_ms=60_000)
    job = graph(
        vertex("source", files(folder), when, sql("SELECT * FROM input")),
        vertex("windows", aggregated(keys, made, Window(kind, "at")), parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "windows", HASH, tuple(keys)), Edge("windows", "end", Partitioning.REBALANCE)),
    )
    found = testing.result(job, folder, cut)
    columns = ", ".join(f"{sql_of(*item)} AS a{n}" for n, item in enumerate(made))
    spans = f"window(at, '{size_ms} milliseconds', '{slide_ms} milliseconds')"
    expected = testing.expected(
        folder,
        f"SELECT {', '.join(keys)}, w.start AS window_start, w.end AS window_end, a.* EXCEPT (w, {', '.join(keys)})"
        f" FROM (SELECT {', '.join(keys)}, {spans} AS w, {columns} FROM input WHERE at IS NOT NULL"
        f" GROUP BY {', '.join(keys)}, {spans}) a",
    )
    assert_same(found, expected)


@compared(30)
@given(
    CUTS,
    st.sampled_from([500, 1000, 5000]),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([["k"], ["g", "b"], ["x"], ["t"]]),
    st.lists(AGGREGATES, min_size=1, max_size=3),
)
@timely
def test_triggered_windows(
    testing: TestingSpark,
    cut: Cut,
    size_ms: int,
    every_count: int,
    purge: bool,
    keys: list[str],
    made: list[tuple[AggregateFunction, str]],
) -> None:
    """Final results, or the sum of pieces: which early results there are depends on where batches end."""
    folder = testing.written(cut)
    made = [(COUNT, ""), (SUM, "pmod(n, 7L)")] if purge else made
    window = Window(TriggeredWindow(size_ms, 0, every_count, 0, purge), "at")
    job = graph(
        vertex("source", files(folder), EventTime(expression="at", out_of_orderness_ms=60_000)),
        vertex("windows", aggregated(keys, made, window), parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "windows", HASH, tuple(keys)), Edge("windows", "end", Partitioning.REBALANCE)),
    )
    found = testing.result(job, folder, cut)
    by = [*keys, "window_start", "window_end"]
    finals = [table.filter(pc.invert(table.column("is_early"))).drop_columns(["is_early"]) for table in found]
    assert max(rows_of(finals, by).values(), default=1) == 1, "one final result for each key and window"
    if purge:
        finals = pieces_added_up(found, by)
    columns = ", ".join(f"{sql_of(*item)} AS a{n}" for n, item in enumerate(made))
    names, span = ", ".join(keys), f"window(at, '{size_ms} milliseconds')"
    expected = testing.expected(
        folder,
        f"SELECT {names}, w.start AS window_start, w.end AS window_end, a.* EXCEPT (w, {names})"
        f" FROM (SELECT {names}, {span} AS w, {columns} FROM input WHERE at IS NOT NULL GROUP BY {names}, {span}) a",
    )
    assert_same(finals, expected)


@compared(20)
@given(
    CUTS,
    st.sampled_from([TumblingWindow(1000), SessionWindow(1000), TumblingWindow(3_600_000)]),
    st.sampled_from([["k"], ["g", "b"], ["x"], ["t"]]),
)
@timely
def test_windows_by_the_clock(testing: TestingSpark, cut: Cut, kind: Any, keys: list[str]) -> None:
    """The clock decides in which window a record is, but it is in exactly one."""
    folder = testing.written(cut)
    made = [(COUNT, ""), (SUM, "pmod(n, 7L)")]
    job = graph(
        vertex("source", files(folder), sql("SELECT * FROM input")),
        vertex("windows", aggregated(keys, made, Window(kind, processing_time=True)), parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "windows", HASH, tuple(keys)), Edge("windows", "end", Partitioning.REBALANCE)),
    )
    found = pieces_added_up(testing.result(job, folder, cut), keys)
    names = ", ".join(keys)
    expected = f"SELECT {names}, count(*) AS a0, sum(pmod(n, 7L)) AS a1 FROM input GROUP BY {names}"
    assert_same(found, testing.expected(folder, expected))


def pieces_added_up(found: list[pa.Table], by: list[str]) -> list[pa.Table]:
    """The count a0 and the sum a1, of pieces with the same values in `by`."""
    added: dict[Any, dict[str, Any]] = {}
    for row in (row for table in found for row in table.to_pylist()):
        name = tuple(plainly(row[column]) for column in by)
        before = added.get(name)
        parts = [row["a1"]] if before is None else [before["a1"], row["a1"]]
        known = [part for part in parts if part is not None]
        count_ = row["a0"] + (before["a0"] if before is not None else 0)
        added[name] = {column: row[column] for column in by} | {"a0": count_, "a1": sum(known) if known else None}
    schema = pa.schema([found[0].schema.field(column) for column in (*by, "a0", "a1")]) if found else None
    return [pa.Table.from_pylist(list(added.values()), schema=schema)] if found else []


@compared(30)
@given(
    CUTS,
    st.sampled_from([(1, 1), (3, 3), (4, 2), (5, 3), (7, 1), (50, 50)]),
    st.sampled_from([["k"], ["g", "b"], ["d"], ["x"], ["t"]]),
    st.lists(AGGREGATES, min_size=1, max_size=3),
)
@timely
def test_count_windows(
    testing: TestingSpark, cut: Cut, size: tuple[int, int], keys: list[str], made: list[tuple[AggregateFunction, str]]
) -> None:
    """The records of one file arrive in its order, which is that of `id`."""
    cut = replace(cut, files=1)
    folder = testing.written(cut)
    window = CountWindow(tuple(keys), *size, aggregated(keys, made).aggregates)
    job = graph(
        vertex("source", files(folder), sql("SELECT * FROM input")),
        vertex("windows", window, parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "windows", HASH, tuple(keys)), Edge("windows", "end", Partitioning.REBALANCE)),
    )
    found = testing.result(job, folder, cut)
    by, columns = ", ".join(keys), ", ".join(f"{sql_of(*item)} AS a{n}" for n, item in enumerate(made))
    expected = testing.expected(
        folder,
        f"SELECT {by}, greatest(e - {size[0]}, 0L) AS window_start, e AS window_end, {columns} FROM ("
        f" SELECT *, explode(sequence({size[1]}L, {size[1] * max(1, cut.rows)}L, {size[1]}L)) AS e FROM ("
        f"  SELECT *, row_number() OVER (PARTITION BY {by} ORDER BY id) AS number_,"
        f"  count(*) OVER (PARTITION BY {by}) AS all_ FROM input))"
        f" WHERE e <= all_ AND number_ <= e AND number_ > e - {size[0]} GROUP BY {by}, e",
    )
    assert_same(found, expected)


@compared(30)
@given(CUTS, st.sampled_from([["k"], ["g"], ["k", "g"], ["d"], ["t"], ["y"]]), st.integers(-3, 1), st.integers(0, 3))
@timely
def test_interval_joins(testing: TestingSpark, cut: Cut, keys: list[str], lower: int, length: int) -> None:
    folder = testing.written(cut)
    low, high = 500 * lower, 500 * (lower + length)
    when = EventTime(expression="at", out_of_orderness_ms=60_000)
    left = sql(f"SELECT {', '.join(keys)}, at, id, s FROM input")
    join = IntervalJoin(tuple(keys), tuple(keys), "at", "at", low, high, "", "right_")
    sides = (("left", JoinSide.LEFT), ("right", JoinSide.RIGHT))
    job = graph(
        *(vertex(name, files(folder), when, left) for name, _ in sides),
        vertex("join", join, parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(
            *(Edge(name, "join", HASH, tuple(keys), join_side=side) for name, side in sides),
            Edge("join", "end", Partitioning.REBALANCE),
        ),
    )
    found = testing.result(job, folder, cut, ("left", "right"))
    same = " AND ".join(f"a.{key} = b.{key}" for key in keys)
    expected = testing.expected(
        folder,
        f"SELECT {', '.join(f'a.{key}' for key in keys)}, a.at, a.id, a.s, b.at AS right_at, b.id AS right_id,"
        f" b.s AS right_s FROM input a JOIN input b ON {same}"
        f" AND unix_micros(b.at) - unix_micros(a.at) BETWEEN {1000 * low} AND {1000 * high}",
    )
    assert_same(found, expected)


@compared(20)
@given(CUTS, st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True))
@timely
def test_deduplication(testing: TestingSpark, cut: Cut, keys: list[str]) -> None:
    """One record of each key, and it is one of the input."""
    folder = testing.written(cut)
    job = graph(
        vertex("source", files(folder), sql("SELECT * FROM input")),
        vertex("first", Deduplicate(tuple(keys)), parallelism=cut.parallelism),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "first", HASH, tuple(keys)), Edge("first", "end", Partitioning.REBALANCE)),
    )
    found = testing.result(job, folder, cut)
    expected = testing.expected(folder, f"SELECT DISTINCT {', '.join(keys)} FROM input")
    assert rows_of(found, keys) == rows_of([expected], keys)
    whole = rows_of([testing.expected(folder, "SELECT * FROM input")], RECORDS.names)
    assert rows_of(found, RECORDS.names) <= whole


def test_a_wrong_result_would_be_detected() -> None:
    """The comparison itself: a row that is lost, doubled or changed, or a column of another type, is reported."""
    expected = pa.table({"a": pa.array([1, 2, 2], pa.int64()), "x": [0.0, float("nan"), None]})
    assert_same([expected.slice(1), expected.slice(0, 1)], expected)
    other = pa.table({"a": pa.array([1, 2, 3], pa.int64()), "x": expected.column("x")})
    narrow = expected.set_column(0, "a", expected.column("a").cast(pa.int32()))
    for wrong in ([expected.slice(1)], [expected, expected.slice(2)], [other], [narrow]):
        with pytest.raises(AssertionError):
            assert_same(wrong, expected)
