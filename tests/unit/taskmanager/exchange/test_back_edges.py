"""Back edges at the gate: never full, first in turn, on disk beyond a bound, and outside input not starved."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import Barrier
from lockgate_taskmanager.exchange.element_queue import ElementQueue, Spilled, loaded
from lockgate_taskmanager.exchange.elements import ChannelId, size_of
from lockgate_taskmanager.exchange.gate import OUTSIDE_TURNS, InputGate

OUTSIDE, BACK = 0, 1


def _gate(max_elements: int = 2) -> InputGate:
    channels = [ChannelId("source", 0), ChannelId("tail", 0)]
    return InputGate(channels, max_elements=max_elements, feedback=frozenset({BACK}))


def _table(value: int) -> pa.Table:
    return pa.table({"v": [value]})


def _values(gate: InputGate, max_bytes: int) -> list[tuple[int, int]]:
    return [(channel, element.column("v")[0].as_py()) for channel, element in gate.poll(0, max_bytes)]  # type: ignore[union-attr]


def test_a_back_edge_is_never_full() -> None:
    gate = _gate()
    for value in range(10):
        gate.put(BACK, _table(value))  # would block a channel from outside
    assert gate.has_room(BACK)


def test_records_in_a_loop_come_before_new_ones() -> None:
    gate = _gate()
    gate.put(OUTSIDE, _table(1))
    gate.put(BACK, _table(2))
    gate.put(BACK, _table(3))
    assert _values(gate, 1 << 20) == [(BACK, 2), (BACK, 3), (OUTSIDE, 1)]


def test_a_barrier_gets_through_while_records_circulate_endlessly() -> None:
    gate = _gate()
    gate.put(OUTSIDE, _table(1))
    gate.put(OUTSIDE, Barrier(1))
    seen: list[object] = []
    for _ in range(2 * OUTSIDE_TURNS):
        for _ in range(3):
            gate.put(BACK, _table(0))
        seen += [element for _, element in gate.poll(0, 1)]
    assert Barrier(1) in seen


def test_records_beyond_the_memory_limit_are_on_disk_and_come_out_in_order(tmp_path: Path) -> None:
    queue = ElementQueue(2 * size_of(_table(0)), str(tmp_path))
    stored = [queue.append(_table(value), size_of(_table(value))) for value in range(5)]
    assert [isinstance(spilled, Spilled) for spilled in stored] == [False, False, True, True, True]
    assert list(tmp_path.iterdir()) == [], "its files have no name"
    assert queue.next_is_records
    assert [queue.popleft()[0] for _ in range(5)] == [_table(value) for value in range(5)]
    assert (len(queue), queue.bytes) == (0, 0)
    assert [loaded(item) for item in stored] == [_table(value) for value in range(5)], "a log still refers to them"


def test_control_elements_and_the_rest_of_a_cleared_queue_take_no_disk() -> None:
    queue = ElementQueue(0)
    assert queue.append(Barrier(1), 64) == Barrier(1)
    queue.clear()
    assert (len(queue), queue.bytes, queue.next_is_records) == (0, 0, False)
