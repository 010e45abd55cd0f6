"""A channel whose sender or receiver begins again, over a real connection."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pyarrow as pa
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AttemptId,
    Barrier,
    ChannelOpen,
    EndOfInput,
    SplitPosition,
    SplitRange,
    SubtaskId,
    Watermark,
)
from lockgate_taskmanager.exchange import elements
from lockgate_taskmanager.exchange.elements import BatchPiece, ChannelId, Element, size_of
from lockgate_taskmanager.exchange.errors import CannotRejoin, ChannelBroken, RecordTooLarge
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import RemoteOutput
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.replay_log import ReplayLog
from lockgate_taskmanager.exchange.server import ExchangeServer

pytestmark = pytest.mark.integration

WAIT_S = 60.0
FIRST, SECOND = (AttemptId("job", "run", number) for number in (1, 2))


def _table(*values: int) -> pa.Table:
    return pa.table({"v": list(values)})


def _hello(sender: AttemptId, receiver: AttemptId) -> ChannelOpen:
    return ChannelOpen(1, SubtaskId(sender, "words", 0), SubtaskId(receiver, "count", 0))


@dataclass
class Host:
    """A task manager's side of the exchange, with one gate for each attempt of the receiver."""

    server: ExchangeServer
    address: str
    registry: GateRegistry

    def gate(self, attempt: AttemptId, lost: queue.Queue[str], may_rejoin: bool = True) -> InputGate:
        absent = (lambda _, reason: lost.put(reason)) if may_rejoin else None
        gate = InputGate([ChannelId("words", 0)], lost.put, on_absent=absent)
        self.registry.register(SubtaskId(attempt, "count", 0), gate)
        return gate


class World:
    """Task managers, and senders that end with the test."""

    def __init__(self, credentials: Credentials, stack: ExitStack) -> None:
        self._credentials, self._stack = credentials, stack
        self.lost: queue.Queue[str] = queue.Queue()
        self.peers = PeerChannels(credentials)
        stack.callback(self.peers.close)

    def host(self) -> Host:
        registry = GateRegistry()
        server = ExchangeServer(self._credentials, TokenFence(), registry, wait_s=WAIT_S)
        host = Host(server, server.start("127.0.0.1:0"), registry)
        self._stack.callback(server.stop)
        return host

    def output(self, host: Host, hello: ChannelOpen, log_bytes: int = 1 << 20) -> RemoteOutput:
        output = RemoteOutput(self.peers, host.address, hello, self.lost.put, log=ReplayLog(log_bytes))
        self._stack.callback(output.cancel)
        output.start()
        return output


@pytest.fixture
def world(credentials: Credentials) -> Iterator[World]:
    with ExitStack() as stack:
        yield World(credentials, stack)


def _until_accepted(output: RemoteOutput) -> None:
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not output.is_accepted:
        assert time.monotonic() < deadline
        pause.wait(0.01)


def _take(gate: InputGate, count: int) -> list[Element]:
    taken: list[Element] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"only {taken}"
        taken += [element for _, element in gate.poll(WAIT_S)]
    return taken


def _values(gate: InputGate, count: int) -> list[int]:
    """The next so many records: tables of one schema may arrive as one."""
    values: list[int] = []
    while len(values) < count:
        for element in _take(gate, 1):
            values += element.column("v").to_pylist() if isinstance(element, pa.Table) else []
    return values


def test_a_receiver_that_begins_again_gets_everything_since_its_checkpoint(world: World) -> None:
    first, lost = world.host(), queue.Queue[str]()
    gate = first.gate(FIRST, lost)
    output = world.output(first, _hello(FIRST, FIRST))
    for element in (_table(1), Barrier(1), _table(2), Watermark(2)):
        output.send(element)
    _values(gate, 2)
    first.server.stop()
    assert "broke" in world.lost.get(timeout=WAIT_S)
    output.send(_table(3))  # while there is no receiver
    second = world.host()
    again = second.gate(SECOND, lost)
    output.rejoin(second.address, "", _hello(FIRST, SECOND), 1)
    output.send(_table(4))
    assert _values(again, 3) == [2, 3, 4]


def test_a_receiver_cannot_begin_again_where_too_much_was_sent(world: World) -> None:
    first = world.host()
    gate = first.gate(FIRST, queue.Queue())
    output = world.output(first, _hello(FIRST, FIRST), log_bytes=2 * size_of(Barrier(1)))
    for element in (_table(1), Barrier(1), _table(2), _table(3), _table(4)):
        output.send(element)
    _values(gate, 4)
    second = world.host()
    with pytest.raises(CannotRejoin, match=r"count\[0\] since checkpoint 1 is not kept"):
        output.rejoin(second.address, "", _hello(FIRST, SECOND), 1)


def test_a_sender_waits_for_its_receiver_once_its_log_is_full(world: World) -> None:
    first = world.host()
    gate = first.gate(FIRST, queue.Queue())
    output = world.output(first, _hello(FIRST, FIRST), log_bytes=3 * size_of(_table(1)))
    output.send(_table(0))
    _take(gate, 1)
    first.server.stop()
    world.lost.get(timeout=WAIT_S)
    sent: queue.Queue[int] = queue.Queue()

    def send_all() -> None:
        for number in (1, 2, 3):
            output.send(_table(number))
            sent.put(number)

    sender = threading.Thread(target=send_all)
    sender.start()
    assert [sent.get(timeout=WAIT_S), sent.get(timeout=WAIT_S)] == [1, 2]
    second = world.host()
    again = second.gate(SECOND, queue.Queue())
    output.rejoin(second.address, "", _hello(FIRST, SECOND), 0)
    sender.join(WAIT_S)
    assert not sender.is_alive()
    assert _values(again, 4) == [0, 1, 2, 3]


def test_another_attempt_of_the_sender_learns_where_its_receiver_is(world: World) -> None:
    host, lost = world.host(), queue.Queue[str]()
    gate = host.gate(FIRST, lost)
    former = world.output(host, _hello(FIRST, FIRST))
    former.send(_table(1), BatchPiece(ranges=(SplitRange("a", 0, 10),)))
    former.send(_table(2), BatchPiece(ranges=(SplitRange("b", 0, 4), SplitRange("a", 10, 20))))
    assert _values(gate, 2) == [1, 2]
    later = world.output(host, _hello(SECOND, FIRST))
    _until_accepted(later)
    assert later.received == {"a": 20, "b": 4}
    later.send(_table(1, 2), BatchPiece(ranges=(SplitRange("a", 0, 20), SplitRange("b", 0, 4))))
    later.send(_table(3), BatchPiece(ranges=(SplitRange("a", 20, 30),)))
    assert _values(gate, 1) == [3]
    assert lost.empty()


def test_a_batch_that_arrived_in_part_is_made_again(world: World) -> None:
    host = world.host()
    gate = host.gate(FIRST, queue.Queue())
    gate.connect(0, attempt=1)
    gate.put(0, _table(1), attempt=1, read_to=[SplitPosition("a", 10)])
    gate.put(0, _table(2), attempt=1, more=True)
    later = world.output(host, _hello(SECOND, FIRST))
    _until_accepted(later)
    assert later.received == {"a": 10}
    later.send(_table(2, 3), BatchPiece(ranges=(SplitRange("a", 10, 20),)))
    assert _values(gate, 3) == [1, 2, 3]


def test_nothing_but_barriers_goes_to_a_receiver_that_has_had_the_end(world: World) -> None:
    host = world.host()
    gate = host.gate(FIRST, queue.Queue())
    former = world.output(host, _hello(FIRST, FIRST))
    former.send(EndOfInput())
    _take(gate, 1)
    later = world.output(host, _hello(SECOND, FIRST))
    _until_accepted(later)
    for element in (_table(1), Watermark(1), EndOfInput(), Barrier(7)):
        later.send(element)
    assert _take(gate, 1) == [Barrier(7)]


def test_an_earlier_attempt_of_the_sender_is_shut_out(world: World) -> None:
    host = world.host()
    gate = host.gate(FIRST, queue.Queue())
    later = world.output(host, _hello(SECOND, FIRST))
    _until_accepted(later)
    former = world.output(host, _hello(FIRST, FIRST))
    assert "has opened this channel before" in world.lost.get(timeout=WAIT_S)
    with pytest.raises(ChannelBroken):
        former.send(_table(1))
    later.send(_table(2))
    assert _take(gate, 1) == [_table(2)]


def test_attempts_do_not_mix_where_a_job_restarts_as_a_whole(world: World) -> None:
    host = world.host()
    host.gate(FIRST, queue.Queue(), may_rejoin=False)
    world.output(host, _hello(SECOND, FIRST))
    assert "of one attempt" in world.lost.get(timeout=WAIT_S)


def test_a_channel_of_which_a_part_of_a_large_batch_arrived_cannot_go_on(world: World) -> None:
    host = world.host()
    gate = InputGate([ChannelId("words", 0)], max_bytes=size_of(_table(1)), on_absent=lambda *_: None)
    host.registry.register(SubtaskId(FIRST, "count", 0), gate)
    gate.connect(0, attempt=1)
    gate.put(0, _table(*range(100)), attempt=1, more=True)
    world.output(host, _hello(SECOND, FIRST))
    assert "arrived in part" in world.lost.get(timeout=WAIT_S)


def test_a_receiver_that_begins_again_where_nobody_answers_is_given_up(world: World) -> None:
    first, lost = world.host(), queue.Queue[str]()
    gate = first.gate(FIRST, lost)
    output = RemoteOutput(
        world.peers, first.address, _hello(FIRST, FIRST), world.lost.put, log=ReplayLog(1 << 20), accept_timeout_ms=100
    )
    output.start()
    _until_accepted(output)
    gate.close()
    first.server.stop()
    assert "broke" in world.lost.get(timeout=WAIT_S)
    with socket.socket() as taken:  # bound, and not listening
        taken.bind(("127.0.0.1", 0))
        output.rejoin(f"127.0.0.1:{taken.getsockname()[1]}", "", _hello(FIRST, SECOND), 0)
        assert "did not accept its channel within 0.1 s" in world.lost.get(timeout=WAIT_S), "though nothing was sent"
    with pytest.raises(ChannelBroken, match="did not accept"):
        output.require_intact()
    output.cancel()
    assert output.join(WAIT_S)


def test_a_record_that_is_too_large_fails_its_sender_and_not_the_channel(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elements, "LARGEST_MESSAGE_BYTES", 100_000)
    host = world.host()
    gate = host.gate(FIRST, queue.Queue())
    output = world.output(host, _hello(FIRST, FIRST))
    with pytest.raises(RecordTooLarge, match="make the values smaller"):
        output.send(pa.table({"v": ["x" * 200_000]}))
    output.send(_table(1, 2))
    assert _values(gate, 2) == [1, 2]
    assert world.lost.empty()
