"""State handles of process functions: what they give is the function's own."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lockgate_taskmanager.spark.keyed.handles import Cells, ListHandle, MapHandle, ValueHandle, converter

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
