"""What a file sink writes is read back equal with the same schema: by Spark alone, and by the sources here.

Random schemas, nested ones too, with random values in every type that a format holds.
"""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import FileFormat, FileSink, FileSource
from pyspark.sql.pandas.types import from_arrow_schema

from lockgate import CSV_OPTIONS
from lockgate.pipeline import checks
from taskmanager.spark.engine import SparkEngine
from taskmanager.spark.leaf import LeafSpec, SlotLeaf, TableLeaf
from taskmanager.spark.plan import Plan
from taskmanager.spark.sinks.files import FileSink as FileWriter
from taskmanager.spark.sinks.transaction import SinkContext
from taskmanager.spark.sources import listing
from taskmanager.spark.sources.lines import LineSource
from taskmanager.spark.sources.parquet import ParquetSource
from taskmanager.spark.sources.reading import Reading
from taskmanager.state.backend import InlineBackend
from taskmanager.task.program import UserError

pytestmark = pytest.mark.integration

PARQUET, CSV, JSON = FileFormat.PARQUET, FileFormat.CSV, FileFormat.JSON_LINES
NO_VALUE = CSV_OPTIONS["nullValue"]
OPTIONS: dict[FileFormat, Mapping[str, str]] = {PARQUET: {}, CSV: CSV_OPTIONS, JSON: {}}

SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32) | st.just(-0.0)),
    (pa.float64(), st.floats() | st.just(-0.0)),
    (pa.decimal128(7, 2), st.decimals(-99999, 99999, places=2)),
    (pa.decimal128(38, 18), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-18"))),
    (pa.string(), st.text(max_size=6) | st.text('"\\,\n\r\t \x00\x7fé€😀', max_size=6)),
    (pa.date32(), st.dates() | st.integers(-(2**31), 2**31 - 1)),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC)) | st.integers(-(2**63), 2**63 - 1)),
    (pa.timestamp("us"), st.datetimes() | st.integers(-(2**63), 2**63 - 1)),
]
BINARY = (pa.binary(), st.binary(max_size=7))
INTERVAL = (pa.duration("us"), st.integers(-(2**63), 2**63 - 1))
TYPES = {CSV: SCALARS, JSON: [*SCALARS, BINARY], PARQUET: [*SCALARS, BINARY, INTERVAL]}
Kind = tuple[pa.DataType, st.SearchStrategy[Any]]


def _nested(inner: st.SearchStrategy[Kind], keys: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def many(kind: Kind) -> Kind:
        return pa.list_(kind[0]), st.lists(st.none() | kind[1], max_size=3)

    def struct(kinds: list[Kind]) -> Kind:
        fields = {f"f{n}": kind for n, kind in enumerate(kinds)}
        made = pa.struct([(name, kind[0]) for name, kind in fields.items()])
        return made, st.fixed_dictionaries({name: st.none() | kind[1] for name, kind in fields.items()})

    def mapped(pair: tuple[Kind, Kind]) -> Kind:
        key, value = pair
        entries = st.lists(st.tuples(key[1], st.none() | value[1]), max_size=3, unique_by=lambda one: repr(one[0]))
        return pa.map_(key[0], value[0]), entries

    return inner.map(many) | st.lists(inner, min_size=1, max_size=3).map(struct) | st.tuples(keys, inner).map(mapped)


def _kinds(written: FileFormat) -> st.SearchStrategy[Kind]:
    plain = st.sampled_from(TYPES[written])
    if written is CSV:
        return plain
    text = (pa.string(), st.text(max_size=5))
    keys = st.just(text) if written is JSON else st.sampled_from([text, (pa.int32(), st.integers(-9, 9)), BINARY])
    return st.recursive(plain, lambda inner: _nested(inner, keys), max_leaves=4)


@st.composite
def tables(draw: st.DrawFn, written: FileFormat) -> pa.Table:
    kinds = draw(st.lists(_kinds(written), min_size=1, max_size=8))
    rows = draw(st.integers(1, 5))
    columns = {}
    for number, (kind, values) in enumerate(kinds):
        possible = values if written is not CSV else values.filter(lambda one: one != NO_VALUE)
        found = draw(st.lists(st.none() | possible, min_size=rows, max_size=rows))
        columns[f"c{number}"] = pa.array(_numbers(found, kind), _as_numbers(kind)).cast(kind)
    return pa.table(columns)


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in the place of times, which Python does not have in all their years."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(_as_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_as_numbers(kind.key_type), _as_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _as_numbers(field.type)) for field in kind])
    return kind


def _numbers(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, list | tuple):
        return type(value)(_numbers(one, kind) for one in value)
    return {name: _numbers(one, kind) for name, one in value.items()} if isinstance(value, dict) else value


def rows(table: pa.Table) -> list[str]:
    """Each row as text that tells NaN, both zeros and every moment apart; in an order of its own."""
    plain = [column.cast(_as_numbers(column.type)).to_pylist() for column in table.columns]
    return sorted(repr(_sorted_maps(row)) for row in zip(*plain, strict=True))


def _sorted_maps(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(one, tuple) for one in value):
        return sorted(((key, _sorted_maps(one)) for key, one in value), key=repr)
    if isinstance(value, list | tuple):
        return [_sorted_maps(one) for one in value]
    if isinstance(value, dict):
        return {name: _sorted_maps(one) for name, one in value.items()}
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


class Formats:
    """Writes tables as a sink does, and reads them in every way."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session = session
        self._folder = folder
        self._made = 0

    def written(self, table: pa.Table, written: FileFormat) -> Path:
        """The folder with the sink's committed file."""
        self._made += 1
        folder = self._folder / str(self._made)
        context = SinkContext("job", "run", 1, "v", 0, "write", "operator 'write'")
        sink = FileWriter(context, FileSink(str(folder), written))
        sink.prepare(table.schema)
        sink.write(table)
        for pending in sink.seal(1):
            pending.persist(InlineBackend(1 << 20).writer(1))
        sink.commit(1)
        sink.close()
        return folder

    def by_spark(self, folder: Path, written: FileFormat, schema: pa.Schema) -> pa.Table:
        """Spark alone."""
        reader = self.session.read.schema(from_arrow_schema(schema)).options(**OPTIONS[written])
        read = {PARQUET: reader.parquet, CSV: reader.csv, JSON: reader.json}[written]
        found: pa.Table = read(str(folder)).toArrow()
        return found

    def by_source(self, folder: Path, written: FileFormat, schema: pa.Schema, by_slot: bool) -> pa.Table:
        """The source here, in small pieces."""
        ddl = checks.schema("read", from_arrow_schema(schema))
        kind = FileSource(path=str(folder), format=written, schema=ddl, options=OPTIONS[written])
        source = ParquetSource(kind, schema) if written is PARQUET else LineSource(kind, schema.names)
        source.assign(*listing.discover(kind, ()))
        spec = source.spec()
        assert spec is not None
        plan = Plan(self._leaf(spec, by_slot), lambda frame: frame, "the source")
        tables = []
        while isinstance(reading := source.read(40, 0), Reading):
            tables.append(plan.run(reading.content))
        plan.close()
        source.close()
        return pa.concat_tables(tables)

    def _leaf(self, spec: LeafSpec, by_slot: bool) -> SlotLeaf | TableLeaf:
        if by_slot:
            return SlotLeaf(self.session, spec, str(self._folder / f"{self._made}.slot"))
        return TableLeaf(self.session, spec)


@pytest.fixture(scope="module")
def formats(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> Formats:
    return Formats(engine._session.newSession(), tmp_path_factory.mktemp("formats"))


EXTREMES = pa.table(
    {
        "d": pa.array([-(2**31), 2**31 - 1, -719_529, 2_932_897], pa.int32()).cast(pa.date32()),
        "t": pa.array([-(2**63), 2**63 - 1, -(10**17), 10**18], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "n": pa.array([-(2**63), 2**63 - 1, -1, 0], pa.int64()).cast(pa.timestamp("us")),
        "x": [-0.0, math.inf, math.nan, 5e-324],
        "y": pa.array([-0.0, -math.inf, 3.4028234663852886e38, 1e-45], pa.float32()),
        "s": ["", 'a "b", \\', "line\r\nline", None],
        "z": pa.array([Decimal("1E-38"), Decimal("-0.5"), Decimal(0), None], pa.decimal128(38, 38)),
    }
)
FEW = settings(
    max_examples=int(os.environ.get("LOCKGATE_TEST_EXAMPLES", "8")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def _read_back(formats: Formats, written: FileFormat, table: pa.Table) -> None:
    folder = formats.written(table, written)
    expected = rows(table)
    assert rows(formats.by_spark(folder, written, table.schema)) == expected
    for by_slot in (True, False):
        assert rows(formats.by_source(folder, written, table.schema, by_slot)) == expected


@FEW
@example(EXTREMES)
@given(tables(JSON))
def test_json_is_read_back_equal(formats: Formats, table: pa.Table) -> None:
    _read_back(formats, JSON, table)


@FEW
@example(EXTREMES)
@given(tables(CSV))
def test_csv_is_read_back_equal(formats: Formats, table: pa.Table) -> None:
    _read_back(formats, CSV, table)


@FEW
@example(EXTREMES)
@given(tables(PARQUET))
def test_parquet_is_read_back_equal(formats: Formats, table: pa.Table) -> None:
    _read_back(formats, PARQUET, table)


def test_spark_s_own_parquet_is_read_as_spark_reads_it(formats: Formats, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    moments = ", ".join(f"(TIMESTAMP'{one}')" for one in ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"))
    query = f"SELECT t, array(t) AS a, map('k', t) AS m, CAST(t AS TIMESTAMP_NTZ) AS n FROM VALUES {moments} AS v(t)"
    formats.session.sql(query).write.parquet(str(folder))
    expected = formats.session.read.parquet(str(folder))
    kind = FileSource(path=str(folder), format=PARQUET)
    source = ParquetSource(kind, None)
    source.assign(*listing.discover(kind, ()))
    spec = source.spec()
    assert spec is not None
    assert spec.table is not None
    assert [from_arrow_schema(spec.table)[name].dataType for name in "tamn"] == [
        expected.schema[name].dataType for name in "tamn"
    ]
    assert rows(formats.by_source(folder, PARQUET, spec.table, by_slot=True)) == rows(expected.toArrow())


@pytest.mark.parametrize(
    ("written", "kind", "message"),
    [
        (CSV, pa.binary(), r"CSV cannot hold column 'c' \(BINARY\): .* base64"),
        (CSV, pa.list_(pa.int64()), r"CSV cannot hold column 'c' \(ARRAY<BIGINT>\)"),
        (CSV, pa.duration("us"), "CSV cannot hold column 'c' .INTERVAL DAY TO SECOND.: CAST it to STRING"),
        (JSON, pa.duration("us"), "JSON cannot hold column 'c' .INTERVAL DAY TO SECOND"),
        (JSON, pa.list_(pa.struct([("x", pa.duration("us"))])), "JSON cannot hold column 'c.element.x'"),
        (JSON, pa.map_(pa.int32(), pa.string()), r"JSON cannot hold column 'c' \(MAP<INT,STRING>\): .*STRING"),
        (JSON, pa.struct([("x", pa.int32()), ("X", pa.int32())]), "two of its fields are named 'X'"),
        (PARQUET, pa.struct([]), "Parquet cannot hold column 'c'.*no fields"),
        (PARQUET, pa.time64("us"), "Parquet cannot hold column 'c'"),
        (JSON, pa.float16(), "JSON cannot hold column 'c'"),
    ],
)
def test_types_that_a_format_does_not_hold_are_refused_before_the_first_record(
    tmp_path: Path, written: FileFormat, kind: pa.DataType, message: str
) -> None:
    sink = FileWriter(SinkContext("job", "run", 1, "v", 0, "w", "operator 'w'"), FileSink(str(tmp_path), written))
    with pytest.raises(UserError, match=f"operator 'w': .*{message}"):
        sink.prepare(pa.schema([("a", pa.int64()), ("c", kind)]))
