"""State handles of process functions: what they give is the function's own."""

from __future__ import annotations

from typing import Any

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
