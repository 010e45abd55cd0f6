"""Which chains make the same of the same records in other micro-batches, as far as Spark knows."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    AttemptId,
    Edge,
    EventTime,
    FileFormat,
    FileSource,
    GeneratorSource,
    JobGraph,
    OnError,
    PythonTransform,
    SubtaskId,
    TaskManagerFailover,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import Form, LeafSpec
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.reproducible import irreproducible, varying
from lockgate_taskmanager.task.program import Irreproducible, ProgramContext
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from .graphs import HASH, count_by, graph, sql, text, vertex

pytestmark = [pytest.mark.integration, pytest.mark.first]

PART = TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
MOST_FIELDS = "spark.sql.debug.maxToStringFields"
CONNECT = "LOCKGATE_TEST_SPARK" in os.environ
STATIC = "(VALUES ('a'), ('c')) AS t(x)"
SOME = f"(SELECT x FROM (SELECT * FROM {STATIC}) TABLESAMPLE (50 PERCENT))"
EACH_ALONE = [
    "SELECT upper(value) AS v FROM input WHERE value <> 'z'",
    "SELECT value FROM input ORDER BY value",
    "SELECT explode(split(value, '')) AS v FROM input",
    "SELECT v FROM input LATERAL VIEW explode(split(value, '')) AS v",
    "SELECT value FROM input UNION ALL SELECT concat(value, '2') FROM input",
    f"SELECT i.value FROM input i JOIN {STATIC} ON i.value = t.x",
    f"SELECT i.value FROM {STATIC} JOIN input i ON i.value = t.x",
    f"SELECT i.value, t.x FROM input i LEFT JOIN {STATIC} ON i.value = t.x",
    f"SELECT i.value FROM input i LEFT ANTI JOIN {STATIC} ON i.value = t.x",
    f"SELECT i.value FROM input i CROSS JOIN (SELECT count(*) AS n FROM {STATIC})",
    f"SELECT value FROM input WHERE value IN (SELECT max(x) FROM {STATIC})",
    "WITH w AS (SELECT value FROM input) SELECT value FROM w",
    "WITH w AS (SELECT value FROM input), u AS (SELECT upper(value) AS v FROM w)"
    " SELECT v FROM u UNION ALL SELECT * FROM w",
    "SELECT /*+ REPARTITION(3) */ value FROM input",
    "SELECT /*+ REBALANCE */ value FROM input",
    "SELECT v FROM input, LATERAL explode(split(value, '')) AS t(v)",
    f"SELECT value FROM (SELECT * FROM input UNION ALL SELECT * FROM input) JOIN {STATIC} ON value = x",
    "SELECT CAST(today AS DATE) AS d FROM (SELECT value AS today FROM input)",
    "SELECT concat('Dear\\nSir', value) AS v, 'Limit\\nto' AS w FROM input",
    "SELECT unix_timestamp(value) AS t FROM input",
]
TOGETHER = {
    "SELECT value FROM input GROUP BY value": "Aggregate",
    "SELECT array_agg(value) AS v FROM input": "Aggregate",
    "SELECT DISTINCT value FROM input": "Distinct",
    "SELECT concat(value, row_number() OVER (ORDER BY value)) AS v FROM input": "Window",
    "SELECT value FROM input LIMIT 1": "GlobalLimit",
    "SELECT value FROM input TABLESAMPLE (50 PERCENT)": "Sample",
    "SELECT value FROM input INTERSECT SELECT x FROM (VALUES ('a')) AS t(x)": "Intersect",
    "SELECT a.value FROM input a JOIN input b ON a.value = b.value": "Join",
    f"SELECT x FROM {STATIC} LEFT JOIN input i ON i.value = t.x": "Join",
    f"SELECT x FROM input i RIGHT JOIN {STATIC} ON i.value = t.x": "Join",
    f"SELECT x FROM input i FULL JOIN {STATIC} ON i.value = t.x": "Join",
    f"SELECT x FROM {STATIC} LEFT ANTI JOIN input i ON i.value = t.x": "Join",
    f"SELECT value FROM input UNION ALL SELECT x FROM {STATIC}": "Union",
    "SELECT value FROM input WHERE value IN (SELECT upper(value) FROM input)": "a subquery of Filter",
    f"SELECT x FROM {STATIC} WHERE x IN (SELECT value FROM input)": "a subquery of Filter",
    "SELECT concat(value, (SELECT count(*) FROM input)) AS v FROM input": "a subquery of Project",
    "WITH w AS (SELECT value FROM input) SELECT a.value FROM w a JOIN w b ON a.value = b.value": "Join",
    "WITH w AS (SELECT max(value) AS v FROM input) SELECT v FROM w": "Aggregate",
    f"SELECT value FROM input JOIN {SOME} ON x = value": "Sample",
    f"SELECT value FROM input WHERE value IN (SELECT x FROM {STATIC} LIMIT 1)": "GlobalLimit",
}
NEW_EACH_TIME = {
    "rand()": "rand()",
    "cast('now' AS TIMESTAMP)": "'now' as a time",
    "(now() > ' Tomorrow')": "now()",
    "(timestamp(value) > ' Tomorrow')": "'tomorrow' as a time",
    "to_date('today')": "'today' as a time",
    "try_cast('yesterday' AS DATE)": "'yesterday' as a time",
    "rand(7)": "rand()",
    "uuid()": "uuid()",
    "shuffle(array(1, 2))": "shuffle()",
    "reflect('java.util.UUID', 'randomUUID')": "reflect()",
    "monotonically_increasing_id()": "monotonically_increasing_id()",
    "now()": "now()",
    "current_timestamp": "current_timestamp()",
    "unix_timestamp()": "current_timestamp()",
    "curdate()": "current_date()",
    "current_date": "current_date()",
    "current_time": "current_time()",
    "localtimestamp()": "localtimestamp()",
}


def planned(engine: SparkEngine, query: str) -> Plan:
    """Over lines of text."""

    def build(frame: Any) -> Any:
        frame.createOrReplaceTempView("input")
        return frame.sparkSession.sql(query)

    return Plan(engine._new_leaf(engine._session, LeafSpec(Form.TEXT)), build, "test")


@pytest.mark.parametrize("query", EACH_ALONE)
def test_a_query_that_treats_each_record_alone_gives_the_same_again(engine: SparkEngine, query: str) -> None:
    plan = planned(engine, query)
    assert irreproducible(plan.frame) == ""
    plan.close()


@pytest.mark.parametrize(("query", "why"), TOGETHER.items())
def test_a_query_that_sees_several_records_at_once_does_not(engine: SparkEngine, query: str, why: str) -> None:
    plan = planned(engine, query)
    assert irreproducible(plan.frame) == f"combines the records of a micro-batch ({why} in Spark's plan)"
    plan.close()


@pytest.mark.parametrize(("expression", "name"), NEW_EACH_TIME.items())
def test_time_and_chance_do_not(engine: SparkEngine, expression: str, name: str) -> None:
    plan = planned(engine, f"SELECT value FROM (SELECT value, {expression} AS x FROM input) WHERE x IS NOT NULL")
    assert varying(plan.frame) == f"uses {name}"
    assert not plan.repeatable
    plan.close()


def test_nor_does_what_is_not_made_of_the_input(engine: SparkEngine) -> None:
    plan = planned(engine, f"SELECT x FROM {STATIC}")
    assert irreproducible(plan.frame) == "puts out records that do not come from its input"
    plan.close()


def test_a_table_that_looks_like_the_input_is_another_one(engine: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "stop.txt").write_text("a\n")
    engine._session.read.text(str(tmp_path / "stop.txt")).createOrReplaceTempView("stop")
    alone = planned(engine, "SELECT input.value FROM input LEFT ANTI JOIN stop ON input.value = stop.value")
    added = planned(engine, "SELECT value FROM input UNION ALL SELECT value FROM stop")
    assert (irreproducible(alone.frame), "Union" in irreproducible(added.frame)) == ("", True)
    alone.close()
    added.close()


def test_what_is_encrypted_differs_each_time_although_its_plan_is_executed_again(engine: SparkEngine) -> None:
    plan = planned(engine, "SELECT aes_encrypt(value, '0123456789abcdef') AS v FROM input")
    assert (irreproducible(plan.frame), varying(plan.frame)) == ("uses aes_encrypt()", "")
    plan.close()


def test_a_plan_too_deep_to_be_read_is_not_understood(engine: SparkEngine) -> None:
    def deep(frame: Any) -> Any:
        for number in range(201):
            frame = frame.selectExpr("value").where(f"value <> '{number}'")
        return frame

    plan = Plan(engine._new_leaf(engine._session, LeafSpec(Form.TEXT)), deep, "test")
    assert irreproducible(plan.frame) == "has a plan that is not understood"
    plan.close()


def test_a_plan_whose_text_is_cut_is_not_understood(engine: SparkEngine) -> None:
    columns = ", ".join(f"concat(value, '{number}') AS c{number}" for number in range(9))
    plan = planned(engine, f"SELECT {columns} FROM input")
    session = engine._session if CONNECT else SparkSession.active()  # another test's, perhaps: Spark goes by this one
    kept = session.conf.get(MOST_FIELDS)
    session.conf.set(MOST_FIELDS, "3")
    try:
        assert irreproducible(plan.frame) == "has a plan that is too long to be read"
    finally:
        session.conf.set(MOST_FIELDS, kept)
    plan.close()


def test_one_of_many_columns_is_enough(engine: SparkEngine) -> None:
    columns = ", ".join(f"concat(value, '{number}') AS c{number}" for number in range(100))
    plan = planned(engine, f"SELECT {columns}, now() AS t FROM input")
    assert varying(plan.frame) == "uses now()"
    plan.close()


@pytest.mark.skipif(CONNECT, reason="a plan of Spark Connect does not show it")
def test_a_function_whose_author_calls_it_random_is_taken_at_its_word(engine: SparkEngine) -> None:
    chance = sf.udf(lambda value: value, "STRING").asNondeterministic()
    leaf = engine._new_leaf(engine._session, LeafSpec(Form.TEXT))
    plan = Plan(leaf, lambda frame: frame.select(chance("value").alias("v")), "test")
    assert varying(plan.frame) == "uses a function that is not deterministic"
    plan.close()


def job_of(folder: Path, *kinds: Any, window: Window | None = None, source: Any = None) -> JobGraph:
    """A source with transforms behind it, a count by word, and restarts in part."""
    (folder / "in").write_text("to be\nor not\n")
    count = replace(count_by("word"), window=window)
    made = graph(
        vertex("source", source or text(folder / "in"), *kinds, parallelism=2),
        vertex("count", count, parallelism=2),
        edges=(Edge("source", "count", HASH, ("word",)),),
    )
    return replace(made, task_manager_failover=PART)


def opened(engine: SparkEngine, job: JobGraph, folder: Path, **changes: Any) -> Any:
    """The program of its source, with its splits."""
    subtask = SubtaskId(AttemptId("job", "run", 1), "source", 0)
    program = engine.build(ProgramContext(subtask, job, str(folder / "state"), **changes))
    try:
        program.open()
        program.assign(*engine.discover(job, "source", ()))
        program.poll()
    finally:
        program.close()
    return program


def tagged(frame: Any) -> Any:
    """With a column of chance."""
    return frame.withColumn("tag", sf.rand())


def alone(frame: Any) -> Any:
    """Each word alone."""
    return frame.selectExpr("explode(split(value, ' ')) AS word")


def python(function: Callable[[Any], Any]) -> PythonTransform:
    return PythonTransform(cloudpickle.dumps(function))


SPLIT = sql("SELECT explode(split(value, ' ')) AS word FROM input")
ONCE = sql("SELECT DISTINCT word FROM input")
DISTINCT = "operator 'source2' in front of key_by combines the records of a micro-batch (Distinct in Spark's plan)"


def test_the_operator_is_named(engine: SparkEngine, tmp_path: Path) -> None:
    def why(*kinds: Any, window: Window | None = None) -> str:
        return str(opened(engine, job_of(tmp_path, *kinds, window=window), tmp_path).irreproducible)

    assert why(SPLIT) == why(python(alone)) == ""
    assert why(SPLIT, ONCE) == DISTINCT
    assert why(python(tagged), SPLIT) == "operator 'source1' in front of key_by uses rand()"
    since = sql("SELECT * FROM input WHERE DATE'today' > DATE'2026-01-01'")
    assert not Plan(
        engine._new_leaf(engine._session, LeafSpec(Form.TEXT)), lambda f: f, "x", sql=since.query
    ).repeatable
    assert why(since, SPLIT) == "operator 'source1' in front of key_by uses 'today', perhaps as a time"
    by_time = Window(TumblingWindow(1_000), "now()")
    assert why(SPLIT, window=by_time) == "the operator behind the exchange uses now()"


def test_a_plan_that_has_been_executed_is_judged_as_before(engine: SparkEngine, tmp_path: Path) -> None:
    """The next attempt takes it over."""
    spread = sql("SELECT /*+ REPARTITION(3) */ value FROM input")  # planned anew for each micro-batch
    for _ in range(2):
        assert opened(engine, job_of(tmp_path, spread, SPLIT), tmp_path).irreproducible == ""


CSV = FileSource("", FileFormat.CSV, "n BIGINT, word STRING, at BIGINT")
SOURCES: dict[str, tuple[Any, str]] = {
    "CSV": (CSV, "1,a,5\n"),
    "CSV, malformed lines dropped": (replace(CSV, options={"mode": "DROPMALFORMED"}), "1,a,5\n"),
    "JSON": (replace(CSV, format=FileFormat.JSON_LINES), '{"n": 1, "word": "a", "at": 5}\n'),
    "generator": (GeneratorSource(2, 10), ""),
}


@pytest.mark.parametrize(("source", "content"), SOURCES.values(), ids=SOURCES)
def test_sources_and_event_time_are_no_reason(engine: SparkEngine, tmp_path: Path, source: Any, content: str) -> None:
    if isinstance(source, FileSource):
        (tmp_path / "rows").write_text(content)
        source, query = replace(source, path=str(tmp_path / "rows")), "SELECT word, at FROM input"
    else:
        query = "SELECT CAST(sequence AS STRING) AS word, sequence AS at FROM input"
    job = job_of(tmp_path, sql(query), EventTime("at", out_of_orderness_ms=10), source=source)
    assert opened(engine, job, tmp_path).irreproducible == ""


def test_dead_letters_count_as_well(engine: SparkEngine, tmp_path: Path) -> None:
    job = job_of(tmp_path, SPLIT)
    source, count = job.vertices
    spared = replace(source.operators[1], on_error=OnError.DEAD_LETTER, dead_letters="bad")
    window = Window(TumblingWindow(1_000), "now()")
    letters = vertex("letters", replace(count_by("operator"), window=window), parallelism=2)
    edges = (*job.edges, Edge("source", "letters", HASH, ("operator",), side_output="bad"))
    source = replace(source, operators=(source.operators[0], spared))
    job = replace(job, vertices=(source, count, letters), edges=edges)
    assert opened(engine, job, tmp_path).irreproducible == "the operator behind the exchange uses now()"


def test_only_where_others_run_on(engine: SparkEngine, tmp_path: Path) -> None:
    job = replace(job_of(tmp_path, SPLIT, ONCE), task_manager_failover=TaskManagerFailover(0))
    assert opened(engine, job, tmp_path).irreproducible == ""


def test_it_does_not_start_beside_what_has_had_other_results(engine: SparkEngine, tmp_path: Path) -> None:
    job = job_of(tmp_path, SPLIT, ONCE)
    (split,), _ = engine.discover(job, "source", ())
    received = ({split.split: 6},)
    with pytest.raises(Irreproducible, match="had of this subtask cannot be made again: operator 'source2'"):
        opened(engine, job, tmp_path, received=received)
    assert opened(engine, job, tmp_path, received=({},)).irreproducible == DISTINCT
