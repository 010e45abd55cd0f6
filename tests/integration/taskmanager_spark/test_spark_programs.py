"""Whole chains on real Spark: source to sink, restored in the middle, against plain Python or plain Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import (
    AggregateFunction,
    ConsoleSink,
    Edge,
    FailurePlace,
    FileFormat,
    FileSink,
    FileSource,
    FilesystemBackend,
    ForeachBatchSink,
    GeneratorSource,
    JobGraph,
    MemoryBackend,
    Partitioning,
    PythonTransform,
    RocksdbBackend,
    SplitRange,
    StateBackend,
)
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.state.aggregates.keyed_state import KeyedState
from lockgate_taskmanager.task.program import DataError, SnapshotTooLarge, StateUnreadable, UserCodeFailed, UserError
from pyspark import cloudpickle

from .graphs import HASH, WORDS, aggregate, count_by, graph, sql, text, vertex

pytestmark = pytest.mark.integration

COUNT, SUM, MIN, MAX, AVG = (AggregateFunction(n) for n in (1, 2, 3, 4, 5))
Job = Callable[..., Any]


def write_words(folder: Path, files: int = 4, lines: int = 3000) -> Counter[str]:
    rng = random.Random(7)
    counted: Counter[str] = Counter()
    folder.mkdir(exist_ok=True)
    for number in range(files):
        text_lines = [" ".join(f"w{int(rng.paretovariate(0.7))}" for _ in range(8)) for _ in range(lines)]
        counted.update(word for line in text_lines for word in line.split(" "))
        (folder / f"{number}.txt").write_text("\n".join(text_lines))
    return counted


def word_count(folder: Path, parallelism: int = 1) -> JobGraph:
    return graph(
        vertex("source", text(folder / "in"), WORDS, parallelism=parallelism),
        vertex("count", count_by("word"), FileSink(str(folder / "out"), FileFormat.PARQUET), parallelism=parallelism),
        edges=(Edge("source", "count", HASH, ("word",)),),
    )


def final_counts(folder: Path) -> dict[str, int]:
    """The highest count shown for each word."""
    found: dict[str, int] = {}
    for path in (folder / "out").glob("part-*"):
        for row in pq.read_table(path).to_pylist():
            found[row["word"]] = max(row["n"], found.get(row["word"], 0))
    return found


def test_word_count_is_exact_across_attempts(job: Job, tmp_path: Path) -> None:
    expected = write_words(tmp_path / "in")
    run = job(word_count(tmp_path, parallelism=2))
    run.fix_batch_size("source", 50_000)
    run.batch("source", 0)
    run.batch("source", 1)
    kept = run.checkpoint(1)
    run.batch("source", 0)
    run.checkpoint(2, commit=False)
    run.close()
    for checkpoint_id in (3, 4):
        run.start(restore=kept)
        run.batch("source", 0)
        kept = run.checkpoint(checkpoint_id)
        run.close()
    run.start(restore=kept)
    run.to_end()
    run.checkpoint(5)
    assert final_counts(tmp_path) == dict(expected)
    counters = {counter.operator_id: counter for program in run.programs.values() for counter in program.counters()}
    totals = Counter[str]()
    for program in run.programs.values():
        for counter in program.counters():
            totals[f"{counter.operator_id} in"] += counter.records_in
            totals[f"{counter.operator_id} out"] += counter.records_out
    assert set(counters) == {"source0", "source1", "count0", "count1"}
    lines = sum(expected.values()) // 8
    assert (totals["source0 out"], totals["source1 in"]) == (lines, lines)
    assert totals["source1 out"] == totals["count0 in"] == sum(expected.values())
    assert totals["count0 out"] == totals["count1 in"] >= len(expected)


@pytest.mark.parametrize(
    "backend",
    [StateBackend(FilesystemBackend(), full_every=4), StateBackend(RocksdbBackend())],
    ids=["files", "rocksdb"],
)
def test_increments_are_exact_across_attempts(job: Job, tmp_path: Path, backend: StateBackend) -> None:
    expected = write_words(tmp_path / "in")
    made = word_count(tmp_path, parallelism=2)
    run = job(replace(made, state_backend=backend))
    run.fix_batch_size("source", 20_000)
    run.batch("source", 0)
    run.batch("source", 1)
    kept, base_id, chains = run.checkpoint(1), 1, []
    run.fix_batch_size("source", 500)  # few of the words: a snapshot of which most has changed is a full one
    for number in range(2, 9):
        run.batch("source", number % 2)
        states = run.checkpoint(number, commit=number % 3 != 0, base_id=base_id)
        counted = states["count", 0].operators[0]
        chains.append(len({increment.checkpoint_id for increment in (*counted.increments, *counted.files)} - {number}))
        if number % 3:  # every third one is never completed
            kept, base_id = states, number
        if number == 5:  # a new attempt goes on where this one was
            run.close()
            run.start(restore=kept, restored_id=5)
    assert any(chains), "no snapshot built on another one"
    run.close()
    run.start(restore=kept, restored_id=base_id)
    run.fix_batch_size("source", 50_000)
    run.to_end()
    run.checkpoint(9)
    assert final_counts(tmp_path) == dict(expected)


def test_a_redeployed_subtask_takes_its_plans_over(job: Job, tmp_path: Path) -> None:
    write_words(tmp_path / "in", lines=10)
    run = job(word_count(tmp_path))
    run.batch("source")
    before = run.programs["source", 0]._layout.stages[0]._plan
    kept = run.checkpoint(1)
    run.close()
    run.start(restore=kept)
    assert run.programs["source", 0]._layout.stages[0]._plan is before
    other = job(word_count(tmp_path))
    assert other.programs["source", 0]._layout.stages[0]._plan is not before, "another run, other plans"


def test_each_key_goes_to_the_subtask_that_owns_its_group(job: Job, tmp_path: Path) -> None:
    write_words(tmp_path / "in", lines=200)
    run = job(word_count(tmp_path, parallelism=3))
    run.to_end()
    for subtask in range(3):
        groups = {row["__hash"] % 128 for row in run.rows("count", subtask)}
        assert groups
        assert groups <= set(key_group_range(subtask, 3, 128))


def numbers(folder: Path) -> list[tuple[Any, ...]]:
    rng = random.Random(3)
    rows = []
    for n in range(2000):
        key = rng.choice(["a", "b", None, "é"])
        value = rng.choice([None, rng.randint(-1000, 1000)])
        rows.append((key, value, rng.choice([None, "", "x", "Z"]), f"{rng.randint(-9999, 9999) / 100:.2f}", n))
    lines = ['"k","i","s","d","t"'] + [
        ",".join("" if v is None else f'"{v}"' if v == "" else str(v) for v in row) for row in rows
    ]
    folder.mkdir(exist_ok=True)
    (folder / "data.csv").write_text("\n".join(lines))
    return rows


AGGREGATES = {
    "n": (COUNT, ""),
    "ni": (COUNT, "i"),
    "si": (SUM, "i"),
    "sd": (SUM, "d"),
    "sf": (SUM, "CAST(i AS DOUBLE) / 4"),
    "lo": (MIN, "s"),
    "hi": (MAX, "s"),
    "dlo": (MIN, "d"),
    "dhi": (MAX, "d"),
    "first": (MIN, "timestamp_seconds(t)"),
    "day": (MAX, "CAST(timestamp_seconds(t * 1000) AS DATE)"),
    "mean": (AVG, "i"),
    "bool": (MAX, "i > 0"),
}


def test_aggregates_match_plain_spark(engine: SparkEngine, job: Job, tmp_path: Path) -> None:
    numbers(tmp_path / "in")
    ddl = "k STRING, i INT, s STRING, d DECIMAL(9,2), t BIGINT"
    source = FileSource(str(tmp_path / "in"), FileFormat.CSV, ddl, {"header": "true"})
    made = graph(
        vertex("source", source),
        vertex("sum", aggregate(("k",), **AGGREGATES)),
        vertex("end", ConsoleSink(rows=1)),
        edges=(Edge("source", "sum", HASH, ("k",)), Edge("sum", "end", Partitioning.FORWARD)),
    )
    run = job(made)
    run.fix_batch_size("source", 9000)
    run.to_end()
    found = {row["k"]: row for row in run.rows("end")}
    computed = ", ".join(f"{f.name.lower()}({e or 1}) AS {name}" for name, (f, e) in AGGREGATES.items())
    frame = engine._session.read.schema(ddl).option("header", "true").csv(str(tmp_path / "in"))
    frame.createOrReplaceTempView("numbers")
    plain = engine._session.sql(f"SELECT k, {computed} FROM numbers GROUP BY k").toArrow()
    expected = {row["k"]: row for row in plain.to_pylist()}
    assert found == expected
    assert len(run.received["end", 0]) > 3, "in several batches"
    types = {field.name: field.type for field in run.received["end", 0][0].schema}
    assert types == {field.name: field.type for field in plain.schema}


def test_a_union_of_two_sources(job: Job, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").write_text(f"x {name}\n" * 10)
    made = graph(
        vertex("left", text(tmp_path / "a"), sql("SELECT explode(split(value, ' ')) AS word, 1 AS one FROM input")),
        vertex("right", text(tmp_path / "b"), sql("SELECT 1 AS one, explode(split(value, ' ')) AS word FROM input")),
        vertex("both", sql("SELECT one, upper(word) AS word FROM input")),
        vertex("count", aggregate(("word",), n=(SUM, "one"))),
        vertex("end", ConsoleSink()),
        edges=(
            Edge("left", "both", Partitioning.REBALANCE),
            Edge("right", "both", Partitioning.REBALANCE),
            Edge("both", "count", HASH, ("word",)),
            Edge("count", "end", Partitioning.FORWARD),
        ),
    )
    run = job(made)
    run.to_end()
    last = {row["word"]: row["n"] for row in run.rows("end")}
    assert last == {"X": 20, "A": 10, "B": 10}


def test_edges_of_every_kind_at_once(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("".join(f"{n}\n" for n in range(100)))
    made = graph(
        vertex("source", text(tmp_path / "f"), sql("SELECT CAST(value AS INT) AS v FROM input")),
        vertex("hash", ConsoleSink(rows=1), parallelism=2),
        vertex("count", count_by("v"), parallelism=2),
        vertex("all", ConsoleSink(rows=1), parallelism=2),
        vertex("turn", ConsoleSink(rows=1), parallelism=2),
        vertex("same", ConsoleSink(rows=1)),
        edges=(
            Edge("source", "hash", HASH, ("v",)),
            Edge("source", "count", HASH, ("v",)),
            Edge("source", "all", Partitioning.BROADCAST),
            Edge("source", "turn", Partitioning.REBALANCE),
            Edge("source", "same", Partitioning.FORWARD),
        ),
    )
    run = job(made)
    empty = {key: tables[0].schema.names for key, tables in run.received.items()}
    assert empty["hash", 1] == empty["all", 1] == empty["turn", 1] == empty["same", 0] == ["v"]
    assert empty["count", 1] == ["v", "__hash", "__rows"]
    run.fix_batch_size("source", 60)
    run.to_end()
    every = list(range(100))
    halves = [[row["v"] for row in run.rows("hash", n)] for n in (0, 1)]
    assert sorted(halves[0] + halves[1]) == every
    assert all(halves)
    assert [sorted(row["v"] for row in run.rows("count", n)) for n in (0, 1)] == [sorted(half) for half in halves]
    assert [[row["v"] for row in run.rows("all", n)] for n in (0, 1)] == [every, every]
    turns = [[row["v"] for row in run.rows("turn", n)] for n in (0, 1)]
    assert sorted(turns[0] + turns[1]) == every
    assert all(turns)
    assert [row["v"] for row in run.rows("same")] == every


def test_an_aggregate_feeds_another_one(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a b a\nc a b\n")
    made = graph(
        vertex("source", text(tmp_path / "f"), WORDS),
        vertex("count", count_by("word"), sql("SELECT word, n FROM input WHERE n > 1")),
        vertex("again", aggregate((), top=(MAX, "n"), changes=(COUNT, ""))),
        vertex("end", ConsoleSink()),
        edges=(
            Edge("source", "count", HASH, ("word",)),
            Edge("count", "again", HASH),
            Edge("again", "end", Partitioning.FORWARD),
        ),
    )
    run = job(made)
    run.to_end()
    assert run.rows("end")[-1] == {"top": 3, "changes": 2}
    states = run.checkpoint(1)
    run.close()
    run.start(restore=states)
    state = run.programs["again", 0]._state
    assert isinstance(state, KeyedState)
    assert len(state) == 1


def test_the_generator(job: Job) -> None:
    made = graph(
        vertex("source", GeneratorSource(partitions=3, rows_per_partition=70_000)),
        vertex("count", aggregate(("partition",), n=(COUNT, ""), total=(SUM, "sequence"))),
        vertex("end", ConsoleSink()),
        edges=(Edge("source", "count", HASH, ("partition",)), Edge("count", "end", Partitioning.FORWARD)),
    )
    run = job(made)
    run.to_end()
    last = {row["partition"]: (row["n"], row["total"]) for row in run.rows("end")}
    assert last == dict.fromkeys(range(3), (70_000, 69_999 * 35_000))


def test_parquet_files_pass_to_a_sink_without_a_spark_job(job: Job, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "in" / "a.parquet")
    sink = FileSink(str(tmp_path / "out"), FileFormat.JSON_LINES)
    run = job(graph(vertex("v", FileSource(str(tmp_path / "in"), FileFormat.PARQUET), sink)))
    run.to_end()
    run.checkpoint(1)
    assert next((tmp_path / "out").glob("part-*.json")).read_text() == '{"x":1}\n{"x":2}\n{"x":3}\n'
    assert [counter.records_out for counter in run.programs["v", 0].counters()] == [3, 3]


def test_python_functions_and_foreach_batch(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    target = str(tmp_path / "seen")

    def double(frame: Any) -> Any:
        return frame.selectExpr("concat(value, value) AS twice", "TIMESTAMP_NTZ'2026-01-02 03:04:05' AS at")

    def seen(frame: Any, checkpoint_id: int) -> None:
        with open(target, "a") as file:
            kinds = [kind for _, kind in frame.dtypes]
            file.write(f"{checkpoint_id} {sorted(row.twice for row in frame.collect())} {kinds}\n")

    made = graph(
        vertex(
            "v",
            text(tmp_path / "f"),
            PythonTransform(cloudpickle.dumps(double)),
            ForeachBatchSink(cloudpickle.dumps(seen)),
        )
    )
    run = job(made)
    run.to_end()
    states = run.checkpoint(4, commit=False)
    assert not Path(target).exists()
    run.close()
    run.start(restore=states)
    assert Path(target).read_text() == "4 ['aa', 'bb'] ['string', 'timestamp_ntz']\n"


def test_small_state_in_memory_and_large_state_refused(job: Job, tmp_path: Path) -> None:
    expected = write_words(tmp_path / "in", lines=50)
    made = word_count(tmp_path)
    backend = StateBackend(backend=MemoryBackend(max_state_bytes=1_000_000))
    run = job(JobGraph(made.name, made.vertices, made.edges, state_backend=backend))
    run.batch("source")
    states = run.checkpoint(1)
    assert not list((tmp_path / "checkpoints").glob("*"))
    run.close()
    run.start(restore=states)
    run.to_end()
    run.checkpoint(2)
    assert final_counts(tmp_path) == dict(expected)
    small = StateBackend(backend=MemoryBackend(max_state_bytes=100))
    run = job(JobGraph(made.name, made.vertices, made.edges, state_backend=small))
    run.batch("source")
    with pytest.raises(SnapshotTooLarge):
        run.checkpoint(1)


def test_corrupt_state_names_the_file(job: Job, tmp_path: Path) -> None:
    write_words(tmp_path / "in", lines=10)
    run = job(word_count(tmp_path))
    run.to_end()
    states = run.checkpoint(1)
    run.close()
    path = next((tmp_path / "checkpoints" / "chk-1").glob("a1-count-0-count0.state"))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(StateUnreadable, match=r"a1-count-0-count0\.state is corrupt"):
        run.start(restore=states)


def failing(job: Job, made: JobGraph) -> str:
    with pytest.raises(UserError) as caught:
        job(made).to_end()
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_mistakes_are_reported_in_one_sentence_at_the_start(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n")
    source = text(tmp_path / "f")
    end = vertex("end", count_by("word"))
    by_word = (Edge("v", "end", HASH, ("word",)),)
    wrong_sql = failing(job, graph(vertex("v", source, sql("SELECT vlaue FROM input"))))
    assert (
        wrong_sql
        == "operator 'v1': unknown column 'vlaue'; the input has the columns: value (line 1, position 8: vlaue)"
    )
    second = failing(job, graph(vertex("v", source, WORDS, sql("SELECT value FROM input"))))
    assert (
        second == "operator 'v2': unknown column 'value'; the input has the columns: word (line 1, position 8: value)"
    )
    key = failing(job, graph(vertex("v", source), end, edges=by_word))
    assert key == "edge v -> end: unknown key column 'word'; the columns are: value"
    bad_sum = graph(vertex("v", source, WORDS), vertex("end", aggregate(("word",), s=(SUM, "nope"))), edges=by_word)
    unknown = "operator 'end0': aggregate 's' of 'nope': unknown column 'nope'; the input has the columns: word"
    assert failing(job, bad_sum) == unknown
    no_number = graph(
        vertex("v", source, WORDS), vertex("end", aggregate(("word",), s=(MAX, "array(word)"))), edges=by_word
    )
    assert "operator 'end0': aggregate 's'" in failing(job, no_number)
    nothing = failing(job, graph(vertex("v", text("/nowhere/x"))))
    assert "/nowhere/x does not exist" in nothing
    schema = failing(job, graph(vertex("v", FileSource(str(tmp_path / "f"), FileFormat.CSV, "a NOTATYPE"))))
    assert "the schema 'a NOTATYPE' is wrong" in schema
    for of_a_table in ("VARCHAR(10)", "char (5)"):
        ddl = f"a {of_a_table}, `b varchar(3)` INT COMMENT 'VARCHAR(4)'"
        refused = failing(job, graph(vertex("v", FileSource(str(tmp_path / "f"), FileFormat.CSV, ddl))))
        assert refused.endswith(f"is wrong: {of_a_table} is a type for table columns only; use STRING")
    missing = failing(job, graph(vertex("v", FileSource(str(tmp_path / "f"), FileFormat.CSV))))
    assert "CSV needs a schema" in missing


def test_inputs_of_a_union_must_agree(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\n")
    made = graph(
        vertex("left", text(tmp_path / "f")),
        vertex("right", text(tmp_path / "f"), sql("SELECT CAST(value AS INT) AS value FROM input")),
        vertex("end", ConsoleSink()),
        edges=(Edge("left", "end", Partitioning.FORWARD), Edge("right", "end", Partitioning.FORWARD)),
    )
    message = failing(job, made)
    assert "left sends (value string), right sends (value int32)" in message


def test_data_that_breaks_the_query_is_a_fault_of_the_data_that_names_where(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\nx\n")
    cast, more = sql("SELECT CAST(value AS INT) AS n FROM input"), sql("SELECT n + 1 AS n FROM input")
    for operators in ((cast,), (cast, more)):
        run = job(graph(vertex("v", text(tmp_path / "f"), *operators)))
        with pytest.raises(DataError) as caught:
            run.to_end()
        message = str(caught.value)
        assert message.startswith("operator 'v1': The value 'x' of the type \"STRING\" cannot be cast to \"INT\"")
        assert message.endswith("(column 'value')")
        assert "\n" not in message
        (place,) = [program.place() for program in run.programs.values() if program.place().operator_id]
        assert place == FailurePlace("v1", "value", (SplitRange("f", 0, 4),))
        run.close()
        run.start()  # with the plan of the attempt before
        with pytest.raises(DataError) as again:
            run.to_end()
        assert str(again.value) == message
        run.close()


class Sold(Exception):
    """One whose name says nothing of an error."""


def test_exceptions_of_a_python_function_over_records_are_transient_or_not(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\nx\n")

    def over_rows(raised: Exception) -> PythonTransform:
        def each(batches: Any) -> Any:
            for batch in batches:
                if batch.num_rows:
                    raise raised
                yield batch

        return PythonTransform(cloudpickle.dumps(lambda frame: frame.mapInArrow(each, frame.schema)))

    expected: list[tuple[Exception, type[Exception]]] = [
        (TimeoutError("no answer"), UserCodeFailed),
        (ValueError("bad"), DataError),
        (RuntimeError("no such rate"), DataError),
        (Exception("no such city"), DataError),
        (Sold("out"), UserCodeFailed),  # of a library, it may be
    ]
    for raised, kind in expected:
        run = job(graph(vertex("v", text(tmp_path / "f"), over_rows(raised))))
        with pytest.raises(kind, match=rf"operator 'v1': the Python function raised (\S+\.)?{type(raised).__name__}: "):
            run.to_end()
        run.close()


def test_the_operator_that_fails_is_named_and_not_the_last_of_its_spark_job(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\nx\n")

    def python(error: Exception | None = None) -> PythonTransform:
        def each(batches: Any) -> Any:
            for batch in batches:
                if batch.num_rows and error is not None:
                    raise error
                yield batch

        return PythonTransform(cloudpickle.dumps(lambda frame: frame.mapInArrow(each, frame.schema)))

    fine = sql("SELECT value FROM input WHERE value <> 'y'")
    raising = sql("SELECT CAST(raise_error('no') AS STRING) AS value FROM input")
    cases: list[tuple[tuple[Any, ...], type[Exception], str, str]] = [
        ((python(KeyError("n")), fine, fine), DataError, "operator 'v1': the Python function raised KeyError", "v1"),
        ((fine, python(KeyError("n")), python()), DataError, "operator 'v2': the Python function raised Key", "v2"),
        ((python(), python(KeyError("n")), fine), DataError, "operator 'v2': the Python function raised Key", "v2"),
        ((fine, fine, python(KeyError("n"))), DataError, "operator 'v3': the Python function raised Key", "v3"),
        ((python(), raising, fine), DataError, "operator 'v2': no", "v2"),
        ((python(Sold("out")), fine), UserCodeFailed, r"operator 'v1': the Python function raised \S*Sold", ""),
        (
            (python(), fine, python(Sold("out"))),
            UserCodeFailed,
            r"operator 'v1', operator 'v3': the Python function raised \S*Sold",
            "",
        ),
    ]
    for operators, kind, message, place in cases:
        run = job(graph(vertex("v", text(tmp_path / "f"), *operators)))
        with pytest.raises(kind, match=f"^{message}"):
            run.to_end()
        (program,) = run.programs.values()
        assert program.place().operator_id == place
        run.close()


def test_an_error_of_an_rdd_over_records_is_reported_like_that_of_a_frame(engine: SparkEngine) -> None:
    """PySpark lets the JVM's exception through as it is there."""
    records = engine._session.sparkContext.parallelize([0], 1)
    message = "operator 'o': the Python function raised ZeroDivisionError"
    with pytest.raises(DataError, match=message), explained("operator 'o'", on_records=True):
        records.map(lambda record: 1 // record).count()


def empty_is_nothing(frame: Any) -> Any:
    return frame.filter("false") if frame.isEmpty() else frame


def counted(frame: Any) -> Any:
    frame.createOrReplaceTempView("mine")
    return frame if frame.sparkSession.sql("SELECT count(*) AS n FROM mine").collect()[0].n else frame.filter("false")


def caught(frame: Any) -> Any:
    try:
        frame.selectExpr("value AS v").toPandas()
    except Exception:
        return frame
    return frame.filter("false")


def written(frame: Any) -> Any:
    frame.write.mode("overwrite").parquet("nowhere")
    return frame


def spread(frame: Any) -> Any:
    return frame.groupBy("value").pivot("value").count()


def empty_rdd(frame: Any) -> Any:
    return frame.filter("false") if frame.rdd.isEmpty() else frame


def shaped_by_itself(frame: Any) -> Any:
    return frame.rdd.map(lambda row: (row.value,)).toDF(["value"])


@pytest.mark.parametrize(
    ("function", "action"),
    [
        (spread, "an action"),
        (empty_rdd, "an action"),
        (shaped_by_itself, "an action"),
        (lambda frame: frame.crosstab("value", "value"), r"crosstab()"),
        (lambda frame: frame.stat.corr("value", "value"), r"corr()"),
        (empty_is_nothing, "isEmpty()"),
        (counted, "collect()"),
        (caught, "toPandas()"),
        (written, "write"),
    ],
)
def test_an_action_in_a_planning_function_is_refused(
    job: Job, tmp_path: Path, function: Callable[[Any], Any], action: str
) -> None:
    (tmp_path / "f").write_text("a\n")
    by_value = PythonTransform(cloudpickle.dumps(function))
    message = failing(job, graph(vertex("v", text(tmp_path / "f"), by_value)))
    assert message.startswith("operator 'v1': the function of a transform makes a plan")
    assert f"cannot use {action}" in message


def test_a_cache_in_a_planning_function_changes_nothing(job: Job, tmp_path: Path) -> None:
    """Of the input, that is: it would answer for all later batches."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(f"{name}\n")

    def cached(frame: Any) -> Any:
        return frame.cache().selectExpr("upper(value) AS value").persist()

    by_value = PythonTransform(cloudpickle.dumps(cached))
    run = job(
        graph(
            vertex("v", text(tmp_path, include="[abc]"), by_value),
            vertex("end", sql("SELECT * FROM input")),
            edges=(Edge("v", "end", Partitioning.REBALANCE),),
        )
    )
    run.fix_batch_size("v", 1)
    run.to_end()
    assert sorted(row["value"] for row in run.rows("end")) == ["A", "B", "C"]


def test_an_rdd_of_the_input_is_one_of_each_batch(job: Job, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}\n")

    def mapped(frame: Any) -> Any:
        return frame.rdd.map(lambda row: (row.value.upper(),)).toDF("value STRING")

    by_value = PythonTransform(cloudpickle.dumps(mapped))
    run = job(
        graph(
            vertex("v", text(tmp_path, include="[ab]"), by_value),
            vertex("end", sql("SELECT * FROM input")),
            edges=(Edge("v", "end", Partitioning.REBALANCE),),
        )
    )
    run.fix_batch_size("v", 1)
    run.to_end()
    assert sorted(row["value"] for row in run.rows("end")) == ["A", "B"]


def test_an_action_on_another_frame_is_the_authors_own_affair(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n")
    (tmp_path / "words").write_text("b\n")
    path = str(tmp_path / "words")

    def looked_up(frame: Any) -> Any:
        (found,) = frame.sparkSession.read.text(path).collect()
        return frame.filter(f"value <> '{found.value}'")

    run = job(graph(vertex("v", text(tmp_path / "f"), PythonTransform(cloudpickle.dumps(looked_up)))))
    run.to_end()
    counters = run.programs["v", 0].counters()[1]
    assert (counters.records_in, counters.records_out) == (2, 1)


def test_a_planning_function_that_is_wrong_is_a_user_error(job: Job, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("1\nx\n")
    bad = PythonTransform(cloudpickle.dumps(lambda frame: frame.nope()))
    assert "operator 'v1'" in failing(job, graph(vertex("v", text(tmp_path / "f"), bad)))
    none = PythonTransform(cloudpickle.dumps(lambda _: None))
    assert "returned a NoneType, not a DataFrame" in failing(job, graph(vertex("v", text(tmp_path / "f"), none)))
    junk = PythonTransform(b"junk")
    assert "cannot be loaded" in failing(job, graph(vertex("v", text(tmp_path / "f"), junk)))
