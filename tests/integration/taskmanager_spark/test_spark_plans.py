"""A plan executed again gives what a new plan would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.actions import is_unread
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.framing import csv_options
from lockgate_taskmanager.spark.leaf import Content, DataFrame, Form, LeafSpec, SlotLeaf, TableLeaf
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.slot_files import SlotFolder
from lockgate_taskmanager.task.program import DataError, UserError

pytestmark = [pytest.mark.integration, pytest.mark.first]

TABLE = pa.schema([("a", pa.int64()), ("s", pa.string()), ("t", pa.timestamp("us", "UTC")), ("d", pa.decimal128(9, 2))])
_BYTES = "concat(X'ff', CAST(value AS BINARY))"
Make = Callable[[LeafSpec], Any]


@pytest.fixture(params=["slot", "table"])
def leaf(request: pytest.FixtureRequest, engine: SparkEngine, tmp_path: Path) -> Iterator[Make]:
    session = engine._session.newSession()
    made: list[Any] = []

    def make(spec: LeafSpec) -> Any:
        path = str(tmp_path / f"{len(made)}.slot")
        made.append(SlotLeaf(session, spec, path) if request.param == "slot" else TableLeaf(session, spec))
        return made[-1]

    yield make
    for item in made:
        item.close()
    assert not list(tmp_path.iterdir())


def table(*rows: tuple[Any, ...]) -> pa.Table:
    return pa.table([[r[i] for r in rows] for i in range(4)], schema=TABLE)


CASES: list[tuple[LeafSpec, list[tuple[Content, list[tuple[Any, ...]]]]]] = [
    (
        LeafSpec(Form.TEXT),
        [
            ([b"a\nb\n"], [("a",), ("b",)]),
            ([b"long line " * 50 + b"\n"], [("long line " * 50,)]),
            ([b"x\r\n", b"\n", b"\xc3\xa9\n"], [("x",), ("",), ("é",)]),
            ([b"a\r\n", b"b\r\n"], [("a",), ("b",)]),
            ([b"\r\n\r\n"], [("",), ("",)]),
            ([b"a\r\r\n"], [("a",), ("",)]),
            ([], []),
            ([b"again\n"], [("again",)]),
        ],
    ),
    (
        LeafSpec(Form.CSV, ddl="a INT, s STRING"),
        [
            ([b"1,x\n2,\n"], [(1, "x"), (2, None)]),
            ([b'3,"q, r"\n', b"4,z\r\n"], [(3, "q, r"), (4, "z")]),
            ([b"\t\n \t \r\n\r\n5,y\n"], [(5, "y")]),
        ],
    ),
    (LeafSpec(Form.CSV, ddl="a INT, s STRING", options=(("sep", ";"),)), [([b"1;x\n"], [(1, "x")])] * 2),
    (
        LeafSpec(Form.CSV, ddl="a INT, s STRING", options=(("comment", "#"),)),
        [([b"#0,c\n1,#x\n", b"#\n2,y\n"], [(1, "#x"), (2, "y")])],
    ),
    (
        LeafSpec(
            Form.CSV, ddl="a INT, s STRING", options=tuple(csv_options({"multiLine": "TRUE", "comment": "#"}).items())
        ),
        [
            ([b'1,5" pipe\n', b'2,"a\nb"\n3,"x"y\n'], [(1, '5" pipe'), (2, "a\nb"), (3, '"x"y')]),
            ([b'#"\n4,"a""b\n', b'5,"#\n#"\n6,"\\"\n"\n'], [(4, '"a""b'), (5, "#\n#"), (6, '"\n')]),
        ],
    ),
    (
        LeafSpec(Form.JSON, ddl="a INT, s STRING"),
        [([b'{"a":1,"s":"x"}\n\n{"s":"y"}\n'], [(1, "x"), (None, "y")]), ([b'\t\n \r\n{"a":7}\n'], [(7, None)])],
    ),
    (
        LeafSpec(Form.RANGES),
        [([b"0,5,7\n1,0,0\n"], [(0, 5), (0, 6), (0, 7), (1, 0)]), ([b"0,8,8\n"], [(0, 8)])],
    ),
    (
        LeafSpec(Form.TABLE, table=TABLE),
        [
            (table((1, "x", 5, 0), (None, None, None, None)), [(1, "x"), (None, None)]),
            (table(*[(i, "many", i, 1) for i in range(5000)]), [(i, "many") for i in range(5000)]),
            (TABLE.empty_table(), []),
            (table((2, "y", 5, 0)), [(2, "y")]),
        ],
    ),
]

IDS = ["text", "csv", "csv;", "csv#", "quoted", "json", "ranges", "table"]


@pytest.mark.parametrize(("spec", "loads"), CASES, ids=IDS)
def test_every_load_is_read_whole_and_alone(leaf: Make, spec: LeafSpec, loads: list[Any]) -> None:
    made = leaf(spec)
    columns = ["a", "s"] if spec.form is Form.TABLE else ["*"]
    plan = Plan(made, lambda frame: frame.selectExpr(*columns), "test")
    assert plan.repeatable == made.repeatable
    for content, expected in loads:
        found = plan.run(content)
        assert [tuple(row.values()) for row in found.to_pylist()] == expected
        assert found.schema == plan.schema


@pytest.mark.parametrize("spec", [spec for spec, _ in CASES[:1]], ids=["text"])
def test_counting_rows_reads_no_column_and_still_counts_the_new_ones(leaf: Make, spec: LeafSpec) -> None:
    plan = Plan(leaf(spec), lambda frame: frame.groupBy().count(), "test")
    counts = [plan.run([b"x\n" * n]).column("count")[0].as_py() for n in (3, 1, 0, 5)]
    assert counts == [3, 1, 0, 5]


def test_a_parquet_slot_counts_rows_too(leaf: Make) -> None:
    plan = Plan(leaf(LeafSpec(Form.TABLE, table=TABLE)), lambda frame: frame.groupBy().count(), "test")
    counts = [plan.run(table(*[(1, "", 1, 1)] * n)).column("count")[0].as_py() for n in (3, 1, 5)]
    assert counts == [3, 1, 5]


def test_all_types_round_trip_unchanged(leaf: Make) -> None:
    kinds = {
        "b": pa.array([True, None]),
        "i8": pa.array([1, None], pa.int8()),
        "i16": pa.array([1, None], pa.int16()),
        "i32": pa.array([1, None], pa.int32()),
        "f": pa.array([1.5, None], pa.float32()),
        "g": pa.array([1.5, None]),
        "bin": pa.array([b"\x00", None]),
        "date": pa.array([1, None], pa.date32()),
        "ntz": pa.array([1, None], pa.timestamp("us")),
        "ltz": pa.array([-1, None], pa.timestamp("us", "UTC")),
        "dec": pa.array([1, None], pa.decimal128(38, 10)),
        "list": pa.array([[1, None], None]),
        "struct": pa.array([{"x": 1, "y": "z"}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
    given = pa.table(kinds)
    plan = Plan(leaf(LeafSpec(Form.TABLE, table=given.schema)), lambda frame: frame, "test")
    for _ in range(2):
        assert plan.run(given).to_pylist() == given.to_pylist()


REPEATED = [
    "SELECT upper(value) AS v FROM input WHERE value <> 'z'",
    "SELECT value AS v FROM input ORDER BY value DESC",
    "SELECT value AS v FROM input GROUP BY value HAVING count(*) > 1",
    "SELECT explode(split(value, '')) AS v FROM input",
    "SELECT value AS v FROM input UNION ALL SELECT concat(value, '2') FROM input",
    "SELECT DISTINCT value AS v FROM input",
    "SELECT v FROM (SELECT value AS v FROM input UNION ALL SELECT value FROM input) GROUP BY v",
    "SELECT concat(value, row_number() OVER (PARTITION BY value ORDER BY value)) AS v FROM input",
]
MADE_ANEW = [
    "SELECT i.value AS v FROM input i JOIN (VALUES ('a'), ('c')) AS t(x) ON i.value = t.x",
    "SELECT value AS v FROM input WHERE value IN (SELECT max(value) FROM input)",
    "SELECT value AS v FROM input WHERE value = (SELECT max(value) FROM input)",
    "SELECT concat(value, (SELECT count(*) FROM input)) AS v FROM input",
    "SELECT value AS v FROM input LIMIT 1",
    "SELECT value AS v FROM input ORDER BY value LIMIT 1",
    "SELECT /*+ REPARTITION(3) */ value AS v FROM input",
    "WITH w AS (SELECT value, rand() AS r FROM input) SELECT value AS v FROM w WHERE r >= 0",
]


@pytest.mark.parametrize(("query", "repeatable"), [(q, True) for q in REPEATED] + [(q, False) for q in MADE_ANEW])
def test_queries_give_the_answer_of_the_batch_they_were_given(
    engine: SparkEngine, tmp_path: Path, query: str, repeatable: bool
) -> None:
    session = engine._session.newSession()

    def build(frame: Any) -> Any:
        frame.createOrReplaceTempView("input")
        return frame.sparkSession.sql(query)

    plan = Plan(SlotLeaf(session, LeafSpec(Form.TEXT), str(tmp_path / "slot")), build, "test")
    assert plan.repeatable == repeatable
    for lines in (["a", "b", "b"], ["c"], ["b", "a", "d", "d", "z"], []):
        session.createDataFrame([(line,) for line in lines], "value STRING").coalesce(1).createOrReplaceTempView(
            "input"
        )
        expected = sorted(row.v for row in session.sql(query).collect())
        assert sorted(plan.run([f"{line}\n".encode() for line in lines]).column("v").to_pylist()) == expected
    plan.close()


@pytest.mark.parametrize("expression", ["current_timestamp()", "now()", "rand()", "uuid()", "localtimestamp()"])
def test_time_and_chance_are_not_frozen(engine: SparkEngine, tmp_path: Path, expression: str) -> None:
    session = engine._session.newSession()
    leaf = SlotLeaf(session, LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    plan = Plan(leaf, lambda frame: frame.selectExpr(f"{expression} AS v"), "test")
    assert not plan.repeatable
    first = plan.run([b"x\n"]).column("v")[0].as_py()
    assert plan.run([b"x\n"]).column("v")[0].as_py() != first
    plan.close()


def test_a_cache_of_the_input_is_refused_and_one_of_another_table_is_not(engine: SparkEngine, tmp_path: Path) -> None:
    """Spark takes the next batch for the one before, which has the same plan, and answers out of the cache."""
    session = engine._session.newSession()
    refused, leaf = (SlotLeaf(session, LeafSpec(Form.TEXT), str(tmp_path / f"{n}.slot")) for n in range(2))
    kept: list[Any] = []

    def cached(frame: Any) -> Any:
        kept.append(frame.selectExpr("value AS v").cache())
        return kept[-1].selectExpr("upper(v) AS v")

    with pytest.raises(UserError, match="operator 'o': it caches records of its input"):
        Plan(refused, cached, "operator 'o'")
    refused.close()
    names = session.createDataFrame([("a", "one"), ("b", "two")], "value STRING, name STRING").cache()
    plan = Plan(leaf, lambda frame: frame.join(names, "value").select("name"), "test")
    assert not plan.repeatable
    for text, name in (("a", "one"), ("b", "two"), ("a", "one")):
        assert plan.run([f"{text}\n".encode()]).column("name").to_pylist() == [name]
    plan.close()
    for frame in (*kept, names):
        frame.unpersist()


@pytest.mark.parametrize("function", ["input_file_name()", "input_file_block_start()", "input_file_block_length()"])
def test_the_file_of_a_batch_is_not_exposed(engine: SparkEngine, tmp_path: Path, function: str) -> None:
    leaf = SlotLeaf(engine._session.newSession(), LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    with pytest.raises(
        UserError, match=r"operator 'o': input_file_name\(\) and similar functions return an internal file"
    ):
        Plan(leaf, lambda frame: frame.selectExpr("value", f"{function} AS f"), "operator 'o'")
    leaf.close()


@pytest.mark.parametrize(
    "build",
    [
        lambda frame: frame.selectExpr("value", "_metadata.file_path"),
        lambda frame: frame.where("_metadata.file_size > 0"),
        lambda frame: frame.selectExpr("value", "_metadata AS about").where("about.file_name <> ''").select("value"),
    ],
)
def test_what_spark_knows_of_the_file_of_a_batch_is_not_exposed(
    engine: SparkEngine, tmp_path: Path, build: Callable[[DataFrame], DataFrame]
) -> None:
    leaf = SlotLeaf(engine._session.newSession(), LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    with pytest.raises(UserError, match="operator 'o': the column _metadata describes an internal file"):
        Plan(leaf, build, "operator 'o'")
    leaf.close()


def test_other_files_may_be_described_and_a_column_may_be_called_so(engine: SparkEngine, tmp_path: Path) -> None:
    session = engine._session.newSession()
    session.createDataFrame([("a",)], "value STRING").write.parquet(str(tmp_path / "names"))
    names = session.read.parquet(str(tmp_path / "names")).selectExpr("value", "_metadata.file_path AS place")
    leaf = SlotLeaf(session, LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    plan = Plan(leaf, lambda frame: frame.join(names, "value").selectExpr("place AS _metadata"), "test")
    (place,) = plan.run([b"a\n"]).column("_metadata").to_pylist()
    assert str(tmp_path / "names") in place
    plan.close()
    schema = pa.schema([("value", pa.string()), ("_metadata", pa.string())])
    table = SlotLeaf(session, LeafSpec(Form.TABLE, table=schema), str(tmp_path / "other"))
    own = Plan(table, lambda frame: frame.select("_metadata"), "test")
    assert own.run(pa.table([["a"], ["mine"]], schema=schema)).to_pylist() == [{"_metadata": "mine"}]
    own.close()


def test_a_python_function_per_batch_is_executed_again(engine: SparkEngine, tmp_path: Path) -> None:
    leaf = SlotLeaf(engine._session.newSession(), LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    plan = Plan(leaf, lambda frame: frame.mapInArrow(lambda batches: batches, "value STRING"), "test")
    assert plan.repeatable
    for text in ("one", "two"):
        assert plan.run([f"{text}\n".encode()]).column("value").to_pylist() == [text]
    plan.close()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT NULL AS n FROM input", "column 'n' has no type"),
        ("SELECT array() AS a FROM input", r"column 'a' is of type array<void>, and its elements: it has no type"),
        ("SELECT named_struct() AS s FROM input", "column 's' is a struct without fields"),
        ("SELECT try_parse_json(value) AS v FROM input", r"column 'v' is of type variant.*to_json"),
        ("SELECT make_ym_interval(1) AS y FROM input", "column 'y' is of type interval year to month"),
        ("SELECT value, value FROM input", "two columns are named 'value'"),
        ("SELECT value AS a, value AS A FROM input", "two columns are named 'a' and 'A'"),
    ],
)
def test_results_that_cannot_leave_are_refused(engine: SparkEngine, tmp_path: Path, query: str, message: str) -> None:
    def build(frame: Any) -> Any:
        frame.createOrReplaceTempView("input")
        return frame.sparkSession.sql(query)

    leaf = SlotLeaf(engine._session.newSession(), LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    with pytest.raises(UserError, match=message):
        Plan(leaf, build, "test")
    leaf.close()


def test_text_that_is_not_utf8_is_reported_with_operator_and_column(leaf: Make) -> None:
    plan = Plan(
        leaf(LeafSpec(Form.TEXT)), lambda frame: frame.selectExpr(f"CAST({_BYTES} AS STRING) AS t"), "operator 'o'"
    )
    with pytest.raises(DataError, match=r"operator 'o': column 't' has text that is not UTF-8.*make_valid_utf8"):
        plan.run([b"x\n"])
    nested = Plan(
        leaf(LeafSpec(Form.TEXT)), lambda frame: frame.selectExpr(f"array(CAST({_BYTES} AS STRING)) AS t"), "o"
    )
    with pytest.raises(DataError, match="o: column 't'"):
        nested.run([b"x\n"])
    valid = Plan(
        leaf(LeafSpec(Form.TEXT)),
        lambda frame: frame.selectExpr(f"make_valid_utf8(CAST({_BYTES} AS STRING)) AS t"),
        "o",
    )
    assert valid.run([b"x\n"]).column("t").to_pylist() == ["\ufffdx"]


def test_slots_of_a_dead_process_are_removed_and_of_a_living_one_kept(tmp_path: Path) -> None:
    living = SlotFolder(str(tmp_path), tmp_path / "none")
    dead = tmp_path / "lockgate-slots-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "0.slot").touch()
    other = SlotFolder(str(tmp_path), tmp_path / "none")
    assert not dead.exists()
    assert living.path.exists()
    for folder in (living, other):
        folder.close()
    assert list(tmp_path.iterdir()) == []


def test_a_slot_is_one_partition_on_several_cores(engine: SparkEngine, tmp_path: Path) -> None:
    assert engine._session.sparkContext.defaultParallelism == 2
    leaf = SlotLeaf(engine._session.newSession(), LeafSpec(Form.TEXT), str(tmp_path / "slot"))
    leaf.prepare()
    plan = leaf.frame()._jdf.queryExecution().executedPlan().children().apply(0)
    assert plan.nodeName().startswith("Scan text")
    assert plan.execute().getNumPartitions() == 1
    leaf.close()


@pytest.mark.parametrize("spec", [spec for spec, _ in CASES], ids=IDS)
def test_no_job_can_read_while_the_plan_is_made(leaf: Make, spec: LeafSpec) -> None:
    """Not what an action would be refused for by its name, but what runs a job inside another call."""
    failed: list[bool] = []

    def build(frame: Any) -> Any:
        column = frame.columns[0]
        jobs = (lambda: frame.rdd.isEmpty(), lambda: frame.groupBy(column).pivot(column).count())
        for job in jobs if not failed else ():  # later the plan may be made for a batch
            with pytest.raises(Exception) as caught:  # noqa: PT011  py4j's or PySpark's
                job()
            failed.append(is_unread(caught.value, frame.selectExpr("*")))
        return frame

    made = leaf(spec)
    plan = Plan(made, build, "test")
    assert failed == [True, True]
    assert plan.run(made.nothing()).num_rows == 0
    plan.close()
