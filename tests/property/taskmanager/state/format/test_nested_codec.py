"""Columns of any type through bytes: lists in structs in maps, NULL and empty at every depth."""

from __future__ import annotations

import datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.format import row_codec
from lockgate_taskmanager.state.format.nested_codec import flat, flat_types, nested
from lockgate_taskmanager.task.program import UserError

LEAVES: dict[pa.DataType, Any] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.time64("us"): st.times(),
    pa.month_day_nano_interval(): st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    pa.null(): st.none(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(datetime.UTC)),
}
Kind = tuple[pa.DataType, Any]  # with what makes values


def with_null(kind: Kind) -> Any:
    return st.one_of(st.none(), kind[1])


def struct_of(children: list[Kind]) -> Kind:
    names = [f"f{number}" for number in range(len(children))]
    fields = [pa.field(name, kind) for name, (kind, _) in zip(names, children, strict=True)]
    return pa.struct(fields), st.fixed_dictionaries(dict(zip(names, map(with_null, children), strict=True)))


def list_of(child: Kind) -> Kind:
    return pa.list_(child[0]), st.lists(with_null(child), max_size=3)


def large_list_of(child: Kind) -> Kind:
    return pa.large_list(child[0]), st.lists(with_null(child), max_size=3)


def map_of(child: Kind) -> Kind:
    return pa.map_(pa.string(), child[0]), st.lists(st.tuples(st.text(max_size=2), with_null(child)), max_size=3)


leaves = st.sampled_from(list(LEAVES.items()))
kinds = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(struct_of),
        inner.map(list_of),
        inner.map(large_list_of),
        inner.map(map_of),
    ),
    max_leaves=4,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(kinds, min_size=1, max_size=3), st.integers(0, 6), st.integers(0, 2), st.data())
def test_columns_come_back_as_they_were(chosen: list[Kind], count: int, skipped: int, data: Any) -> None:
    columns = [
        pa.array(data.draw(st.lists(with_null(kind), min_size=count, max_size=count)), kind[0]).slice(skipped)
        for kind in chosen
    ]
    types = [flat_type for kind, _ in chosen for flat_type in flat_types(kind)]
    there = [array for column in columns for array in flat(column)]
    assert [array.type for array in there] == types
    back = nested(row_codec.decode(row_codec.encode(there), types), [kind for kind, _ in chosen])
    for mine, column in zip(back, columns, strict=True):
        mine.validate(full=True)
        assert mine.type == column.type
        assert mine.to_pylist() == column.to_pylist()


def test_fields_that_are_never_null_stay_so() -> None:
    inner = pa.struct([pa.field("a", pa.int64(), nullable=False)])
    kind = pa.struct(
        [pa.field("b", inner, nullable=False), pa.field("c", pa.list_(pa.field("x", inner, nullable=False)))]
    )
    column = pa.array([None, {"b": {"a": 1}, "c": [{"a": 2}]}], kind)
    (back,) = nested(row_codec.decode(row_codec.encode(flat(column)), flat_types(kind)), [kind])
    back.validate(full=True)
    assert back.type == kind
    assert back.to_pylist() == column.to_pylist()


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.string_view())])
def test_a_type_that_cannot_be_stored_is_reported(kind: pa.DataType) -> None:
    with pytest.raises(UserError, match="cannot be kept in rocksdb; cast them, or use another state backend"):
        flat_types(kind)
