"""What is in flight: recorded at the gate, taken out of output queues, stored, and put back first."""

from __future__ import annotations

import threading
from concurrent import futures
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_proto.messages import Barrier, ChannelSide, ChannelState, SubtaskId, SubtaskState, Watermark
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.exchange.errors import ChannelClosed
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import LocalOutput
from lockgate_taskmanager.runtime.in_flight import InFlight, encode_element
from lockgate_taskmanager.runtime.moved_shares import MovedShares
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_input import LEAST_BYTES, BatchPace
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.routing import KeyRouting
from lockgate_taskmanager.task.program import Canceled, SnapshotTooLarge, StateUnreadable

ME = SubtaskId(None, "count", 1)
UP = (ChannelId("words", 0), ChannelId("words", 1))
URGENT = Barrier(1, unaligned=True)
SHARES = MovedShares(1, KeyRouting(2, 8), frozenset({"words"}))


def _table(*values: int) -> pa.Table:
    return pa.table({"v": list(values)})


def _values(elements: list[tuple[int, Element]]) -> list[tuple[int, object]]:
    return [(n, table.column("v").to_pylist() if isinstance(table, pa.Table) else table) for n, table in elements]


def _flight(tmp_path: Path, gate: InputGate) -> InFlight:
    return InFlight(ME, gate, FileBackend(str(tmp_path), "a1-count-1-channel"), SHARES)


def _recorded(tmp_path: Path) -> tuple[ChannelState, ...]:
    gate = InputGate(UP)
    flight = _flight(tmp_path, gate)
    gate.put(0, _table(1))
    flight.record(1, frozenset())
    flight.overtake(OutputSet({}, {}), URGENT)
    gate.put(0, _table(1).schema.empty_table())  # a prologue: comes again by itself
    gate.put(0, Watermark(9))
    gate.put(0, URGENT)
    gate.put(0, _table(2))
    gate.put(1, _table(3, 4))
    gate.put(1, URGENT)
    taken = flight.take(1)
    assert taken is not None
    return taken.persist()


def test_recorded_elements_are_stored_by_channel_and_restored_before_newer_ones(tmp_path: Path) -> None:
    states = _recorded(tmp_path)
    assert [(state.side, state.subtask, state.elements, state.rows) for state in states] == [
        (ChannelSide.INPUT_CHANNEL, 0, 2, 1),
        (ChannelSide.INPUT_CHANNEL, 1, 1, 2),
    ]
    gate = InputGate(UP)
    gate.put(0, _table(7))
    _flight(tmp_path, gate).restore(SubtaskState("count", 1, channels=states), OutputSet({}, {}))
    taken = [value for _ in range(4) for value in _values(gate.poll(0))]
    assert [value for value in taken if value[0] == 0] == [(0, [1]), (0, Watermark(9)), (0, [7])]
    assert [value for value in taken if value[0] == 1] == [(1, [3, 4])]


def _moved(tmp_path: Path, *elements: Element) -> ChannelState:
    data = b"".join(encode_element(element) for element in elements)
    handle = FileBackend(str(tmp_path), "moved").writer(1).store("in-words-0", pa.py_buffer(data))
    return ChannelState(ChannelSide.INPUT_CHANNEL, "words", 0, handle, len(elements), moved=True)


def test_of_moved_records_only_the_own_key_groups_are_taken_before_everything_else(tmp_path: Path) -> None:
    rows = pa.table({"v": [1, 2, 3, 4, 5], HASH: pa.array([4, 3, -1, 12, 0], pa.int64())})
    gate = InputGate(UP)
    gate.put(1, _table(7))
    gate.put(0, Watermark(5))
    state = SubtaskState("count", 1, channels=(_moved(tmp_path, rows, Watermark(9), rows.slice(1, 1)),))
    _flight(tmp_path, gate).restore(state, OutputSet({}, {}))
    assert gate.has_moved
    assert gate.fill().elements == 3
    assert gate.is_replaying
    assert _values(gate.poll(0)) == [(0, [1, 3, 4])]
    assert (gate.has_moved, gate.is_replaying) == (False, True), "taken, and not processed yet"
    assert [_values(gate.poll(0)) for _ in range(2)] == [[(0, Watermark(5))], [(1, [7])]]
    assert not gate.is_replaying


def test_moved_records_without_a_hash_are_refused(tmp_path: Path) -> None:
    state = SubtaskState("count", 1, channels=(_moved(tmp_path, _table(1)),))
    with pytest.raises(StateUnreadable, match=r"no hash of their key.*savepoint"):
        _flight(tmp_path, InputGate(UP)).restore(state, OutputSet({}, {}))


def test_two_logs_for_one_channel_are_restored_one_behind_the_other(tmp_path: Path) -> None:
    first, second = _moved(tmp_path / "a", _table(1)), _moved(tmp_path / "b", _table(2))
    states = tuple(replace(state, moved=False) for state in (first, second))
    gate = InputGate(UP)
    _flight(tmp_path, gate).restore(SubtaskState("count", 1, channels=states), OutputSet({}, {}))
    assert _values(gate.poll(0)) == [(0, [1]), (0, [2])]


def test_queued_output_is_sent_first_after_a_restore(tmp_path: Path) -> None:
    (state, _) = _recorded(tmp_path)
    out = ChannelState(ChannelSide.OUTPUT_CHANNEL, "sink", 0, state.handle, 2, 1)
    target = InputGate([ChannelId("count", 1)])
    outputs = OutputSet({("sink", 0): LocalOutput(target, 0)}, {})
    outputs.start(0)
    _flight(tmp_path, InputGate(UP)).restore(SubtaskState("count", 1, channels=(out,)), outputs)
    assert [_values(target.poll(0)) for _ in range(2)] == [[(0, [1])], [(0, Watermark(9))]]


def test_a_channel_that_no_longer_exists_is_named(tmp_path: Path) -> None:
    states = _recorded(tmp_path)
    with pytest.raises(StateUnreadable, match=r"between count\[1\] and words\[0\].*no such channel.*savepoint"):
        _flight(tmp_path, InputGate([])).restore(SubtaskState("count", 1, channels=states), OutputSet({}, {}))


def test_an_upload_that_waits_for_barriers_ends_when_the_checkpoint_is_given_up(tmp_path: Path) -> None:
    gate = InputGate(UP)
    flight = _flight(tmp_path, gate)
    flight.record(1, frozenset())
    taken = flight.take(1)
    assert taken is not None
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(taken.persist)
        flight.drop(1)
        with pytest.raises(Canceled, match="checkpoint 1 was aborted"):
            waiting.result(60)
    assert list(tmp_path.iterdir()) == []


def test_too_much_in_flight_fails_the_snapshot_and_not_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_taskmanager.barrier.recording.ChannelRecording.has_overflowed", True)
    gate = InputGate(UP)
    flight = _flight(tmp_path, gate)
    flight.record(1, frozenset())
    taken = flight.take(1)
    assert taken is not None
    with pytest.raises(SnapshotTooLarge, match="are in flight to one subtask"):
        taken.persist()


def test_a_full_channel_accepts_elements_in_transit_while_its_barrier_is_awaited() -> None:
    gate = InputGate(UP, max_elements=1)
    gate.put(0, _table(1))
    with futures.ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(gate.put, 0, _table(2))
        with pytest.raises(futures.TimeoutError):
            blocked.result(0.05)
        recording = gate.record(1, frozenset({1}))
        blocked.result(60)
        gate.put(0, URGENT)
        again = pool.submit(gate.put, 0, _table(3))
        with pytest.raises(futures.TimeoutError):
            again.result(0.05)
        gate.close()
        with pytest.raises(ChannelClosed):
            again.result(60)
    assert recording.recording.is_complete


def test_an_unaligned_barrier_is_reported_as_soon_as_it_is_queued() -> None:
    reported: list[Barrier] = []
    gate = InputGate(UP, max_elements=1, on_barrier=reported.append)
    gate.put(0, _table(1))
    gate.put(0, URGENT)  # does not wait for room
    assert reported == [URGENT]


def test_an_elastic_output_never_blocks_and_says_when_there_is_room_again() -> None:
    room = threading.Event()
    gate = InputGate([ChannelId("up", 0)], max_elements=2)
    output = LocalOutput(gate, 0, room.set)
    output.start()
    for value in range(5):
        output.send(_table(value))
    assert not output.has_room()
    assert len(gate.poll(0)) == 5
    assert room.is_set()
    assert output.has_room()


def test_batches_are_sized_by_their_duration() -> None:
    pace = BatchPace(1_000_000)
    assert pace.limit_bytes == LEAST_BYTES
    for _ in range(40):
        pace.processed(pace.limit_bytes, 1)
    assert pace.limit_bytes == 1_000_000
    for _ in range(40):
        pace.processed(pace.limit_bytes, pace.limit_bytes / 500)  # 500 bytes a millisecond: 100,000 in 200 ms
    assert 90_000 < pace.limit_bytes < 120_000
