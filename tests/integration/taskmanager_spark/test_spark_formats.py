"""What a file sink writes is read back equal with the same schema: by Spark alone, and by the sources here.

Random schemas, nested ones too, with random values in every type that a format holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lockgate_proto.messages import FileFormat, FileSink, FileSource
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import LeafSpec, SlotLeaf, TableLeaf
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.spark.sources import listing
from lockgate_taskmanager.spark.sources.lines import LineSource
from lockgate_taskmanager.spark.sources.parquet import ParquetSource
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import UserError
from pyspark.sql.pandas.types import from_arrow_schema

from lockgate import CSV_OPTIONS
from lockgate.pipeline import checks
from tests.values import BINARY, EXTREMES, FEW, INTERVAL, MAP_KEYS, SCALARS, Kind, array, nested, rows

pytestmark = pytest.mark.integration

PARQUET, CSV, JSON = FileFormat.PARQUET, FileFormat.CSV, FileFormat.JSON_LINES
NO_VALUE = CSV_OPTIONS["nullValue"]
OPTIONS: dict[FileFormat, Mapping[str, str]] = {PARQUET: {}, CSV: CSV_OPTIONS, JSON: {}}

TYPES = {CSV: SCALARS, JSON: [*SCALARS, BINARY], PARQUET: [*SCALARS, BINARY, INTERVAL]}


def _kinds(written: FileFormat) -> st.SearchStrategy[Kind]:
    if written is CSV:
        return st.sampled_from(TYPES[CSV])
    return nested(TYPES[written], MAP_KEYS[:1] if written is JSON else MAP_KEYS)


@st.composite
def tables(draw: st.DrawFn, written: FileFormat) -> pa.Table:
    kinds = draw(st.lists(_kinds(written), min_size=1, max_size=8))
    count = draw(st.integers(1, 5))
    columns = {}
    for number, (kind, values) in enumerate(kinds):
        possible = values if written is not CSV else values.filter(lambda value: value != NO_VALUE)
        found = draw(st.lists(st.none() | possible, min_size=count, max_size=count))
        columns[f"c{number}"] = array(found, kind)
    return pa.table(columns)


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
    moments = ", ".join(f"(TIMESTAMP'{text}')" for text in ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999"))
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
