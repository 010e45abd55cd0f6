"""What cannot pass from one Spark job to the next as it is, is refused before a record is read, in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import (
    AggregateFunction,
    Deduplicate,
    Edge,
    EventTime,
    FileFormat,
    FileSink,
    FileSource,
    IntervalJoin,
    JobGraph,
    JoinSide,
    Partitioning,
)
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.task.program import UserError

from .graphs import HASH, aggregate, count_by, graph, sql, vertex

pytestmark = pytest.mark.integration

Job = Callable[..., Any]
MIN, MAX = AggregateFunction.MIN, AggregateFunction.MAX


def source(folder: Path, schema: str = "k STRING, n BIGINT, at BIGINT") -> FileSource:
    """Three records."""
    (folder / "in").mkdir(exist_ok=True)
    lines = [{"k": k, "n": n, "at": n} for n, k in enumerate("aAb")]
    (folder / "in" / "rows.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return FileSource(str(folder / "in"), FileFormat.JSON_LINES, schema=schema)


def passed_on(folder: Path, query: str) -> JobGraph:
    """A query in front of an exchange, and one behind it."""
    return graph(
        vertex("source", source(folder), sql(query)),
        vertex("end", sql("SELECT * FROM input")),
        edges=(Edge("source", "end", Partitioning.REBALANCE),),
    )


REFUSED = [
    ("SELECT k COLLATE UTF8_LCASE AS c FROM input", "column 'c' has the collation UTF8_LCASE"),
    ("SELECT k COLLATE UTF8_BINARY_RTRIM AS c FROM input", "column 'c' has the collation UTF8_BINARY_RTRIM"),
    ("SELECT array(k COLLATE UNICODE_CI) AS c FROM input", "column 'c' is of type array<.*UNICODE_CI"),
    ("SELECT map(k COLLATE UTF8_LCASE, 1) AS c FROM input", "column 'c' is of type map<.*its keys.*UTF8_LCASE"),
    ("SELECT struct(k COLLATE UTF8_LCASE AS f) AS c FROM input", "column 'c' is of type struct<.*field 'f'"),
    ("SELECT array() AS c FROM input", "column 'c' is of type array<void>.*has no type"),
    ("SELECT map() AS c FROM input", "column 'c' is of type map<void,void>"),
    ("SELECT struct(NULL AS q) AS c FROM input", "column 'c' is of type struct<q:void>.*'q'"),
    ("SELECT named_struct() AS c FROM input", "column 'c' is a struct without fields"),
    ("SELECT parse_json('1') AS c FROM input", "column 'c' is of type variant.*to_json"),
    ("SELECT array(CAST(NULL AS VARIANT)) AS c FROM input", "column 'c' is of type array<variant>.*to_json"),
    ("SELECT make_ym_interval(1, 2) AS c FROM input", "column 'c' is of type interval year to month"),
    ("SELECT make_interval(1, 2) AS c FROM input", "column 'c' is of type interval"),
    ("SELECT n AS a, at AS A FROM input", "two columns are named 'a' and 'A'"),
    ("SELECT named_struct('a', n, 'A', n) AS c FROM input", "column 'c' is a struct, in which two fields"),
]


@pytest.mark.parametrize(("query", "message"), REFUSED, ids=[query for query, _ in REFUSED])
def test_a_column_that_cannot_travel_is_refused(job: Job, tmp_path: Path, query: str, message: str) -> None:
    with pytest.raises(UserError, match="operator 'source1': " + message):
        job(passed_on(tmp_path, query))


def test_time_of_day_does_not_travel(job: Job, tmp_path: Path, engine: SparkEngine) -> None:
    engine._session.conf.set("spark.sql.timeType.enabled", "true")
    try:
        with pytest.raises(UserError, match=r"operator 'source1': column 'c' is of type time\(6\)"):
            job(passed_on(tmp_path, "SELECT TIME'10:11:12' AS c FROM input"))
    finally:
        engine._session.conf.unset("spark.sql.timeType.enabled")


def test_workarounds_named_in_refusals_work(job: Job, tmp_path: Path) -> None:
    query = (
        "SELECT CAST(k COLLATE UTF8_LCASE AS STRING) AS c, CAST(array() AS ARRAY<STRING>) AS l,"
        " to_json(parse_json('{\"x\":1}')) AS j,"
        " CAST(CAST(make_ym_interval(1, 2) AS INTERVAL MONTH) AS INT) AS m"
        " FROM input WHERE k = 'A' COLLATE UTF8_LCASE"
    )
    run = job(passed_on(tmp_path, query))
    run.to_end()
    assert run.rows("end") == [{"c": c, "l": [], "j": '{"x":1}', "m": 14} for c in "aA"]


COLLATED = sql("SELECT k COLLATE UTF8_LCASE AS k, n, at FROM input")
BY_K = (Edge("source", "end", HASH, ("k",)),)


@pytest.mark.parametrize(
    "keyed",
    [count_by("k"), Deduplicate(("k",)), aggregate(("k",), x=(MAX, "n"))],
    ids=["count", "deduplicate", "max"],
)
def test_keys_with_a_collation_are_refused(job: Job, tmp_path: Path, keyed: Any) -> None:
    with pytest.raises(UserError, match="key column 'k' has the collation UTF8_LCASE"):
        job(graph(vertex("source", source(tmp_path), COLLATED), vertex("end", keyed), edges=BY_K))


def test_keys_of_a_join_with_a_collation_are_refused(job: Job, tmp_path: Path) -> None:
    when = EventTime(expression="at", out_of_orderness_ms=0)
    join = IntervalJoin(("k",), ("k",), "at", "at", 0, 1, "l_", "r_")
    sides = (("left", JoinSide.LEFT), ("right", JoinSide.RIGHT))
    with pytest.raises(UserError, match="key column 'k' has the collation UTF8_LCASE"):
        job(
            graph(
                *(vertex(name, source(tmp_path), COLLATED, when) for name, _ in sides),
                vertex("join", join),
                edges=tuple(Edge(name, "join", HASH, ("k",), join_side=side) for name, side in sides),
            )
        )


def test_extremes_by_a_collation_are_refused(job: Job, tmp_path: Path) -> None:
    kind = aggregate(("n",), x=(MIN, "k COLLATE UTF8_LCASE"))
    with pytest.raises(UserError, match=r"operator 'end0': aggregate 'x' of 'k COLLATE UTF8_LCASE' has the collation"):
        job(
            graph(vertex("source", source(tmp_path)), vertex("end", kind), edges=(Edge("source", "end", HASH, ("n",)),))
        )


def test_extremes_of_months_name_the_aggregate(job: Job, tmp_path: Path) -> None:
    kind = aggregate(("n",), x=(MAX, "make_ym_interval(0, CAST(n AS INT))"))
    with pytest.raises(UserError, match=r"operator 'end0': aggregate 'x' of 'make_ym_interval.*interval year to month"):
        job(
            graph(vertex("source", source(tmp_path)), vertex("end", kind), edges=(Edge("source", "end", HASH, ("n",)),))
        )


def test_a_declared_collation_holds_within_the_first_job(job: Job, tmp_path: Path) -> None:
    read = source(tmp_path, "k STRING COLLATE UTF8_LCASE, n BIGINT")
    kept = sql("SELECT CAST(k AS STRING) AS k FROM input WHERE k = 'A'")
    run = job(graph(vertex("source", read, kept), vertex("end", count_by("k")), edges=BY_K))
    run.to_end()
    run = job(graph(vertex("source", read, kept), vertex("end", sql("SELECT * FROM input")), edges=BY_K))
    run.to_end()
    assert [row["k"] for row in run.rows("end")] == ["a", "A"]


def test_a_parquet_file_with_collations_is_refused_unless_they_are_declared_away(
    job: Job, tmp_path: Path, engine: SparkEngine
) -> None:
    frame = engine._session.sql("SELECT 'a' COLLATE UTF8_LCASE AS k, 1 AS n")
    frame.coalesce(1).write.parquet(str(tmp_path / "in"))
    read = FileSource(str(tmp_path / "in"), FileFormat.PARQUET, include="*.parquet")
    with pytest.raises(UserError, match=r"column 'k' has the collation spark\.UTF8_LCASE"):
        job(graph(vertex("source", read, FileSink(str(tmp_path / "out"), FileFormat.PARQUET))))
    declared = FileSource(str(tmp_path / "in"), FileFormat.PARQUET, schema="k STRING, n INT", include="*.parquet")
    run = job(graph(vertex("source", declared), vertex("end", sql("SELECT * FROM input")), edges=BY_K))
    run.to_end()
    assert run.rows("end") == [{"k": "a", "n": 1}]


RESERVED = ["__event_time", "__p0", "__hash", "__kg_0", "__HASH", "__lockgate_x", "__key"]


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("keyed", [count_by("k"), Deduplicate(("k",)), sql("SELECT * FROM input")])
def test_a_column_called_as_one_of_ours_is_refused(job: Job, tmp_path: Path, keyed: Any, name: str) -> None:
    shadow = sql(f"SELECT k, n AS `{name}` FROM input")
    with pytest.raises(UserError, match=f"the column name '{name}' is reserved.*AS"):
        job(graph(vertex("source", source(tmp_path), shadow), vertex("end", keyed), edges=BY_K))


def test_names_that_only_look_like_ours_pass(job: Job, tmp_path: Path) -> None:
    alike = sql("SELECT k, n AS __op, n AS __deleted, n AS hash, n AS __p, n AS __pane2 FROM input")
    run = job(graph(vertex("source", source(tmp_path), alike), vertex("end", Deduplicate(("k",))), edges=BY_K))
    run.to_end()
