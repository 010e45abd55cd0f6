"""Our hash of a key is Spark's, for every type that a key may have in a query."""

from __future__ import annotations

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.state.query.spark_hash import hash_of
from lockgate_taskmanager.task.program import UserError

pytestmark = pytest.mark.integration

LONG = "'" + "0123456789abcdef" * 5 + "xyz'"
EXPRESSIONS = {
    "BOOLEAN": ["true", "false", "NULL"],
    "TINYINT": ["-1Y", "7Y"],
    "SMALLINT": ["-300S", "300S"],
    "INT": ["0", "-1", "2147483647", "NULL"],
    "BIGINT": ["0L", "-1L", "9223372036854775807L", "NULL"],
    "FLOAT": ["0.0F", "CAST('-0.0' AS FLOAT) + 0.0F", "1.5F", "CAST('NaN' AS FLOAT)"],
    "DOUBLE": ["0.0D", "-2.25D", "CAST('NaN' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)"],
    "STRING": [
        "''",
        "'a'",
        "'abcd'",
        "'abcdefgh'",
        "'abcdefghijklm'",
        "'Grüße, 世界'",
        LONG,
        f"concat({LONG}, {LONG})",
    ],
    "BINARY": ["X''", "X'00FF10'", f"CAST({LONG} AS BINARY)"],
    "DATE": ["DATE'1969-12-31'", "DATE'2024-02-29'"],
    "TIMESTAMP": ["TIMESTAMP'2024-02-29 12:34:56.789012'", "TIMESTAMP'1960-01-01 00:00:00'"],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'2024-02-29 12:34:56.789012'"],
    "DECIMAL(10, 2)": ["-12.34", "99999999.99"],
    "DECIMAL(38, 6)": ["-12.34", "0", "128", "-128", "12345678901234567890123456789.5"],
}


@pytest.mark.parametrize("kind", EXPRESSIONS)
def test_our_hash_is_sparks(engine: SparkEngine, kind: str) -> None:
    values = ", ".join(f"(CAST({text} AS {kind}))" for text in EXPRESSIONS[kind])
    hashes = "xxhash64(k, 7) AS both, xxhash64(k) AS h"
    rows = engine._session.sql(f"SELECT k, {hashes} FROM VALUES {values} AS t(k)")
    table = rows.toArrow().combine_chunks()
    seven = pa.scalar(7, pa.int32())
    keys = table.column("k").combine_chunks()
    assert [hash_of([key]) for key in keys] == table.column("h").to_pylist()
    assert [hash_of([key, seven]) for key in keys] == table.column("both").to_pylist()


def test_a_key_of_several_parts_has_no_hash_here() -> None:
    with pytest.raises(UserError, match="cannot be queried"):
        hash_of([pa.scalar([1], pa.list_(pa.int64()))])
