"""What PostgreSQL is given it gives back: random rows of every type, in both modes, with keys of every type."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import SqlSink, SqlWriteMode
from lockgate_taskmanager.spark.sinks.sql import SqlSink as SqlWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import UserError

from tests.postgresql_server import PostgresqlServer
from tests.values import BINARY, FEW, SCALARS, Kind, array, rows

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

UPSERT, APPEND = SqlWriteMode.UPSERT, SqlWriteMode.APPEND
EVEN_FEWER = settings(FEW, max_examples=2 * FEW.max_examples)
NAMES = [
    "a", "order", "my column", "50%", "%s", "%(c0)s", ":c0", "c0", "c1", "n(1)", "x.y", "it's", 'say "so"', "[0]",
    "ключ", "Upper", "excluded", "unnest", "anon_1", "lockgate_commits", "new\nline", "\\", " ", "param_1", "é" * 31,
]  # fmt: skip
FIRST, LAST = dt.datetime.min, dt.datetime.max


def _storable() -> list[Kind]:
    """Every type, with the values for which PostgreSQL, or its driver, has a place."""
    moments = st.datetimes() | st.sampled_from([FIRST, LAST])
    awkward = st.sampled_from(["NULL", "{}", '"', " a ", "\x0b", "\\N", "\\x00", "'", "%s", "\ufeff"])
    limited: dict[pa.DataType, st.SearchStrategy[Any]] = {
        pa.string(): st.text(max_size=6).map(lambda text: text.replace("\x00", "")) | awkward,
        pa.date32(): st.dates() | st.sampled_from([dt.date.min, dt.date.max]),
        pa.timestamp("us"): moments,
        pa.timestamp("us", "UTC"): moments.map(lambda moment: moment.replace(tzinfo=dt.UTC)),
    }
    return [(kind, limited.get(kind, values)) for kind, values in [*SCALARS, BINARY]]


KINDS = st.sampled_from(_storable())
COLUMNS = st.lists(st.sampled_from(NAMES), min_size=2, max_size=6, unique_by=str.casefold)


@st.composite
def tables(draw: st.DrawFn, keys: int = 0) -> pa.Table:
    """Rows of random types. keys: columns, the first ones, that are never NULL and often the same."""
    names = draw(COLUMNS)
    count = draw(st.integers(1, 8))
    columns = {}
    for number, name in enumerate(names):
        kind, values = draw(KINDS)
        if number < keys:
            few = draw(st.lists(values, min_size=1, max_size=3))
            found = draw(st.lists(st.sampled_from(few), min_size=count, max_size=count))
        else:
            found = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        columns[name] = array(found, kind)
    return pa.table(columns)


class Tables:
    """Tables in one database, whose server thinks in another time zone."""

    def __init__(self, server: PostgresqlServer) -> None:
        self.server = server
        self.url = server.new_database()
        server.execute(f"ALTER DATABASE {sa.make_url(self.url).database} SET timezone = 'America/St_Johns'")
        self._numbers = itertools.count(1)

    def name(self) -> str:
        """Of a table that is not there."""
        return f"t{next(self._numbers)}"

    def write(self, name: str, schema: pa.Schema, parts: list[pa.Table], *keys: str) -> None:
        """Each part with a checkpoint of its own."""
        mode = UPSERT if keys else APPEND
        context = SinkContext(name, "run", 1, "v", 0, "op", "operator 'op'")
        sink = SqlWriter(context, SqlSink(self.url, name, keys, mode))
        try:
            sink.prepare(schema)
            for checkpoint_id, part in enumerate(parts, 1):
                sink.write(part)
                for pending in sink.seal(checkpoint_id):
                    pending.persist(InlineBackend(1 << 24).writer(checkpoint_id))
                sink.commit(checkpoint_id)
        finally:
            sink.close()

    def read(self, name: str, schema: pa.Schema) -> pa.Table:
        """Everything, as the types that it had."""
        found = self.server.execute(f"SELECT * FROM {name}", f"{self.url}?options=-c%20TimeZone%3DUTC")
        columns = zip(*found, strict=True) if found else [()] * len(schema)
        return pa.table([array(list(c), f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


@pytest.fixture(scope="module")
def database(postgresql: PostgresqlServer) -> Iterator[Tables]:
    return Tables(postgresql)


def _halves(table: pa.Table) -> list[pa.Table]:
    middle = table.num_rows // 2
    return [table.slice(0, middle), table.slice(middle)]


@EVEN_FEWER
@given(tables())
def test_every_row_that_is_appended_is_read_back_equal(database: Tables, table: pa.Table) -> None:
    name = database.name()
    database.write(name, table.schema, _halves(table))
    assert rows(database.read(name, table.schema)) == rows(table)


@EVEN_FEWER
@example(pa.table({"a": [0.0, math.nan, -0.0, math.nan], "b": [1, 2, 3, 4]}), 1)
@given(tables(keys=2), st.integers(1, 2))
def test_every_key_has_its_last_row(database: Tables, table: pa.Table, keys: int) -> None:
    name, by = database.name(), table.schema.names[:keys]
    database.write(name, table.schema, _halves(table), *by)
    last = {rows(_one_zero(table.slice(n, 1).select(by)))[0]: n for n in range(table.num_rows)}
    found = database.read(name, table.schema)
    assert rows(_one_zero(found, *by)) == rows(_one_zero(table.take(sorted(last.values())), *by))


def _one_zero(table: pa.Table, *only: str) -> pa.Table:
    """With one zero in keys of floating point, as everybody compares them."""
    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type) and (not only or field.name in only):
            plain = pa.compute.add(table.column(number), pa.scalar(0.0, field.type))
            table = table.set_column(number, field, plain)
    return table


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (pa.list_(pa.int64()), "list<.*>"),
        (pa.map_(pa.string(), pa.int64()), "map<.*>"),
        (pa.struct([("x", pa.int64())]), "struct<.*>"),
        (pa.duration("us"), r"duration\[us\]"),
    ],
)
def test_types_that_sql_does_not_hold_are_refused_before_the_first_record(
    database: Tables, kind: pa.DataType, shown: str
) -> None:
    with pytest.raises(UserError, match=f"operator 'op': column 'c' of type {shown} has no counterpart in SQL"):
        database.write(database.name(), pa.schema([("a", pa.int64()), ("c", kind)]), [])


DOUBLE, REAL = "DOUBLE PRECISION", "REAL"


@pytest.mark.parametrize(
    ("kind", "theirs", "message"),
    [
        (pa.float64(), "real", "as REAL, which does not keep the rows' DOUBLE: make the column DOUBLE PRECISION"),
        (pa.float64(), "numeric", "as NUMERIC, which .* DOUBLE: make the column DOUBLE PRECISION"),
        (pa.float32(), "numeric(9, 2)", r"as NUMERIC\(9, 2\), which .* FLOAT: make the column DOUBLE PRECISION"),
        (pa.int64(), "double precision", "as DOUBLE PRECISION, which .* BIGINT: make the column BIGINT"),
        (pa.int32(), "real", "as REAL, which .* INT: make the column INTEGER"),
        (pa.decimal128(9, 2), "real", r"as REAL, which .* DECIMAL\(9,2\): make the column NUMERIC\(9, 2\)"),
        (pa.decimal128(9, 2), "numeric(9, 1)", r"as .*, which .* DECIMAL\(9,2\): make the column NUMERIC\(9, 2\)"),
        (pa.timestamp("us"), "timestamp(3)", "as TIMESTAMP.*, which .* TIMESTAMP_NTZ: make the column TIMESTAMP"),
        (
            pa.timestamp("us", "UTC"),
            "timestamptz(0)",
            "as .*, which .* TIMESTAMP: make the column TIMESTAMP WITH TIME ZONE",
        ),
        (pa.string(), "char(5)", r"as CHAR\(5\), which .* STRING: make the column TEXT"),
        (pa.string(), "citext", "as CITEXT, which .* STRING: make the column TEXT"),
    ],
)
def test_a_column_that_does_not_keep_every_value_is_refused(
    database: Tables, kind: pa.DataType, theirs: str, message: str
) -> None:
    name = database.name()
    if theirs == "citext":
        database.server.execute("CREATE EXTENSION IF NOT EXISTS citext", database.url)
    database.server.execute(f"CREATE TABLE {name} (k bigint PRIMARY KEY, c {theirs})", database.url)
    with pytest.raises(UserError, match=f"operator 'op': the table {name} has column 'c' {message}"):
        database.write(name, pa.schema([("k", pa.int64()), ("c", kind)]), [])


WIDER: dict[pa.DataType, list[str]] = {
    pa.int8(): ["smallint"],
    pa.int16(): [REAL],
    pa.int32(): [DOUBLE],
    pa.int64(): ["numeric(19)"],
    pa.float32(): [REAL, DOUBLE],
    pa.decimal128(7, 2): ["numeric(8, 3)", "numeric"],
    pa.string(): ["varchar(40)", "varchar"],
    pa.timestamp("us"): ["timestamp(6)"],
}


@FEW
@given(st.data())
def test_an_accepted_column_returns_its_values_unchanged(database: Tables, data: st.DataObject) -> None:
    values, columns, ddl = dict(_storable()), {}, []
    for kind, declared in ((kind, declared) for kind, several in WIDER.items() for declared in several):
        found = data.draw(st.lists(st.none() | values[kind], min_size=5, max_size=5))
        columns[f"c{len(columns)}"] = array(found, kind)
        ddl.append(f"c{len(ddl)} {declared}")
    table, name = pa.table(columns), database.name()
    database.server.execute(f"CREATE TABLE {name} ({', '.join(ddl)})", database.url)
    database.write(name, table.schema, [table])
    assert rows(database.read(name, table.schema)) == rows(table)


@pytest.mark.parametrize("name", ["x" * 64, "é" * 32])
def test_a_name_that_postgresql_would_cut_is_refused(database: Tables, name: str) -> None:
    with pytest.raises(UserError, match=rf"operator 'op': the name '{name}' has 64 bytes, .* 63: .* AS"):
        database.write(database.name(), pa.schema([("k", pa.int64()), (name, pa.int64())]), [])
    with pytest.raises(UserError, match=rf"operator 'op': the name '{name}' has 64 bytes, .* 63"):
        database.write(name, pa.schema([("k", pa.int64())]), [])


@pytest.mark.parametrize("name", ["ctid", ""])
def test_a_name_that_postgresql_keeps_for_itself_is_one_sentence(database: Tables, name: str) -> None:
    with pytest.raises(UserError, match="operator 'op': the database") as caught:
        database.write(database.name(), pa.schema([("k", pa.int64()), (name, pa.int64())]), [])
    assert "\n" not in str(caught.value)
