"""Rows as bytes and back, for every type that a key or an aggregate can have."""

from __future__ import annotations

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.task.program import UserError

_D = decimal.Decimal
VALUES: dict[pa.DataType, Any] = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
    pa.decimal128(20, 3): st.integers(-(10**19), 10**19).map(lambda number: _D(number).scaleb(-3)),
    pa.string(): st.text(max_size=5),
    pa.binary(): st.binary(max_size=5),
}
kinds = st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4)


@st.composite
def tables(draw: Any) -> list[pa.Array]:
    count = draw(st.integers(0, 8))
    return [
        pa.array(draw(st.lists(st.one_of(st.none(), VALUES[kind]), min_size=count, max_size=count)), kind)
        for kind in draw(kinds)
    ]


@settings(max_examples=200, deadline=None)
@given(tables(), st.integers(0, 3))
def test_rows_come_back_as_they_were(columns: list[pa.Array], skipped: int) -> None:
    columns = [column.slice(skipped) for column in columns]  # a slice has an offset into its buffers
    rows = row_codec.encode(columns)
    assert len(rows) == len(columns[0])
    back = row_codec.decode(rows, [column.type for column in columns])
    assert [item.to_pylist() for item in back] == [column.to_pylist() for column in columns]
    assert [item.type for item in back] == [column.type for column in columns]
    for item in back:
        item.validate(full=True)


@settings(max_examples=100, deadline=None)
@given(tables())
def test_equal_rows_and_no_others_are_equal_bytes(columns: list[pa.Array]) -> None:
    rows = row_codec.encode(columns)
    values = [tuple(repr(column[i].as_py()) for column in columns) for i in range(len(rows))]
    for i, row in enumerate(rows):
        for j, other in enumerate(rows):
            assert (row == other) == (values[i] == values[j])


def test_values_under_a_null_do_not_count() -> None:
    noisy = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.array([7, 8]).buffers()[1]])
    assert row_codec.encode([noisy]) == row_codec.encode([pa.array([None, 8], pa.int64())])


def test_bytes_of_other_types_are_refused() -> None:
    rows = row_codec.encode([pa.array([1, 2])])
    with pytest.raises((ValueError, IndexError)):
        row_codec.decode(rows, [pa.int64(), pa.int64()])
    with pytest.raises((ValueError, IndexError)):
        row_codec.decode(rows, [pa.int32()])


def test_a_type_that_cannot_be_encoded_is_reported() -> None:
    row_codec.check_types(list(VALUES))
    with pytest.raises(UserError, match=r"dictionary.*cannot be kept in rocksdb"):
        row_codec.check_types([pa.dictionary(pa.int32(), pa.string())])
