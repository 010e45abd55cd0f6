"""Ranges of rows are folded in few steps, and to what their rows give one after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate
from lockgate_taskmanager.state.columns.aggregate_columns import AggregateColumns
from lockgate_taskmanager.state.columns.folded import Column
from lockgate_taskmanager.state.layout import Fold, parts
from lockgate_taskmanager.task.program import DataError

OPERATOR = KeyedAggregate(
    ("k",),
    (
        Aggregate("total", AggregateFunction.SUM, "v"),
        Aggregate("smallest", AggregateFunction.MIN, "v"),
        Aggregate("n", AggregateFunction.COUNT, ""),
    ),
)
LARGEST = 2**63 - 1


def columns_of(values: list[int | None]) -> AggregateColumns:
    """A row for each value."""
    columns = {
        part.column: pa.array([1] * len(values) if part.fold is Fold.COUNT else values, pa.int64())
        for part in parts(OPERATOR)
    }
    made = AggregateColumns(OPERATOR, pa.schema([(name, pa.int64()) for name in columns]))
    made.reserve(len(values))
    made.fold(np.arange(len(values)), pa.RecordBatch.from_pydict(columns))
    return made


@given(st.lists(st.one_of(st.none(), st.integers(-1000, 1000)), min_size=1, max_size=70), st.data())
def test_ranges_are_the_fold_of_their_rows(values: list[int | None], data: st.DataObject) -> None:
    bounds = st.tuples(st.integers(0, len(values) - 1), st.integers(1, len(values))).filter(lambda b: b[0] < b[1])
    ranges = data.draw(st.lists(bounds, max_size=20))
    first = np.array([start for start, _ in ranges], np.int64)
    counts = np.array([end - start for start, end in ranges], np.int64)
    total = columns_of(values).over_ranges(first, counts)
    sums, smallest, numbers = (column.to_pylist() for column in total.results(np.arange(len(ranges))))
    for place, (start, end) in enumerate(ranges):
        known = [value for value in values[start:end] if value is not None]
        assert numbers[place] == end - start
        assert sums[place] == (sum(known) if known else None)
        assert smallest[place] == min(known, default=None)


def test_neighbours_that_are_in_no_range_together_do_not_overflow() -> None:
    total = columns_of([1, LARGEST, LARGEST, -1, 7]).over_ranges(np.array([0, 2, 3]), np.array([1, 2, 2]))
    assert total.results(np.arange(3))[0].to_pylist() == [1, LARGEST - 1, 6]


def test_a_range_that_overflows_is_an_error_of_its_aggregate() -> None:
    with pytest.raises(DataError, match="total"):
        columns_of([1, LARGEST, LARGEST]).over_ranges(np.array([1]), np.array([2]))


def test_a_long_range_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    columns, merge, steps = columns_of([1] * 50_000), Column.merge, []

    def counted(column: Column, rows: np.ndarray, values: pa.Array) -> None:
        steps.append(len(rows))
        merge(column, rows, values)

    monkeypatch.setattr(Column, "merge", counted)
    total = columns.over_ranges(np.array([0, 3]), np.array([50_000, 49_000]))
    assert total.results(np.arange(2))[0].to_pylist() == [50_000, 49_000]
    assert len(steps) <= 3 * len(parts(OPERATOR)) * 16
