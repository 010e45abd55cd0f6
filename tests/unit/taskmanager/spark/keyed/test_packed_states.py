"""When the state of a key is packed, by what the runner of a process function makes."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark.keyed.ipc_batches import ROWS_AT_ONCE
from lockgate_taskmanager.spark.keyed.runner import EVENT, KEY, PAYLOAD, VALUE, Declared, Runner
from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.format.key_payload import MARK, PACKED, read, written
from lockgate_taskmanager.state.format.packed_payloads import Packing

from tests.process_runner import made, visits

RESULT = pa.schema([("n", pa.int64())])
KEYS = pa.record_batch({"k": ["a"]})


def total(kind: pa.DataType, ttl_ms: int = 0) -> Declared:
    return Declared("total", VALUE, kind, None, ttl_ms)


class Adds:
    total: Any

    def process(self, context: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        value = self.total.get()
        self.total.set(value if value is None else value + value)


def run(states: tuple[Declared, ...], payload: bytes | None, function: Any = None) -> list[dict[str, Any]]:
    return made(Runner(function or Adds(), states, ("k",), ("k",), RESULT), visits(KEYS, [1], [payload]), KEYS)


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.int8(), 7), (pa.int32(), 7), (pa.int64(), 7), (pa.float32(), 0.5), (pa.float64(), 0.1)]
)
def test_numbers_that_were_pickled_are_packed_with_their_next_change(kind: pa.DataType, value: float) -> None:
    before, _ = written({"total": (value, 0)}, [], [], {}, False)
    (kept,) = run((total(kind),), before)
    assert kept[PAYLOAD].startswith(PACKED)
    assert read(kept[PAYLOAD]).states == {"total": (2 * value, 0)}
    (again,) = run((total(kind),), kept[PAYLOAD])
    assert read(again[PAYLOAD]).states == {"total": (4 * value, 0)}


@pytest.mark.parametrize(
    ("kind", "value"), [(pa.string(), "x"), (pa.decimal128(10, 2), Decimal("1.5")), (pa.binary(), b"x")]
)
@pytest.mark.parametrize("others", [(), (Declared("n", VALUE, pa.int64(), None, 0),)])
def test_other_values_are_pickled(kind: pa.DataType, value: Any, others: tuple[Declared, ...]) -> None:
    before, _ = written({"total": (value, 0)}, [], [], {}, False)
    (kept,) = run((total(kind), *others), before)
    assert read(kept[PAYLOAD]).states == {"total": (value + value, 0)}
    assert not kept[PAYLOAD].startswith(PACKED)


def test_a_state_that_is_declared_no_longer_is_dropped_from_a_packed_row() -> None:
    (row,) = Packing({"total": "q", "gone": "d"}).written([[1], [2.0]], [[0], [0]], [0]).payloads.to_pylist()
    (kept,) = run((total(pa.int64()),), row)
    assert read(kept[PAYLOAD]).states == {"total": (2, 0)}
    assert kept[PAYLOAD].startswith(PACKED)


def test_a_row_whose_elements_were_apart_is_packed_once_their_state_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_payload, "LARGEST_WHOLE", 0)
    row, elements = written({"total": (1, 0), "by": {"x": (1, 0), "y": (2, 0)}}, [], [], {}, True)
    assert row.startswith(MARK)
    (kept,) = run((total(pa.int64()),), b"".join([row, *(value for _, value in elements if value is not None)]))
    assert kept[PAYLOAD].startswith(PACKED), "no MARK: the store removes the elements"
    assert read(kept[PAYLOAD]).states == {"total": (2, 0)}


class Waits:
    total: Any

    def process(self, context: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        self.total.set(self.total.get(0) + 1)
        context.timers.register_event_time(5)

    def on_timer(self, context: Any, timer: Any) -> None: ...


def test_a_key_with_a_timer_is_pickled_until_it_has_fired() -> None:
    (waiting,) = run((total(pa.int64()),), None, Waits())
    assert not waiting[PAYLOAD].startswith(PACKED)
    assert waiting[EVENT] == 5
    runner = Runner(Waits(), (total(pa.int64()),), ("k",), ("k",), RESULT)
    (fired,) = made(runner, visits(KEYS, [0], [waiting[PAYLOAD]], watermark=5))
    assert fired[PAYLOAD].startswith(PACKED)
    assert read(fired[PAYLOAD]) == ({"total": (1, 0)}, [], [], {})


class SetsAll:
    def process(self, context: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        for name in vars(self):
            getattr(self, name).set(row["k"])


def test_a_function_with_many_states_sends_them_in_more_batches() -> None:
    """A message would have all of them."""
    states = tuple(Declared(f"s{number}", VALUE, pa.int64(), None, 0) for number in range(ROWS_AT_ONCE // 10))
    keys = pa.record_batch({"k": list(range(25))})
    found = list(Runner(SetsAll(), states, ("k",), ("k",), RESULT).run(iter([visits(keys, [1] * 25), keys])))
    assert [batch.num_rows for batch in found] == [10, 10, 5]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row[KEY] for row in rows] == list(range(25))
    assert all(set(read(row[PAYLOAD]).states.values()) == {(row[KEY], 0)} for row in rows)


class Counts:
    """Sets the states that it is asked for; clears those that it is asked to forget."""

    def process(self, context: Any, row: dict[str, Any]) -> None:  # noqa: ARG002
        for name in row["set"]:
            state = getattr(self, name)
            state.set(state.get(0) + 1)
        for name in row["clear"]:
            getattr(self, name).clear()


def test_keys_that_lack_a_state_are_kept_beside_those_that_have_all() -> None:
    states = tuple(Declared(name, VALUE, pa.int64(), None, 0) for name in ("a", "b"))
    (row,) = Packing({"a": "q", "b": "q"}).written([[5], [6]], [[0], [0]], [0]).payloads.to_pylist()
    asked = [("ab", ""), ("a", ""), ("", "ab"), ("", ""), ("b", "a"), ("ab", "")]
    records = pa.record_batch({"k": list("uvwxyz"), "set": [s for s, _ in asked], "clear": [c for _, c in asked]})
    keys = records.select(["k"])
    batches = visits(keys, [1] * 6, [None, None, row, row, row, row]), records
    runner = Runner(Counts(), states, ("k",), ("k", "set", "clear"), RESULT)
    kept = {item[KEY]: item[PAYLOAD] for item in made(runner, *batches)}
    found = {key: None if payload is None else read(payload).states for key, payload in kept.items()}
    ab = dict.fromkeys("ab", (1, 0))
    assert found == {0: ab, 1: {"a": (1, 0)}, 2: None, 4: {"b": (7, 0)}, 5: {"a": (6, 0), "b": (7, 0)}}
    assert {key for key, payload in kept.items() if payload and payload.startswith(PACKED)} == {0, 5}


def test_keys_of_later_batches_have_later_numbers() -> None:
    keys = pa.record_batch({"k": [1, 2]})
    runner = Runner(SetsAll(), (total(pa.int64()),), ("k",), ("k",), RESULT)
    rows = made(runner, visits(keys, [1, 1]), keys, visits(keys, [1, 1]), keys)
    assert [row[KEY] for row in rows] == [0, 1, 2, 3]


class Returns:
    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows

    def process(self, context: Any, row: dict[str, Any]) -> Any:  # noqa: ARG002
        return self.rows[row["k"]]


def test_a_row_with_a_wrong_column_leaves_nothing_of_it_in_the_output() -> None:
    result = pa.schema([("n", pa.int64()), ("m", pa.int64())])
    keys = pa.record_batch({"k": [0, 1, 2]})
    runner = Runner(Returns([{"n": 1, "m": 2}, {"n": 3, "x": 4}, {"n": 5}]), (), ("k",), ("k",), result)
    with pytest.raises(TypeError, match="emitted a column 'x' that its schema does not have; the key: 1"):
        made(runner, visits(keys, [1, 1, 1]), keys)
    fine = Runner(Returns([{"n": 1, "m": 2}, {"m": 4, "n": 3}, {"n": 5}]), (), ("k",), ("k",), result)
    assert made(fine, visits(keys, [1, 1, 1]), keys) == [{"n": 1, "m": 2}, {"n": 3, "m": 4}, {"n": 5, "m": None}]
