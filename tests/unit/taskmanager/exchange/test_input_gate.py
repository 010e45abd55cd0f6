"""InputGate: order, bounds, holding, waking."""

from __future__ import annotations

import threading
from concurrent import futures

import pyarrow as pa
import pytest
from lockgate_proto.messages import Barrier, EndOfInput
from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.errors import ChannelClosed
from lockgate_taskmanager.exchange.gate import InputGate

SOON_S = 60.0


def _gate(channels: int = 2, **bounds: int) -> InputGate:
    return InputGate([ChannelId("up", number) for number in range(channels)], **bounds)


def _table(value: int) -> pa.Table:
    return pa.table({"v": [value]})


def _values(taken: list[tuple[int, object]]) -> list[tuple[int, int]]:
    return [(channel, table.column("v")[0].as_py()) for channel, table in taken]  # type: ignore[attr-defined]


def test_records_come_together_and_in_the_order_of_their_channel() -> None:
    gate = _gate()
    for value in (1, 2):
        gate.put(0, _table(value))
    gate.put(1, _table(3))
    assert sorted(_values(gate.poll(0))) == [(0, 1), (0, 2), (1, 3)]
    assert gate.queued_bytes() == 0


def test_a_barrier_is_taken_alone_and_never_before_the_records_ahead_of_it() -> None:
    gate = _gate(1)
    gate.put(0, _table(1))
    gate.put(0, Barrier(1))
    gate.put(0, _table(2))
    assert _values(gate.poll(0)) == [(0, 1)]
    assert gate.poll(0) == [(0, Barrier(1))]
    assert _values(gate.poll(0)) == [(0, 2)]


def test_one_poll_takes_a_bounded_amount() -> None:
    gate = _gate(1)
    for value in range(4):
        gate.put(0, _table(value))
    assert len(gate.poll(0, max_bytes=65)) == 2


def test_a_held_channel_gives_nothing_until_released() -> None:
    gate = _gate()
    gate.hold(0)
    gate.put(0, _table(1))
    gate.put(1, _table(2))
    assert _values(gate.poll(0)) == [(1, 2)]
    assert gate.poll(0) == []
    gate.release([0])
    assert _values(gate.poll(0)) == [(0, 1)]


@pytest.mark.parametrize("bounds", [{"max_elements": 2}, {"max_bytes": 128}])
def test_a_full_channel_blocks_its_sender_and_no_other(bounds: dict[str, int]) -> None:
    gate = _gate(2, **bounds)
    gate.hold(0)
    gate.put(0, _table(1))
    gate.put(0, _table(2))
    with futures.ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(gate.put, 0, _table(3))
        gate.put(1, _table(9))
        assert _values(gate.poll(0)) == [(1, 9)]
        assert not blocked.done()
        gate.release([0])
        taken = _values(gate.poll(SOON_S, max_bytes=1))
        blocked.result(SOON_S)
        while len(taken) < 3:
            taken += _values(gate.poll(SOON_S))
        assert taken == [(0, 1), (0, 2), (0, 3)]


def test_an_element_larger_than_the_bound_passes_through_an_empty_channel() -> None:
    gate = _gate(1, max_bytes=10)
    gate.put(0, _table(1))
    assert _values(gate.poll(0)) == [(0, 1)]


def test_poll_waits_for_an_element() -> None:
    gate = _gate(1)
    with futures.ThreadPoolExecutor(1) as pool:
        polled = pool.submit(gate.poll, SOON_S)
        gate.put(0, EndOfInput())
        assert polled.result(SOON_S) == [(0, EndOfInput())]


def test_wake_ends_the_present_poll() -> None:
    gate = _gate(0)
    with futures.ThreadPoolExecutor(1) as pool:
        polled = pool.submit(gate.poll, None)
        gate.wake()
        assert polled.result(SOON_S) == []


def test_wake_before_the_poll_is_not_lost() -> None:
    gate = _gate(0)
    gate.wake()
    assert gate.poll(None) == []


def test_close_ends_everything_and_notifies_the_senders() -> None:
    gate = _gate(1, max_elements=1)
    reported = threading.Event()
    assert gate.connect(0, reported.set)
    gate.hold(0)
    gate.put(0, _table(1))
    with futures.ThreadPoolExecutor(2) as pool:
        blocked = pool.submit(gate.put, 0, _table(2))
        polled = pool.submit(gate.poll, None)
        gate.close()
        assert polled.result(SOON_S) == []
        assert isinstance(blocked.exception(SOON_S), ChannelClosed)
    assert reported.is_set()
    with pytest.raises(ChannelClosed):
        gate.put(0, _table(3))
    with pytest.raises(ChannelClosed):
        gate.connect(0)


def test_a_recording_on_a_closed_gate_is_given_up_at_once() -> None:
    gate = _gate()
    gate.close()
    gate.close()
    assert gate.record(5, frozenset()).wait() is None, "nothing would end it: its upload would wait for ever"


def test_a_cancelled_sender_gives_up_while_it_waits_for_room() -> None:
    gate = _gate(1, max_elements=1)
    gate.put(0, _table(1))
    canceled = threading.Event()
    with futures.ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(gate.put, 0, _table(2), canceled.is_set)
        canceled.set()
        gate.wake_senders(0)
        assert isinstance(blocked.exception(SOON_S), ChannelClosed)


def test_a_channel_takes_one_sender() -> None:
    gate = _gate(1)
    assert gate.connect(0)
    assert not gate.connect(0)


def test_a_lost_channel_is_reported_while_open_and_not_after_close() -> None:
    reported: list[str] = []
    gate = InputGate([ChannelId("up", 0)], reported.append)
    gate.lost(0, "reset")
    assert reported == ["the channel from up[0] broke: reset"]
    gate.close()
    gate.lost(0, "reset")
    assert len(reported) == 1


def test_channels_are_found_by_their_upstream_subtask() -> None:
    gate = _gate(2)
    assert gate.index_of(ChannelId("up", 1)) == 1
    assert gate.index_of(ChannelId("up", 2)) is None
