"""What SQLite keeps: no two keys become one, and every value differs from every other."""

from __future__ import annotations

import datetime as dt
import math
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import SqlSink
from lockgate_taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from lockgate_taskmanager.spark.sinks.sql_values import comparable_keys, require_storable
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import DataError, UserError

EPOCH = dt.datetime(1970, 1, 1)
WIDE = pa.decimal128(38, 10)
Kind = tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], Any]]


def same(value: Any) -> Any:
    return value


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    return st.integers(-(10**digits) + 1, 10**digits - 1).map(lambda n: Decimal(f"{n}E-{scale}"))


KINDS: dict[str, Kind] = {  # how to come from what SQLite gives to the value again
    "boolean": (pa.bool_(), st.booleans(), bool),
    "bigint": (pa.int64(), st.integers(-(2**63), 2**63 - 1), same),
    "double": (pa.float64(), st.floats(), float),
    "float": (pa.float32(), st.floats(width=32), float),
    "short decimal": (pa.decimal128(15, 6), _decimals(15, 6), lambda v: round(Decimal(v), 6)),
    "wide decimal": (WIDE, _decimals(38, 10), Decimal),
    "tiny decimal": (pa.decimal128(38, 38), _decimals(38, 38), Decimal),
    "string": (pa.string(), st.text(max_size=5), same),
    "binary": (pa.binary(), st.binary(max_size=5), same),
    "date": (pa.date32(), st.dates(), dt.date.fromisoformat),
    "timestamp": (
        pa.timestamp("us"),
        st.datetimes().map(lambda diff_world: diff_world.replace(fold=0)),
        dt.datetime.fromisoformat,
    ),
}


def key_of(value: Any) -> str:
    """NaN is NaN, and both zeros are one."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(value + 0.0)
    return format(value, "f") if isinstance(value, Decimal) else repr(value)


def written(url: str, table: pa.Table, number: int, keys: tuple[str, ...] = ("k",)) -> None:
    sink = SqlWriter(SinkContext("job", f"run{number}", 1, "v", 0, "op", "operator 'op'"), SqlSink(url, "t", keys))
    sink.prepare(table.schema)
    sink.write(table)
    for pending in sink.seal(1):
        pending.persist(InlineBackend(1 << 24).writer(1))
    sink.commit(1)
    sink.close()


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_sqlite_keeps_every_key_apart_and_gives_every_value_back(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    kind, values, back = KINDS[name]
    keys = data.draw(st.lists(values, min_size=1, max_size=8, unique_by=key_of))
    found = data.draw(st.lists(st.none() | values, min_size=len(keys), max_size=len(keys)))
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
    table = pa.table({"k": pa.array(keys, kind), "v": pa.array(found, kind)})
    written(f"sqlite:///{file}", table, 1)
    with sqlite3.connect(file) as database:
        stored = database.execute("SELECT k, v FROM t").fetchall()
    expected = {(key_of(key), None if value is None else key_of(value)) for key, value in zip(keys, found, strict=True)}
    assert {(key_of(back(key)), None if value is None else key_of(back(value))) for key, value in stored} == expected
    assert len(stored) == len(keys)


def test_decimal_keys_that_are_one_double_are_two_rows(tmp_path: Path) -> None:
    keys = [Decimal("9007199254740993.0000000001"), Decimal("9007199254740993.0000000002"), Decimal("0.0000000001")]
    written(f"sqlite:///{tmp_path}/db", pa.table({"k": pa.array(keys, WIDE), "n": [1, 2, 3]}), 1)
    with sqlite3.connect(tmp_path / "db") as database:
        rows = database.execute("SELECT k, n FROM t ORDER BY n").fetchall()
    assert rows == [(format(key, "f"), n) for n, key in enumerate(keys, 1)]


def test_nan_is_not_null_and_may_be_a_key(tmp_path: Path) -> None:
    table = pa.table({"k": [math.nan, 1.5, -0.0, 0.0], "v": [1.0, math.nan, 2.0, 3.0]})
    for number in (1, 2):  # the second upsert finds the first one's keys
        written(f"sqlite:///{tmp_path}/db", table, number)
    with sqlite3.connect(tmp_path / "db") as database:
        assert database.execute("SELECT k, v FROM t ORDER BY k").fetchall() == [(0.0, 3.0), (1.5, "NaN"), ("NaN", 1.0)]


def test_dates_that_python_does_not_have_are_written(tmp_path: Path) -> None:
    days = pa.array([2_932_897, -719_529], pa.int32()).cast(pa.date32())
    written(f"sqlite:///{tmp_path}/db", pa.table({"k": [1, 2], "d": days}), 1)
    with sqlite3.connect(tmp_path / "db") as database:
        rows = database.execute("SELECT d FROM t ORDER BY k").fetchall()
    assert rows == [("+10000-01-01",), ("-0001-12-31",)]


@pytest.mark.parametrize("theirs", ["NUMERIC(38, 10)", "REAL", "INTEGER"])
def test_a_column_that_rounds_decimals_is_refused(tmp_path: Path, theirs: str) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute(f"CREATE TABLE t (k TEXT PRIMARY KEY, d {theirs})")
    sink = SqlWriter(
        SinkContext("job", "run", 1, "v", 0, "op", "operator 'op'"), SqlSink(f"sqlite:///{tmp_path}/db", "t", ("k",))
    )
    with pytest.raises(UserError, match=r"operator 'op': .* column 'd' as .* DECIMAL\(38,10\): make the column TEXT"):
        sink.prepare(pa.schema([("k", pa.string()), ("d", WIDE)]))
    sink.prepare(pa.schema([("k", pa.string()), ("d", pa.decimal128(15, 2))]))
    sink.close()


def test_a_column_that_rounds_integers_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "db") as database:
        database.execute("CREATE TABLE t (k REAL PRIMARY KEY)")
    sink = SqlWriter(
        SinkContext("job", "run", 1, "v", 0, "op", "operator 'op'"), SqlSink(f"sqlite:///{tmp_path}/db", "t", ("k",))
    )
    with pytest.raises(UserError, match=r"operator 'op': .* column 'k' as REAL, .* BIGINT: make the column BIGINT"):
        sink.prepare(pa.schema([("k", pa.int64())]))
    sink.prepare(pa.schema([("k", pa.int32())]))
    sink.close()


@example([math.nan, -math.nan, -0.0])
@given(st.lists(st.none() | st.floats()))
def test_keys_that_spark_takes_for_one_are_one_bit_pattern(values: list[float | None]) -> None:
    column = comparable_keys(pa.table({"k": pa.array(values, pa.float64())}), ("k",)).column("k")
    bits = {
        value: number for value, number in zip(values, column.to_numpy().view("i8").tolist(), strict=True) if value == 0
    }
    assert set(bits.values()) <= {0}
    assert len(column.filter(pa.compute.is_nan(column)).unique()) <= 1
    assert [key_of(value) for value in column.to_pylist()] == [key_of(value) for value in values]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array(["a", "b\x00c"]), "column 'c' has text with a NUL"),
        (pa.array([2_932_897], pa.int32()).cast(pa.date32()), "column 'c' has a date before year 1 or after 9999"),
        (pa.array([-719_163], pa.int32()).cast(pa.date32()), "column 'c' has a date before year 1"),
        (pa.array([2**62], pa.int64()).cast(pa.timestamp("us", "UTC")), "column 'c' has a date before year 1"),
    ],
)
def test_values_that_postgresql_cannot_store_are_reported_with_the_column(column: pa.Array, message: str) -> None:
    with pytest.raises(DataError, match=f"operator 'op': {message}"):
        require_storable(pa.table({"c": column}), "operator 'op'")
    fine = pa.table(
        {"c": ["a", None], "d": pa.array([dt.date(1, 1, 1), None]), "e": pa.array([None, None], pa.date32())}
    )
    require_storable(fine, "operator 'op'")
