"""Keyed state against plain Python, value by value: what Spark's aggregates would say."""

from __future__ import annotations

import datetime as dt
import hashlib
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate
from lockgate_taskmanager.state.aggregates.keyed_state import KeyedState
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.layout import parts
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import DataError, StateUnreadable, UserError

COUNT, SUM, MIN, MAX, AVG = (AggregateFunction(n) for n in (1, 2, 3, 4, 5))


def spec_of(operator: KeyedAggregate) -> StoreSpec:
    return StoreSpec("count", operator, 128, range(128))


def state_of(function: AggregateFunction, kind: pa.DataType, key: pa.DataType | None = None) -> KeyedState:
    operator = KeyedAggregate(keys=("k",), aggregates=(Aggregate("out", function, "v"),))
    columns = [("k", key or pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64())]
    kinds = {AVG: [pa.float64(), pa.int64()]}.get(function, [kind])
    names = [part.column for part in parts(operator)]
    return KeyedState(spec_of(operator), pa.schema(columns + list(zip(names, kinds, strict=True))))


def hash_of(key: Any) -> int:
    """Any well mixed hash will do."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "little", signed=True)


def partial(state: KeyedState, keys: list[Any], *columns: list[Any]) -> pa.Table:
    size = len(keys)
    schema = state.partial_schema
    values = [keys, [hash_of(key) for key in keys], [1] * size, *columns]
    return pa.table([pa.array(v, schema.field(i).type) for i, v in enumerate(values)], schema=schema)


def outputs(table: pa.Table) -> dict[Any, Any]:
    return dict(zip(table.column("k").to_pylist(), table.column("out").to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("function", "kind", "first", "second", "expected"),
    [
        (SUM, pa.int64(), 2, 3, 5),
        (SUM, pa.int64(), None, 3, 3),
        (SUM, pa.int64(), None, None, None),
        (SUM, pa.float64(), 0.5, 0.25, 0.75),
        (SUM, pa.decimal128(20, 2), Decimal("1.10"), Decimal("-3.35"), Decimal("-2.25")),
        (SUM, pa.decimal128(38, 2), Decimal("1.10"), Decimal("2.20"), Decimal("3.30")),
        (SUM, pa.decimal128(38, 2), None, Decimal("2.20"), Decimal("2.20")),
        (COUNT, pa.int64(), 2, 3, 5),
        (MIN, pa.int64(), 2, 3, 2),
        (MAX, pa.int64(), 2, None, 2),
        (MAX, pa.int32(), None, -4, -4),
        (MIN, pa.float64(), math.nan, 3.0, 3.0),
        (MAX, pa.float32(), 1.5, 3.0, 3.0),
        (MIN, pa.string(), "b", "a", "a"),
        (MAX, pa.string(), "é", "z", "é"),
        (MAX, pa.string(), None, "z", "z"),
        (MIN, pa.binary(), b"\xff", b"\x00", b"\x00"),
        (MAX, pa.date32(), dt.date(2020, 1, 1), dt.date(2021, 1, 1), dt.date(2021, 1, 1)),
        (MIN, pa.timestamp("us"), dt.datetime(2020, 1, 1), dt.datetime(2019, 1, 1), dt.datetime(2019, 1, 1)),
        (MIN, pa.decimal128(10, 2), Decimal("1.10"), Decimal("-1.10"), Decimal("-1.10")),
        (MAX, pa.bool_(), False, True, True),
    ],
)
def test_folds_like_spark(function: Any, kind: pa.DataType, first: Any, second: Any, expected: Any) -> None:
    state = state_of(function, kind)
    state.merge(partial(state, ["x", "other"], [first, first]))
    merged = state.merge(partial(state, ["x"], [second]))
    assert outputs(merged.changed) == {"x": expected}
    assert merged.changed.schema.field("out").type == kind
    assert len(state) == 2


def test_the_largest_double_is_nan() -> None:
    state = state_of(MAX, pa.float64())
    state.merge(partial(state, ["x"], [math.nan]))
    assert math.isnan(outputs(state.merge(partial(state, ["x"], [7.0])).changed)["x"])


def test_average_is_sum_by_count_and_null_without_values() -> None:
    state = state_of(AVG, pa.float64())
    state.merge(partial(state, ["x", "y"], [3.0, None], [2, 0]))
    merged = state.merge(partial(state, ["x", "y"], [3.0, None], [1, 0]))
    assert outputs(merged.changed) == {"x": 2.0, "y": None}


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.string(), ["a", None, "b"]),
        (pa.int64(), [1, None, -1]),
        (pa.float64(), [math.nan, None, 0.5]),
        (pa.timestamp("us", "UTC"), [1, None, 3]),
        (pa.date32(), [1, None, 3]),
        (pa.decimal128(10, 2), [Decimal("1.00"), None, Decimal("2.50")]),
        (pa.bool_(), [True, None, False]),
    ],
)
def test_every_plain_type_is_a_key_and_so_is_null(kind: pa.DataType, keys: list[Any]) -> None:
    state = state_of(COUNT, pa.int64(), kind)
    for _ in range(2):
        merged = state.merge(partial(state, keys, [1, 2, 3]))
    assert merged.changed.column("out").to_pylist() == [2, 4, 6]
    assert len(state) == 3


def test_two_key_columns() -> None:
    operator = KeyedAggregate(keys=("a", "b"), aggregates=(Aggregate("n", COUNT, ""),))
    fields = [("a", pa.string()), ("b", pa.int64()), ("__hash", pa.int64()), ("__rows", pa.int64())]
    state = KeyedState(spec_of(operator), pa.schema(fields))
    rows = pa.table([["x", "x", None], [1, None, None], [5, -6, 7 << 50], [1, 2, 3]], schema=pa.schema(fields))
    state.merge(rows)
    assert state.merge(rows).changed.column("n").to_pylist() == [2, 4, 6]


def test_a_key_twice_in_one_batch_counts_twice_and_is_emitted_once() -> None:
    state = state_of(SUM, pa.int64())
    merged = state.merge(partial(state, ["x", "y", "x", "x"], [1, 10, 2, 3]))
    assert outputs(merged.changed) == {"x": 6, "y": 10}
    assert merged.changed.num_rows == 2
    assert merged.records == 4


@pytest.mark.parametrize(("function", "kind", "big"), [(SUM, pa.int64(), 2**62), (COUNT, pa.int64(), 2**62)])
def test_an_overflow_is_an_error_and_never_wraps(function: Any, kind: pa.DataType, big: int) -> None:
    state = state_of(function, kind)
    state.merge(partial(state, ["x"], [big]))
    with pytest.raises(DataError, match=r"'out'.*64-bit"):
        state.merge(partial(state, ["x"], [big]))


def test_a_decimal_overflow_is_an_error() -> None:
    state = state_of(SUM, pa.decimal128(38, 0))
    big = Decimal("9" * 38)
    state.merge(partial(state, ["x"], [big]))
    with pytest.raises(DataError, match="does not fit"):
        state.merge(partial(state, ["x"], [big]))


def test_a_string_cannot_be_summed() -> None:
    with pytest.raises(UserError, match=r"'out'.*cannot be summed"):
        state_of(SUM, pa.string())


def test_a_missing_key_column_names_the_columns() -> None:
    operator = KeyedAggregate(keys=("nope",), aggregates=())
    with pytest.raises(UserError, match="no column 'nope'; its columns are k"):
        KeyedState(spec_of(operator), pa.schema([("k", pa.string())]))


def test_a_list_cannot_be_a_key() -> None:
    with pytest.raises(UserError, match="cannot be a key"):
        state_of(COUNT, pa.int64(), pa.list_(pa.int64()))


def round_trip(state: KeyedState, wanted: range = range(128)) -> KeyedState:
    operator = state._operator
    found = state_file.read(
        state.freeze().to_buffer(), "f", signature=state_file.signature(operator), max_parallelism=128, wanted=wanted
    )
    again = KeyedState(spec_of(operator), found.about.partial_schema)
    again.restore([found])
    return again


@pytest.mark.parametrize(
    ("function", "kind", "values"),
    [
        (SUM, pa.int64(), [5, None, -7]),
        (SUM, pa.decimal128(20, 2), [Decimal("1.10"), None, Decimal("-2.25")]),
        (MIN, pa.string(), ["a", None, "c"]),
        (MAX, pa.timestamp("us", "UTC"), [1, None, 3]),
        (MAX, pa.float64(), [1.5, None, math.inf]),
    ],
)
def test_a_snapshot_restores_every_value(function: Any, kind: pa.DataType, values: list[Any]) -> None:
    state = state_of(function, kind)
    state.merge(partial(state, ["x", None, "z"], values))
    again = round_trip(state)
    nothing: list[Any] = [None, None, None]
    expected = outputs(state.merge(partial(state, ["x", None, "z"], nothing)).changed)
    assert outputs(again.merge(partial(again, ["x", None, "z"], nothing)).changed) == expected
    assert len(again) == 3


def test_restoring_takes_only_the_wanted_key_groups() -> None:
    state = state_of(COUNT, pa.int64())
    table = partial(state, [f"k{i}" for i in range(128)], [1] * 128)
    hashes = np.arange(128) + 128 * np.random.default_rng(1).integers(-(2**50), 2**50, 128)
    table = table.set_column(1, "__hash", pa.array(hashes))
    state.merge(table)
    again = round_trip(state, key_group_range(1, 4, 128))
    assert len(again) == 32
    twice = round_trip(again)
    assert sorted(outputs(twice.merge(table.slice(32, 32)).changed)) == sorted(f"k{i}" for i in range(32, 64))
    assert len(twice) == 32


def test_key_group_ranges_cover_every_group_once() -> None:
    for parallelism in (1, 2, 3, 5, 7, 128):
        groups = [group for i in range(parallelism) for group in key_group_range(i, parallelism, 128)]
        assert groups == list(range(128))
        for i in range(parallelism):
            assert all(g * parallelism // 128 == i for g in key_group_range(i, parallelism, 128))


def test_state_of_another_aggregate_is_refused() -> None:
    state = state_of(COUNT, pa.int64())
    state.merge(partial(state, ["x"], [1]))
    other = state_file.signature(KeyedAggregate(keys=("k",), aggregates=()))
    data = state.freeze().to_buffer()
    with pytest.raises(StateUnreadable, match="file-name belongs to another aggregate"):
        state_file.read(data, "file-name", signature=other, max_parallelism=128, wanted=range(128))


def test_bytes_that_are_not_state_are_reported_with_the_file() -> None:
    with pytest.raises(StateUnreadable, match="file-name"):
        state_file.read(pa.py_buffer(b"junk"), "file-name", signature="", max_parallelism=128, wanted=range(128))


def test_freezing_copies_nothing_and_a_released_snapshot_costs_no_copy() -> None:
    state = state_of(SUM, pa.int64())
    state.merge(partial(state, ["x"], [1]))
    before = state._columns._columns[0]._values
    frozen = state.freeze()
    assert state._columns._columns[0]._values is before
    frozen.release()
    state.merge(partial(state, ["x"], [1]))
    assert state._columns._columns[0]._values is before, "the snapshot is not read any more"
    state.freeze()
    state.merge(partial(state, ["x"], [1]))
    assert state._columns._columns[0]._values is not before, "the second snapshot is still being read"


def test_the_memory_of_an_old_snapshot_is_copied_into() -> None:
    state = state_of(SUM, pa.int64())
    state.merge(partial(state, ["x"], [1]))
    arrays = set()
    for _ in range(5):
        frozen = state.freeze()
        state.merge(partial(state, ["x"], [1]))
        arrays.add(id(state._columns._columns[0]._values))
        frozen.release()
    assert len(arrays) == 2
    assert outputs(state.merge(partial(state, ["x"], [0])).changed) == {"x": 6}
