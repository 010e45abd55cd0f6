"""The log of a loop's back edges, from the gate to the storage and back."""

from __future__ import annotations

from concurrent import futures
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_proto.messages import Barrier, ChannelSide, LoopProbe, SubtaskId, SubtaskState
from lockgate_taskmanager.exchange import element_queue, gate
from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.in_flight import InFlight
from lockgate_taskmanager.runtime.moved_shares import MovedShares
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.state.backend import FileBackend
from lockgate_taskmanager.state.routing import KeyRouting
from lockgate_taskmanager.task.program import SnapshotTooLarge

HEAD = SubtaskId(None, "head", 0)
CHANNELS = (ChannelId("source", 0), ChannelId("tail", 0), ChannelId("tail", 1))
BACK = frozenset({1, 2})
OUTSIDE = frozenset({0})


def _table(*values: int) -> pa.Table:
    return pa.table({"v": list(values)})


def _bench(tmp_path: Path) -> tuple[InputGate, InFlight]:
    made = InputGate(CHANNELS, feedback=BACK, spill_folder=str(tmp_path))
    shares = MovedShares(0, KeyRouting(1, 8), frozenset())
    return made, InFlight(HEAD, made, FileBackend(str(tmp_path), "a1-head-0-channel"), shares)


def _values(taken: InputGate) -> list[tuple[int, list[int]]]:
    found = []
    while polled := taken.poll(0):
        found += [(channel, table.column("v").to_pylist()) for channel, table in polled if isinstance(table, pa.Table)]
    return found


def test_the_snapshot_of_a_head_holds_the_returning_records(tmp_path: Path) -> None:
    head, flight = _bench(tmp_path)
    head.put(1, _table(1))  # waits for its turn when the snapshot is taken
    flight.record(1, OUTSIDE)
    head.put(0, _table(99))
    head.put(2, _table(2, 3))
    head.put(2, LoopProbe(1, 0))
    head.put(1, Barrier(1))
    head.put(1, _table(98))
    head.put(2, Barrier(1))
    taken = flight.take(1)
    assert taken is not None
    states = taken.persist()
    assert [(state.side, state.vertex_id, state.subtask, state.rows, state.feedback) for state in states] == [
        (ChannelSide.INPUT_CHANNEL, "tail", 0, 1, True),
        (ChannelSide.INPUT_CHANNEL, "tail", 1, 2, True),
    ]
    again, restored = _bench(tmp_path)
    again.put(0, _table(4))
    again.put(1, _table(5))
    restored.restore(SubtaskState("head", 0, channels=states), OutputSet({}, {}))
    assert sorted(_values(again)[:3]) == [(1, [1]), (1, [5]), (2, [2, 3])]


def test_the_upload_waits_until_the_barrier_has_come_back(tmp_path: Path) -> None:
    head, flight = _bench(tmp_path)
    flight.record(1, OUTSIDE)
    taken = flight.take(1)
    assert taken is not None
    with futures.ThreadPoolExecutor(1) as pool:
        upload = pool.submit(taken.persist)
        head.put(1, Barrier(1))
        assert not upload.done()
        head.put(2, _table(7))
        head.put(2, Barrier(1))
        assert [state.rows for state in upload.result(60)] == [1]


def test_records_of_a_loop_on_disk_are_in_the_log_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MEMORY_BYTES", 0)
    head, flight = _bench(tmp_path)
    head.put(1, _table(1, 2))
    assert isinstance(next(iter(head._channels[1].queue))[0], element_queue.Spilled)
    flight.record(1, OUTSIDE)
    head.put(1, Barrier(1))
    head.put(2, Barrier(1))
    assert _values(head) == [(1, [1, 2])]
    taken = flight.take(1)
    assert taken is not None
    (state,) = taken.persist()
    assert (state.rows, state.elements) == (2, 1)


def test_more_in_a_loop_than_a_snapshot_may_hold_declines_it_with_advice(tmp_path: Path) -> None:
    head, flight = _bench(tmp_path)
    flight.record(1, OUTSIDE)
    taken = flight.take(1)
    assert taken is not None
    taken.recording.recording.limit_bytes = 1
    head.put(1, _table(1))
    with pytest.raises(SnapshotTooLarge, match="let fewer records circulate"):
        taken.persist()
