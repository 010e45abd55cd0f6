"""What a Delta table is given it gives back equal, with the same schema: to delta-rs, and to Spark from the files.

Spark's own jar for Delta is not on PyPI, so Spark reads the files that the log names, with the schema that it tells.
"""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from hypothesis import assume, example, given
from hypothesis import strategies as st
from lockgate_proto.messages import DeltaSink as DeltaOptions
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.sinks.delta import DeltaSink
from lockgate_taskmanager.spark.sinks.delta_fit import hides_times
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import InlineBackend
from lockgate_taskmanager.task.program import UserError
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tests.values import BINARY, EXTREMES, FEW, MAP_KEYS, SCALARS, Kind, array, nested, rows

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

KINDS: st.SearchStrategy[Kind] = nested([*SCALARS, BINARY], MAP_KEYS)
NAMES = [
    "a",
    "order",
    "50%",
    "%20",
    "x.y",
    "it's",
    'say"so"',
    "[0]",
    "ключ",
    "Upper",
    "a/b",
    "a:b",
    "`",
    "\\",
    "#",
    "+",
]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique_by=str.casefold))
    count = draw(st.integers(1, 5))
    columns = {}
    for name in names:
        kind, values = draw(KINDS)
        columns[name] = array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
    made = pa.table(columns)
    assume(not hides_times(json.loads(Schema.from_arrow(made.schema).to_json())))  # refused: see below
    return made


class DeltaTables:
    """Writes tables as the sink does, in two commits, and reads them in both ways."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._made = 0

    def written(self, table: pa.Table) -> DeltaTable:
        """The table with the rows."""
        self._made += 1
        folder, middle = self._folder / str(self._made), table.num_rows // 2
        sink = writer(folder, table.schema)
        for checkpoint_id, part in enumerate((table.slice(0, middle), table.slice(middle)), 1):
            sink.write(part)
            for pending in sink.seal(checkpoint_id):
                pending.persist(InlineBackend(1 << 20).writer(checkpoint_id))
            sink.commit(checkpoint_id)
        sink.close()
        return DeltaTable(folder)

    def by_spark(self, made: DeltaTable) -> pa.Table:
        """Spark alone."""
        schema = StructType.fromJson(_json(made))
        found: pa.Table = self._session.read.schema(schema).parquet(*made.file_uris()).toArrow()
        return found


def _json(made: DeltaTable) -> dict[str, object]:
    found: dict[str, object] = json.loads(made.schema().to_json())
    return found


def writer(folder: Path, schema: pa.Schema) -> DeltaSink:
    sink = DeltaSink(SinkContext("job", "run", 1, "v", 0, "op", "operator 'op'"), DeltaOptions(str(folder)))
    sink.prepare(schema)
    return sink


@pytest.fixture(scope="module")
def delta(engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory) -> DeltaTables:
    return DeltaTables(engine._session.newSession(), tmp_path_factory.mktemp("delta"))


@FEW
@example(EXTREMES)
@given(tables())
def test_every_row_is_read_back_equal(delta: DeltaTables, table: pa.Table) -> None:
    made, expected = delta.written(table), rows(table)
    assert StructType.fromJson(_json(made)) == from_arrow_schema(table.schema)
    assert rows(made.to_pyarrow_table().cast(table.schema)) == expected
    assert rows(delta.by_spark(made)) == expected


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.duration("us"), r"column 'c' of type duration\[us\] has no counterpart in Delta"),
        (pa.list_(pa.duration("us")), "column 'c' of type list<.*> has no counterpart in Delta"),
        (pa.null(), "column 'c' of type null has no counterpart in Delta"),
        (pa.time64("us"), r"column 'c' of type time64\[us\] has no counterpart in Delta"),
        (pa.float16(), "column 'c' of type halffloat has no counterpart in Delta"),
        (pa.struct([]), r"Parquet cannot hold column 'c' \(STRUCT<>\): it has no fields"),
        (pa.list_(pa.struct([("x", pa.struct([]))])), "Parquet cannot hold column 'c.element.x' .*: it has no fields"),
        (pa.uint8(), "Parquet cannot hold column 'c'"),
        (
            pa.map_(pa.string(), pa.timestamp("us")),
            "delta-rs cannot create a table whose only TIMESTAMP_NTZ",
        ),
        (pa.list_(pa.map_(pa.timestamp("us"), pa.int8())), "delta-rs cannot create a table whose only TIMESTAMP_NTZ"),
    ],
)
def test_types_that_delta_does_not_hold_are_refused_before_the_first_record(
    tmp_path: Path, kind: pa.DataType, message: str
) -> None:
    with pytest.raises(UserError, match=f"operator 'op': {message}"):
        writer(tmp_path, pa.schema([("a", pa.int64()), ("c", kind)]))


def test_times_in_maps_are_read_back_where_the_table_has_such_times_elsewhere(delta: DeltaTables) -> None:
    moment = dt.datetime(2026, 1, 1)
    maps = pa.array([[("a", moment)], None], pa.map_(pa.string(), pa.timestamp("us")))
    table = pa.table({"m": maps, "t": pa.array([moment, None], pa.timestamp("us"))})
    assert rows(delta.by_spark(delta.written(table))) == rows(table)
