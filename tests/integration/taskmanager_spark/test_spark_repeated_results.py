"""Later executions of a plan, which do not go through `toArrow`, have the results of the first one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import DataFrame, Form, LeafSpec, SlotLeaf
from lockgate_taskmanager.spark.plan import Build, Plan

pytestmark = [pytest.mark.integration, pytest.mark.first]

TYPES = {
    "boolean": "n % 2 = 0",
    "tinyint": "CAST(n AS TINYINT)",
    "smallint": "CAST(n AS SMALLINT)",
    "int": "CAST(n AS INT)",
    "bigint": "n",
    "float": "CAST(n AS FLOAT) / 3",
    "double": "IF(n = 1, DOUBLE('NaN'), IF(n = 2, DOUBLE('-Infinity'), -0.0D))",
    "small decimal": "CAST(n AS DECIMAL(9, 2)) / 7",
    "large decimal": "CAST(n AS DECIMAL(38, 18)) - 12345678901234567890.123456789012345678",
    "string": "IF(n = 1, '', repeat('ä€😀', CAST(n AS INT)))",
    "char": "CAST(CAST(n AS STRING) AS CHAR(5))",
    "varchar": "CAST(CAST(n AS STRING) AS VARCHAR(5))",
    "binary": "IF(n = 1, X'', X'00FF0A0D')",
    "date": "date_add(DATE'1969-12-30', CAST(n AS INT))",
    "timestamp": "timestamp_micros(-1500000 + n)",
    "timestamp without zone": "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999' + make_dt_interval(0, 0, 0, n)",
    "interval of days": "make_dt_interval(1, 2, 3, n)",
    "array": "array(n, NULL, n + 1)",
    "empty array": "CAST(array() AS ARRAY<STRING>)",
    "map": "map(CAST(n AS STRING), n, 'nothing', NULL)",
    "struct": "named_struct('a', n, 'b', named_struct('c', CAST(NULL AS STRING), 'd', array(named_struct('e', n))))",
    "null of a type": "CAST(NULL AS DECIMAL(20, 3))",
    "null in a row": "IF(n = 1, NULL, named_struct('a', n))",
}
LINES = b"1\n2\n3\n"


@pytest.fixture
def session(engine: SparkEngine) -> Any:
    return engine._session.newSession()


def _results(session: Any, tmp_path: Path, build: Build, *contents: bytes) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Of each content: by a first execution, and by a later one."""
    spec = LeafSpec(Form.CSV, ddl="n BIGINT")
    later = Plan(SlotLeaf(session, spec, str(tmp_path / "later.slot")), build, "operator 'o'")
    later.run([b"7\n8\n9\n10\n"])
    assert later._job is not None
    for number, content in enumerate(contents):
        first = Plan(SlotLeaf(session, spec, str(tmp_path / f"{number}.slot")), build, "operator 'o'")
        expected = first.run([content])
        first.close()
        for _ in range(2):
            yield expected, later.run([content])
    later.close()


def test_values_are_aligned_in_memory(session: Any, tmp_path: Path) -> None:
    """Otherwise Arrow warns when it aggregates them."""

    def build(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("n", "CAST(n AS DOUBLE) AS x", "CAST(n AS STRING) AS s")

    for _, found in _results(session, tmp_path, build, LINES, b"".join(b"%d\n" % n for n in range(30_000))):
        buffers = [buffer for column in found.columns for chunk in column.chunks for buffer in chunk.buffers()]
        assert {buffer.address % 8 for buffer in buffers if buffer is not None} == {0}


@pytest.mark.parametrize("name", TYPES)
def test_types(session: Any, tmp_path: Path, name: str) -> None:
    def build(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("n", f"{TYPES[name]} AS v")

    for expected, found in _results(session, tmp_path, build, LINES, b""):
        assert found.schema == expected.schema
        assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in expected.to_pylist()]
        assert found.equals(expected) or name == "double", "NaN equals nothing"


SHAPES: dict[str, Build] = {
    "a union": lambda frame: frame.selectExpr("n").unionAll(frame.selectExpr("n * 10 AS n")),
    "a partition that is empty": lambda frame: frame.filter("n < 0").unionAll(frame),
    "all partitions are empty": lambda frame: frame.filter("n < 0").unionAll(frame.filter("n > 99")),
    "three partitions": lambda frame: frame.unionAll(frame).unionAll(frame.filter("n = 2")),
    "an aggregate of partitions": lambda frame: frame.unionAll(frame).coalesce(1).groupBy("n").count(),
    "rows of nothing": lambda frame: frame.coalesce(1).selectExpr("count(*) AS c"),
}


@pytest.mark.parametrize("name", SHAPES)
def test_partitions(session: Any, tmp_path: Path, name: str) -> None:
    for expected, found in _results(session, tmp_path, SHAPES[name], LINES, b"", b"2\n"):
        assert found.schema == expected.schema
        assert found.to_pylist() == expected.to_pylist()
