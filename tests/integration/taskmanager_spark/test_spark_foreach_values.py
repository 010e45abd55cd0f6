"""The function of a foreach_batch sink gets the rows of the stream equal, with its schema, by commit and by restore."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lockgate_proto.messages import SinkTransaction
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.leaf import frame_of
from lockgate_taskmanager.spark.sinks.foreach import ForeachBatchSink
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.state.backend import FileBackend
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tests.values import BINARY, EXTREMES, FEW, INTERVAL, MAP_KEYS, SCALARS, Kind, array, nested, rows

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

KINDS: st.SearchStrategy[Kind] = nested([*SCALARS, BINARY, INTERVAL], MAP_KEYS)
LONGEST = array([-(2**63), 2**63 - 1, 0, None], INTERVAL[0])


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    kinds = draw(st.lists(KINDS, min_size=1, max_size=6))
    count = draw(st.integers(1, 5))
    return pa.table(
        {
            f"c{number}": array(draw(st.lists(st.none() | values, min_size=count, max_size=count)), kind)
            for number, (kind, values) in enumerate(kinds)
        }
    )


class Calls:
    """The calls of a function, and sinks that make them."""

    def __init__(self, session: SparkSession, folder: str) -> None:
        self._session = session
        self._run = folder  # one of its own: no attempt follows upon another example's
        self._backend = FileBackend(folder, "a")
        self.made: list[tuple[int, pa.Table]] = []
        self.schemas: set[Any] = set()

    def sink(self, attempt: int) -> ForeachBatchSink:
        context = SinkContext("job", self._run, attempt, "v", 0, "op", "operator 'op'")
        return ForeachBatchSink(context, self._called, partial(frame_of, self._session))

    def persist(self, sink: ForeachBatchSink, checkpoint_id: int) -> Sequence[SinkTransaction]:
        writer = self._backend.writer(checkpoint_id)
        return [pending.persist(writer) for pending in sink.seal(checkpoint_id)]

    def _called(self, frame: Any, checkpoint_id: int) -> None:
        self.schemas.add(frame.schema.json())
        self.made.append((checkpoint_id, frame.toArrow()))


@FEW
@example(EXTREMES.append_column("i", LONGEST), 4)
@example(pa.table({"c": pa.array([[1], None, [2]], pa.list_(pa.timestamp("us")))}).slice(1), 2)
@given(tables(), st.integers(1, 5))
def test_every_row_arrives_equal(
    engine: SparkEngine, tmp_path_factory: pytest.TempPathFactory, table: pa.Table, at_once: int
) -> None:
    calls = Calls(engine._session, str(tmp_path_factory.mktemp("state")))
    sink = calls.sink(1)
    for row in range(0, table.num_rows, at_once):
        sink.write(table.slice(row, at_once))
    pending = calls.persist(sink, 1)
    sink.commit(1)
    calls.sink(2).restore(pending)
    assert [checkpoint_id for checkpoint_id, _ in calls.made] == [1, 1]
    assert calls.schemas == {from_arrow_schema(table.schema).json()}
    for _, found in calls.made:
        assert rows(found) == rows(table)
