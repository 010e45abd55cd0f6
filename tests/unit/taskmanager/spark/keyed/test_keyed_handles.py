"""State handles of process functions: what they give is the function's own."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.keyed.handles import Cells, ListHandle, MapHandle, NumberHandle, ValueHandle, converter

PAIR = converter(pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]), "it")
TEXT = converter(pa.string(), "its key")


def pair() -> dict[str, Any]:
    return {"a": 1, "b": ["x"]}


def spoil(given: dict[str, Any]) -> None:
    given["a"] = object()
    given["b"].append(2)


def test_values_of_a_value_state_are_copies() -> None:
    state, taken = ValueHandle(Cells(), "s", PAIR, 0), pair()
    state.set(taken)
    spoil(taken)
    spoil(state.get())
    assert state.get() == pair()


def test_values_of_a_list_state_are_copies() -> None:
    state = ListHandle(Cells(), "s", PAIR, 0)
    state.append(pair())
    for item in (*state.get(), *state):
        spoil(item)
    assert state.get() == [pair()]


def test_values_of_a_map_state_are_copies() -> None:
    state = MapHandle(Cells(), "s", PAIR, 0, TEXT)
    state["k"] = pair()
    for item in (state["k"], state.get("k"), *state.values(), *(value for _, value in state.items())):
        spoil(item)
    assert state["k"] == pair()


@pytest.mark.parametrize("ttl_ms", [0, 5])
def test_each_key_has_its_own_number_in_the_columns_of_a_batch(ttl_ms: int) -> None:
    cells = Cells()
    state = NumberHandle(cells, converter(pa.int64(), "it"), ttl_ms)
    state.column, state.expiries = [None, 1, 2], [0, 7, 0]
    cells.now_ms = 10
    state.set(5)
    cells.row = 1
    assert (state.exists(), state.get()) == (True, 1)
    state.set(None)
    assert (state.exists(), state.get("none")) == (False, "none")
    cells.row = 2
    assert state.get() == 2
    state.set(6)
    assert state.column == [5, None, 6]
    assert state.expiries == ([15, 0, 15] if ttl_ms else [0, 0, 0])


def test_only_a_change_of_a_number_is_a_change() -> None:
    cells = Cells()
    state = NumberHandle(cells, converter(pa.int64(), "it"), 0)
    state.column, state.expiries = [None, 0], [0, 0]
    state.clear()
    assert not cells.is_changed
    cells.row = 1
    state.clear()
    assert cells.is_changed
    assert not state.exists()


STRUCT = pa.struct([("a", pa.int64())])
HUGE = 10**5000  # too long for repr(), too


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.list_(pa.int64()), [1.75, 2.5]),
        (pa.list_(pa.int64()), [True]),
        (pa.list_(pa.string()), "abc"),
        (pa.list_(pa.string()), [b"abc"]),
        (pa.list_(pa.float32()), [1e300]),
        (pa.list_(pa.float64()), [2**53 + 1]),
        (pa.list_(pa.list_(pa.int64())), [[1], [1.5]]),
        (STRUCT, {"a": 1.9}),
        (STRUCT, {"a": 1, "b": 2}),
        (pa.map_(pa.string(), pa.int64()), {"x": 1.5}),
        (pa.date32(), datetime(2026, 1, 1, 12)),
        (pa.date32(), 5),
        (pa.timestamp("us", "UTC"), 5),
        (pa.timestamp("us", "UTC"), date(2026, 1, 1)),
        (pa.timestamp("us"), pd.Timestamp(1_700_000_000_000_000_001)),
        (pa.duration("us"), pd.Timedelta(1, "ns")),
        (pa.decimal128(10, 2), 1.5),
        (pa.float64(), True),
        (pa.float32(), 1e300),
        (pa.float32(), 2**130),
        (pa.float32(), 16_777_217),
        (pa.float32(), False),
        (pa.float64(), 10**400),
        (pa.float64(), 2**53 + 1),
        pytest.param(pa.float64(), HUGE, id="double-huge"),
        pytest.param(pa.int64(), HUGE, id="bigint-huge"),
        (pa.string(), 5),
    ],
)
def test_a_value_that_would_become_another_is_refused_in_words(kind: pa.DataType, value: Any) -> None:
    with pytest.raises(TypeError, match=r"^state 's' is .* and cannot hold ") as refused:
        converter(kind, "state 's'")(value)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        (pa.list_(pa.int64()), [1, None, 2], [1, None, 2]),
        (pa.list_(pa.int64()), (1, 2), [1, 2]),
        (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
        (pa.list_(pa.float64()), [1, 2.5], [1.0, 2.5]),
        (STRUCT, {"a": 1}, {"a": 1}),
        (pa.map_(pa.string(), pa.int64()), {"x": 1}, [("x", 1)]),
        (pa.map_(pa.string(), pa.int64()), [("x", 1)], [("x", 1)]),
        (pa.date32(), date(2026, 1, 1), date(2026, 1, 1)),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us"), pd.Timestamp("2026-01-01"), datetime(2026, 1, 1)),
        (pa.duration("us"), timedelta(seconds=1), timedelta(seconds=1)),
        (pa.decimal128(10, 2), Decimal("1.50"), Decimal("1.50")),
        (pa.float64(), 2**60, 2.0**60),
        (pa.float64(), np.float64(1.5), 1.5),
        (pa.float64(), float("inf"), float("inf")),
    ],
)
def test_a_value_that_is_kept_is_stored_and_may_be_set_again(kind: pa.DataType, value: Any, stored: Any) -> None:
    convert = converter(kind, "it")
    assert convert(value) == stored
    assert type(convert(value)) is type(stored)
    assert convert(stored) == stored
