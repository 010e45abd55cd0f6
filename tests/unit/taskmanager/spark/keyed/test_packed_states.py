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
    (row,) = key_payload.Packing({"total": "q", "gone": "d"}).written([{"total": (1, 0), "gone": (2.0, 0)}])
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
    """Between them the states of keys are objects, which take more memory than rows."""
    states = tuple(Declared(f"s{number}", VALUE, pa.int64(), None, 0) for number in range(ROWS_AT_ONCE // 10))
    keys = pa.record_batch({"k": list(range(25))})
    found = list(Runner(SetsAll(), states, ("k",), ("k",), RESULT).run(iter([visits(keys, [1] * 25), keys])))
    assert [batch.num_rows for batch in found] == [10, 10, 5]
    rows = [row for batch in found for row in batch.to_pylist()]
    assert [row[KEY] for row in rows] == list(range(25))
    assert all(set(read(row[PAYLOAD]).states.values()) == {(row[KEY], 0)} for row in rows)
