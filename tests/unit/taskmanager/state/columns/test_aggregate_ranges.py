"""Ranges of rows, and rows that come often, are folded in few steps, to what they give one after the other."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate
from lockgate_taskmanager.state.columns import aggregate_columns
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


def partial(values: list[int | None]) -> pa.RecordBatch:
    columns = {
        part.column: pa.array([1] * len(values) if part.fold is Fold.COUNT else values, pa.int64())
        for part in parts(OPERATOR)
    }
    return pa.RecordBatch.from_pydict(columns)


def columns_of(values: list[int | None]) -> AggregateColumns:
    """A row for each value."""
    batch = partial(values)
    made = AggregateColumns(OPERATOR, batch.schema)
    made.reserve(len(values))
    made.fold(np.arange(len(values)), batch)
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


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The values that each merge into a column has had."""
    merge, found = Column.merge, list[int]()

    def counted(column: Column, rows: np.ndarray, values: pa.Array) -> None:
        found.append(len(rows))
        merge(column, rows, values)

    monkeypatch.setattr(Column, "merge", counted)
    return found


def test_a_long_range_takes_few_steps(steps: list[int]) -> None:
    columns = columns_of([1] * 50_000)
    steps.clear()
    total = columns.over_ranges(np.array([0, 3]), np.array([50_000, 49_000]))
    assert total.results(np.arange(2))[0].to_pylist() == [50_000, 49_000]
    assert len(steps) <= 3 * len(parts(OPERATOR)) * 16


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(-1000, 1000))), max_size=120),
    st.sampled_from([0, 1, 32]),
)
def test_rows_that_come_often_are_folded_once_each(records: list[tuple[int, int | None]], most_left: int) -> None:
    """However many rounds there are before the rest is added up by row."""
    rows, values = np.array([row for row, _ in records], np.int64), [value for _, value in records]
    folded, taken_in = columns_of([7] * 6), columns_of([7] * 6 + values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(aggregate_columns, "_MOST_LEFT", most_left)
        once = folded.fold(rows, partial(values))
    assert sorted(rows if once is None else rows[once]) == sorted(set(rows.tolist()))
    taken_in.take_in(rows, np.arange(6, 6 + len(rows)))
    for columns in (folded, taken_in):
        sums, smallest, numbers = (column.to_pylist() for column in columns.results(np.arange(6)))
        for row in range(6):
            known = [7, *(value for mine, value in records if mine == row and value is not None)]
            assert numbers[row] == 1 + rows.tolist().count(row)
            assert (sums[row], smallest[row]) == (sum(known), min(known))


def test_values_of_a_row_that_comes_often_overflow_with_the_name_of_their_aggregate() -> None:
    with pytest.raises(DataError, match="total"):
        columns_of([0]).fold(np.zeros(100, np.int64), partial([LARGEST] * 100))


def test_rows_that_come_often_take_few_steps(steps: list[int]) -> None:
    count = 20_000
    rows = np.repeat(np.arange(3), [count, 2, 1])
    folded, taken_in = columns_of([0] * 3), columns_of([0] * 3 + [1] * len(rows))
    steps.clear()
    folded.fold(rows, partial([1] * len(rows)))
    taken_in.take_in(rows, np.arange(3, 3 + len(rows)))
    for columns in (folded, taken_in):
        assert columns.results(np.arange(3))[0].to_pylist() == [count, 2, 1]
    assert len(steps) <= 2 * len(parts(OPERATOR)) * 30
    assert sum(steps) <= 2 * len(parts(OPERATOR)) * 3 * len(rows)
