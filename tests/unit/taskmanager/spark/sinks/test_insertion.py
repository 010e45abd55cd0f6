"""An upsert of tuples leaves in the database what SQLAlchemy's own way, a mapping for each row, leaves there."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from lockgate_taskmanager.spark.sinks import tables
from lockgate_taskmanager.spark.sinks.insertion import Insertion
from lockgate_taskmanager.spark.sinks.sql_fit import SQLITE_DIGITS

UTC = dt.UTC
MOMENT = dt.datetime(2024, 2, 29, 23, 59, 58, 123456)
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int8": (pa.int8(), [-128, 127]),
    "int16": (pa.int16(), [-(2**15), 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), 2**63 - 1]),
    "uint32": (pa.uint32(), [0, 2**32 - 1]),
    "float": (pa.float32(), [0.1, float("inf")]),
    "double": (pa.float64(), [0.1 + 0.2, 3.0]),
    "string": (pa.string(), ["", "Grüße \x00 'quoted' \N{GRINNING FACE}"]),
    "large string": (pa.large_string(), ["a", "b"]),
    "binary": (pa.binary(), [b"", b"\x00\xff"]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    "decimal": (pa.decimal128(9, 2), [Decimal("-1234567.89"), Decimal("0.10")]),
    "wide decimal": (pa.decimal128(38, 0), [Decimal(10**30), Decimal(0)]),
    "timestamp": (pa.timestamp("us"), [MOMENT, dt.datetime(1969, 12, 31)]),
    "zoned": (pa.timestamp("us", "UTC"), [MOMENT.replace(tzinfo=UTC), dt.datetime(1970, 1, 1, tzinfo=UTC)]),
    "milliseconds": (pa.timestamp("ms"), [MOMENT.replace(microsecond=123000), MOMENT.replace(microsecond=0)]),
}
ODD_NAMES = ("order", "my column", "50%", "a:b", "n(1)", "x.y", "it's", 'say "so"', "[0]", "ключ")


def _spelled(row: dict[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """With the long DECIMALs as text, which SQLAlchemy would make floats of."""
    wide = [
        declared_state.name
        for declared_state in schema
        if pa.types.is_decimal(declared_state.type) and declared_state.type.precision > SQLITE_DIGITS
    ]
    return row | {name: format(row[name], "f") for name in wide if row[name] is not None}


class Database:
    """A SQLite file and an upsert into its table `t`."""

    def __init__(self, file: Path, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.file = file
        self.engine = sa.create_engine(f"sqlite:///{file}")
        table = tables.target(self.engine, "t", schema, keys, "operator 'op'")
        self.insertion = Insertion(self.engine.dialect, table, keys)

    def write(self, rows: pa.Table) -> None:
        execution = self.insertion.prepare(rows)
        with self.engine.begin() as connection:
            execution(connection)

    def write_mappings(self, rows: pa.Table) -> None:
        with self.engine.begin() as connection:
            connection.execute(self.insertion._statement, [_spelled(row, rows.schema) for row in rows.to_pylist()])

    def content(self) -> list[tuple[Any, ...]]:
        """What is stored, as SQLite itself shows it, each value with its storage class."""
        with sqlite3.connect(self.file) as connection:
            names = [row[1] for row in connection.execute("PRAGMA table_info(t)")]
            quoted = ['"' + name.replace('"', '""') + '"' for name in names]
            columns = ", ".join(f"{item}, typeof({item})" for item in quoted)
            found = connection.execute(f"SELECT {columns} FROM t ORDER BY {quoted[0]}").fetchall()
        connection.close()
        return found


class Pair:
    """The same rows go both ways."""

    def __init__(self, folder: Path, schema: pa.Schema, keys: Sequence[str]) -> None:
        self.tuples = Database(folder / "tuples.db", schema, keys)
        self.mappings = Database(folder / "mappings.db", schema, keys)

    def write(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        """The content of both after the write."""
        self.tuples.write(rows)
        self.mappings.write_mappings(rows)
        content = self.tuples.content()
        assert content == self.mappings.content()
        return content


@pytest.mark.parametrize("name", COLUMNS)
def test_every_type_and_null(tmp_path: Path, name: str) -> None:
    kind, values = COLUMNS[name]
    schema = pa.schema([("k", pa.int64()), ("value", kind)])
    pair = Pair(tmp_path, schema, ["k"])
    content = pair.write(pa.table({"k": [0, 1, 2], "value": [*values, None]}, schema=schema))
    assert [row[0] for row in content] == [0, 1, 2]
    assert [row[3] == "null" for row in content] == [False, False, True]
    # keys that are there, now with another value, and NULL for a value and a value for NULL
    changed = pair.write(pa.table({"k": [2, 1, 0], "value": [values[0], None, values[1]]}, schema=schema))
    assert [row[2] for row in changed] == [content[1][2], None, content[0][2]]


@pytest.mark.parametrize("name", sorted(set(COLUMNS) - {"float", "double"}))
def test_every_type_as_a_key(tmp_path: Path, name: str) -> None:
    kind, values = COLUMNS[name]
    schema = pa.schema([("k", kind), ("n", pa.int64())])
    pair = Pair(tmp_path, schema, ["k"])
    pair.write(pa.table({"k": values, "n": [1, 2]}, schema=schema))
    content = pair.write(pa.table({"k": values[::-1], "n": [3, 4]}, schema=schema))
    assert sorted(row[2] for row in content) == [3, 4], "the rows were updated, not added"


def test_all_columns_at_once_from_a_table_of_many_chunks_in_another_order(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), *[(name, kind) for name, (kind, _) in COLUMNS.items()]])
    pair = Pair(tmp_path, schema, ["k"])
    pieces = [
        pa.table({"k": [n], **{name: [values[n]] for name, (_, values) in COLUMNS.items()}}, schema=schema)
        for n in range(2)
    ]
    rows = pa.concat_tables(pieces)
    assert rows.column("k").num_chunks == 2
    content = pair.write(rows.select(schema.names[::-1]))
    assert len(content) == 2
    assert len(content[0]) == 2 * len(schema)


def test_columns_are_distinguished_with_any_names(tmp_path: Path) -> None:
    schema = pa.schema([(name, pa.int64()) for name in ODD_NAMES])
    pair = Pair(tmp_path, schema, [ODD_NAMES[0], ODD_NAMES[3]])
    first = pa.table({name: [n, 100 + n] for n, name in enumerate(ODD_NAMES)}, schema=schema)
    content = pair.write(first)
    assert [row[::2] for row in content] == [tuple(range(10)), tuple(range(100, 110))]
    second = pa.table({name: [n if n in (0, 3) else -n] for n, name in enumerate(ODD_NAMES)}, schema=schema)
    assert pair.write(second)[0][::2] == (0, -1, -2, 3, -4, -5, -6, -7, -8, -9)


def test_a_table_of_keys_only_keeps_its_rows(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    pair = Pair(tmp_path, schema, ["a", "b"])
    pair.write(pa.table({"a": [1, 1, 2], "b": ["x", "y", "x"]}, schema=schema))
    content = pair.write(pa.table({"a": [1, 3], "b": ["x", "z"]}, schema=schema))
    assert sorted(row[::2] for row in content) == [(1, "x"), (1, "y"), (2, "x"), (3, "z")]


def test_columns_of_the_database_that_the_rows_do_not_have_keep_their_values(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int64()), ("n", pa.int64())])
    for name in ("tuples.db", "mappings.db"):
        with sqlite3.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, note TEXT DEFAULT 'new', n INTEGER)")
            connection.execute("INSERT INTO t VALUES (1, 'kept', 0)")
        connection.close()
    content = Pair(tmp_path, schema, ["k"]).write(pa.table({"k": [1, 2], "n": [5, 6]}, schema=schema))
    assert [row[::2] for row in content] == [(1, "kept", 5), (2, "new", 6)]
