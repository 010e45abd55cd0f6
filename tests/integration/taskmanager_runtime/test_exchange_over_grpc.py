"""RemoteOutput to ExchangeServer over a real connection: admission, order, back-pressure, breakage."""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from lockgate_proto import rpc
from lockgate_proto.messages import AttemptId, Barrier, ChannelOpen, EndOfInput, StreamElement, SubtaskId
from lockgate_proto.security import Credentials

from taskmanager.exchange.elements import ChannelId
from taskmanager.exchange.errors import ChannelBroken, ChannelClosed
from taskmanager.exchange.fencing import TokenFence
from taskmanager.exchange.gate import InputGate
from taskmanager.exchange.outputs import LocalOutput, RemoteOutput
from taskmanager.exchange.peers import PeerChannels
from taskmanager.exchange.registry import GateRegistry
from taskmanager.exchange.server import ExchangeServer

pytestmark = pytest.mark.integration

ATTEMPT = AttemptId("job", "run", 1)
TARGET = SubtaskId(ATTEMPT, "count", 0)
WAIT_S = 60.0


def _source(index: int = 0) -> SubtaskId:
    return SubtaskId(ATTEMPT, "words", index)


@dataclass
class Bench:
    """One receiver with one gate, and senders to it."""

    credentials: Credentials
    fence: TokenFence
    registry: GateRegistry
    server: ExchangeServer
    address: str
    gate: InputGate
    peers: PeerChannels
    gate_lost: queue.Queue[str] = field(default_factory=queue.Queue)
    output_lost: queue.Queue[str] = field(default_factory=queue.Queue)
    outputs: list[RemoteOutput] = field(default_factory=list)

    def output(self, hello: ChannelOpen | None = None, peers: PeerChannels | None = None) -> RemoteOutput:
        opened = hello or ChannelOpen(1, _source(), TARGET)
        output = RemoteOutput(peers or self.peers, self.address, opened, self.output_lost.put)
        output.start()
        self.outputs.append(output)
        return output


@pytest.fixture
def wait_s() -> float:
    """So long the receiver waits for a deployment; a test in which one arrives gives it more."""
    return 0.3


@pytest.fixture
def bench(credentials: Credentials, wait_s: float) -> Iterator[Bench]:
    fence, registry, lost = TokenFence(), GateRegistry(), queue.Queue[str]()
    server = ExchangeServer(credentials, fence, registry, wait_s=wait_s)
    address = server.start("127.0.0.1:0")
    gate = InputGate([ChannelId("words", 0), ChannelId("words", 1)], lost.put)
    registry.register(TARGET, gate)
    made = Bench(credentials, fence, registry, server, address, gate, PeerChannels(credentials), lost)
    yield made
    for output in made.outputs:
        output.cancel()
    gate.close()
    server.stop()
    made.peers.close()
    assert all(output.join(WAIT_S) for output in made.outputs)


def _take(gate: InputGate, count: int) -> list[object]:
    """At least so many elements; several tables in one poll count one by one."""
    taken: list[object] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"only {taken}"
        taken += [element for _, element in gate.poll(WAIT_S)]
    return taken


def _until(condition: Callable[[], bool]) -> None:
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.01)


def _rows(taken: list[object]) -> list[int]:
    return [value for one in taken if isinstance(one, pa.Table) for value in one.column("v").to_pylist()]


def test_elements_arrive_in_order(bench: Bench) -> None:
    output = bench.output()
    output.send(pa.table({"v": [1]}))
    output.send(Barrier(1))
    output.send(pa.table({"v": [2]}))
    output.send(EndOfInput())
    taken = _take(bench.gate, 4)
    assert [type(one).__name__ for one in taken] == ["Table", "Barrier", "Table", "EndOfInput"]
    assert _rows(taken) == [1, 2]
    _until(lambda: output.is_accepted)  # told on the way back, which nothing else waits for


def test_many_small_tables_and_one_large_one_arrive_complete(bench: Bench) -> None:
    output = bench.output()
    with futures.ThreadPoolExecutor(1) as pool:

        def send() -> None:
            for value in range(500):
                output.send(pa.table({"v": [value]}))
            output.send(pa.table({"v": list(range(500, 1_000_000))}))
            output.send(EndOfInput())

        sent = pool.submit(send)
        taken: list[object] = []
        while not taken or not isinstance(taken[-1], EndOfInput):
            taken += _take(bench.gate, 1)
        sent.result(WAIT_S)
    assert _rows(taken) == list(range(1_000_000))


def test_a_held_channel_slows_its_sender_and_lets_others_pass(bench: Bench) -> None:
    held, free = bench.output(), bench.output(ChannelOpen(1, _source(1), TARGET))
    bench.gate.hold(0)
    block = pa.table({"v": list(range(131_072))})  # 1 MiB
    sent = 0

    def flood() -> None:
        nonlocal sent
        while sent < 200:
            held.send(block)
            sent += 1

    with futures.ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood)
        for value in range(200):
            free.send(pa.table({"v": [value]}))
        free.send(EndOfInput())
        seen: list[object] = []
        while not seen or not isinstance(seen[-1], EndOfInput):
            seen += _take(bench.gate, 1)
        assert _rows(seen) == list(range(200))
        assert not flooding.done()
        assert bench.gate.queued_bytes() <= 17 * 1024 * 1024
        bench.gate.release([0])
        received = 0
        while received < 200 * 131_072:
            received += len(_rows(_take(bench.gate, 1)))
        flooding.result(WAIT_S)
    assert received == 200 * 131_072


def test_a_blocked_sender_ends_on_cancel(bench: Bench) -> None:
    output = bench.output()
    bench.gate.hold(0)
    block = pa.table({"v": list(range(131_072))})

    def flood() -> None:
        while True:
            output.send(block)

    with futures.ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood)
        _until(lambda: bench.gate.queued_bytes() == 16 * 1024 * 1024 and not output.has_room())
        output.cancel()
        assert isinstance(flooding.exception(WAIT_S), ChannelClosed)
    assert bench.output_lost.empty()
    assert "words[0]" in bench.gate_lost.get(timeout=WAIT_S)


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nobody answers: the port is taken, and nothing listens on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_sender_blocked_by_an_address_that_nobody_answers_at_ends_in_time(bench: Bench, nobody: str) -> None:
    hello = ChannelOpen(1, _source(), TARGET)
    output = RemoteOutput(bench.peers, nobody, hello, bench.output_lost.put, max_elements=1, accept_timeout_ms=300)
    bench.outputs.append(output)
    output.start()
    with futures.ThreadPoolExecutor(1) as pool:

        def flood() -> None:
            for checkpoint_id in range(1, 5):  # one stays in the queue, one may be in gRPC's hands
                output.send(Barrier(checkpoint_id))

        flooding = pool.submit(flood)
        try:
            error = flooding.exception(WAIT_S)
        finally:
            output.cancel()  # or a send that never ends would hold up the pool
    assert isinstance(error, ChannelBroken)
    assert str(error) == "a downstream subtask did not take its channel in 0.3 s"


def test_a_sender_blocked_by_a_slow_receiver_waits_on_once_its_channel_is_taken(bench: Bench) -> None:
    hello = ChannelOpen(1, _source(), TARGET)
    output = RemoteOutput(bench.peers, bench.address, hello, bench.output_lost.put, accept_timeout_ms=300)
    bench.outputs.append(output)
    output.start()
    output.send(Barrier(1))
    _take(bench.gate, 1)
    _until(lambda: output.is_accepted)
    bench.gate.hold(0)
    block = pa.table({"v": list(range(131_072))})  # 1 MiB; the queues on both sides hold 24 of them

    with futures.ThreadPoolExecutor(1) as pool:

        def flood() -> None:
            for _ in range(60):
                output.send(block)

        flooding = pool.submit(flood)
        _until(lambda: not output.has_room())
        with pytest.raises(futures.TimeoutError):
            flooding.result(0.8)  # longer than a channel that was not taken is waited for
        bench.gate.release([0])
        received = 0
        while received < 60 * 131_072:
            received += len(_rows(_take(bench.gate, 1)))
        flooding.result(WAIT_S)


def test_a_receiver_that_goes_away_breaks_the_sender(bench: Bench) -> None:
    output = bench.output()
    output.send(pa.table({"v": [1]}))
    _take(bench.gate, 1)
    bench.gate.close()
    assert "count[0]" in bench.output_lost.get(timeout=WAIT_S)
    with pytest.raises(ChannelBroken):
        output.send(pa.table({"v": [2]}))
    assert bench.gate_lost.empty()  # the gate was closed on purpose


def test_a_caller_without_the_secret_is_refused(bench: Bench) -> None:
    stranger = PeerChannels(Credentials(secret="not the secret of it"))
    bench.output(peers=stranger)
    assert "UNAUTHENTICATED" in bench.output_lost.get(timeout=WAIT_S)
    stranger.close()


def test_an_older_token_is_refused(bench: Bench) -> None:
    bench.fence.observe(5)
    bench.output(ChannelOpen(4, _source(), TARGET))
    assert "token 4 is older than 5" in bench.output_lost.get(timeout=WAIT_S)


@pytest.mark.parametrize("token", [9, 2**63 - 1])
def test_a_newer_token_opens_a_channel_and_shuts_no_leader_out(bench: Bench, token: int) -> None:
    output = bench.output(ChannelOpen(token, _source(), TARGET))
    output.send(EndOfInput())
    _take(bench.gate, 1)
    assert bench.fence.highest < 9


def test_another_attempt_is_refused(bench: Bench) -> None:
    other = AttemptId("job", "run", 2)
    bench.output(ChannelOpen(1, SubtaskId(other, "words", 0), SubtaskId(other, "count", 0)))
    assert "attempt 2, is not running here" in bench.output_lost.get(timeout=WAIT_S)


def test_a_channel_that_the_graph_does_not_have_is_refused(bench: Bench) -> None:
    bench.output(ChannelOpen(1, SubtaskId(ATTEMPT, "elsewhere", 0), TARGET))
    assert "has no input from elsewhere" in bench.output_lost.get(timeout=WAIT_S)


def test_the_same_channel_twice_is_refused(bench: Bench) -> None:
    first = bench.output()
    first.send(EndOfInput())
    _take(bench.gate, 1)
    bench.output()
    assert "has opened this channel before" in bench.output_lost.get(timeout=WAIT_S)


@pytest.mark.parametrize("wait_s", [WAIT_S])
def test_a_deployment_that_is_just_arriving_is_waited_for(bench: Bench) -> None:
    late = SubtaskId(ATTEMPT, "count", 1)
    output = bench.output(ChannelOpen(1, _source(), late))
    gate = InputGate([ChannelId("words", 0)])
    bench.registry.register(late, gate)
    output.send(EndOfInput())
    assert _take(gate, 1) == [EndOfInput()]
    gate.close()


@pytest.mark.parametrize("first", [StreamElement(Barrier(1)), StreamElement(None)])
def test_a_stream_without_channel_open_is_refused(bench: Bench, first: StreamElement) -> None:
    call = rpc.call(bench.peers.acquire(bench.address), "ExchangeService", "Open")
    with pytest.raises(Exception, match="the first element of a channel is ChannelOpen"):
        list(call(iter([first]), metadata=bench.credentials.metadata()))


def test_an_element_that_cannot_be_read_breaks_the_channel(bench: Bench) -> None:
    from lockgate_proto.messages import RecordBatch

    done = threading.Event()

    def requests() -> Iterator[StreamElement]:
        yield StreamElement(ChannelOpen(1, _source(), TARGET))
        yield StreamElement(RecordBatch(b"nonsense", 1))
        done.wait(WAIT_S)

    call = rpc.call(bench.peers.acquire(bench.address), "ExchangeService", "Open")
    answers = call(requests(), metadata=bench.credentials.metadata())
    assert "cannot be read" in bench.gate_lost.get(timeout=WAIT_S)
    done.set()
    assert len(list(answers)) == 1


def test_a_local_channel_hands_over_the_very_table() -> None:
    gate = InputGate([ChannelId("words", 0)])
    output = LocalOutput(gate, 0)
    output.start()
    table = pa.table({"v": [1]})
    output.send(table)
    assert _take(gate, 1)[0] is table
    gate.close()
    with pytest.raises(ChannelBroken):
        output.send(table)


def test_a_blocked_local_sender_ends_on_cancel() -> None:
    gate = InputGate([ChannelId("words", 0)], max_elements=1)
    output = LocalOutput(gate, 0)
    output.start()
    output.send(Barrier(1))
    with futures.ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(output.send, Barrier(2))
        output.cancel()
        assert isinstance(blocked.exception(WAIT_S), ChannelClosed)


def test_idle_peer_channels_are_kept_warm_up_to_a_number(credentials: Credentials) -> None:
    peers = PeerChannels(credentials, max_idle=1)
    first = peers.acquire("127.0.0.1:1")
    assert peers.acquire("127.0.0.1:1") is first
    peers.release("127.0.0.1:1")
    peers.release("127.0.0.1:1")
    assert peers.acquire("127.0.0.1:1") is first
    peers.release("127.0.0.1:1")
    peers.acquire("127.0.0.1:2")
    peers.release("127.0.0.1:2")
    assert peers.acquire("127.0.0.1:1") is not first
    peers.close()
