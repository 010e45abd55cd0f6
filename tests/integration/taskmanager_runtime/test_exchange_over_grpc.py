"""RemoteOutput to ExchangeServer over a real connection: admission, order, back-pressure, breakage."""

from __future__ import annotations

import contextlib
import queue
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field, replace
from pathlib import Path

import grpc
import numpy as np
import pyarrow as pa
import pytest
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials, TlsFiles
from lockgate_proto import rpc
from lockgate_proto.codec import encode
from lockgate_proto.messages import AttemptId, Barrier, ChannelOpen, EndOfInput, RecordBatch, StreamElement, SubtaskId
from lockgate_taskmanager.exchange.elements import ChannelId, to_message
from lockgate_taskmanager.exchange.errors import ChannelBroken, ChannelClosed
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import LocalOutput, RemoteOutput
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer

from tests.certificates import make_certificates

pytestmark = pytest.mark.integration

ATTEMPT = AttemptId("job", "run", 1)
TARGET = SubtaskId(ATTEMPT, "count", 0)
WAIT_S = 60.0


def _source(index: int = 0) -> SubtaskId:
    return SubtaskId(ATTEMPT, "words", index)


@dataclass
class TestingExchange:
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
def exchange(credentials: Credentials, wait_s: float) -> Iterator[TestingExchange]:
    fence, registry, lost = TokenFence(), GateRegistry(), queue.Queue[str]()
    server = ExchangeServer(credentials, fence, registry, wait_s=wait_s)
    address = server.start("127.0.0.1:0")
    gate = InputGate([ChannelId("words", 0), ChannelId("words", 1)], lost.put)
    registry.register(TARGET, gate)
    made = TestingExchange(credentials, fence, registry, server, address, gate, PeerChannels(credentials), lost)
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
    return [value for table in taken if isinstance(table, pa.Table) for value in table.column("v").to_pylist()]


def test_elements_arrive_in_order(exchange: TestingExchange) -> None:
    output = exchange.output()
    output.send(pa.table({"v": [1]}))
    output.send(Barrier(1))
    output.send(pa.table({"v": [2]}))
    output.send(EndOfInput())
    taken = _take(exchange.gate, 4)
    assert [type(item).__name__ for item in taken] == ["Table", "Barrier", "Table", "EndOfInput"]
    assert _rows(taken) == [1, 2]
    _until(lambda: output.is_accepted)  # reported on the way back, which nothing else waits for


def test_many_small_tables_and_one_large_one_arrive_complete(exchange: TestingExchange) -> None:
    output = exchange.output()
    with futures.ThreadPoolExecutor(1) as pool:

        def send() -> None:
            for value in range(500):
                output.send(pa.table({"v": [value]}))
            output.send(pa.table({"v": list(range(500, 1_000_000))}))
            output.send(EndOfInput())

        sent = pool.submit(send)
        taken: list[object] = []
        while not taken or not isinstance(taken[-1], EndOfInput):
            taken += _take(exchange.gate, 1)
        sent.result(WAIT_S)
    assert _rows(taken) == list(range(1_000_000))


def test_a_held_channel_slows_its_sender_and_lets_others_pass(exchange: TestingExchange) -> None:
    held, free = exchange.output(), exchange.output(ChannelOpen(1, _source(1), TARGET))
    exchange.gate.hold(0)
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
            seen += _take(exchange.gate, 1)
        assert _rows(seen) == list(range(200))
        assert not flooding.done()
        assert exchange.gate.queued_bytes() <= 17 * 1024 * 1024
        exchange.gate.release([0])
        received = 0
        while received < 200 * 131_072:
            received += len(_rows(_take(exchange.gate, 1)))
        flooding.result(WAIT_S)
    assert received == 200 * 131_072


def test_a_blocked_sender_ends_on_cancel(exchange: TestingExchange) -> None:
    output = exchange.output()
    exchange.gate.hold(0)
    block = pa.table({"v": list(range(131_072))})

    def flood() -> None:
        while True:
            output.send(block)

    with futures.ThreadPoolExecutor(1) as pool:
        flooding = pool.submit(flood)
        _until(lambda: exchange.gate.queued_bytes() == 16 * 1024 * 1024 and not output.has_room())
        output.cancel()
        assert isinstance(flooding.exception(WAIT_S), ChannelClosed)
    assert exchange.output_lost.empty()
    assert "words[0]" in exchange.gate_lost.get(timeout=WAIT_S)


@pytest.fixture
def unreachable() -> Iterator[str]:
    """An address without an answer: the port is taken, and nothing listens on it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_a_sender_blocked_by_an_unreachable_address_ends_in_time(exchange: TestingExchange, unreachable: str) -> None:
    hello = ChannelOpen(1, _source(), TARGET)
    output = RemoteOutput(
        exchange.peers, unreachable, hello, exchange.output_lost.put, max_elements=1, accept_timeout_ms=300
    )
    exchange.outputs.append(output)
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
    assert str(error) == "a downstream subtask did not accept its channel within 0.3 s"


def test_a_sender_blocked_by_a_slow_receiver_waits_on_once_its_channel_is_taken(exchange: TestingExchange) -> None:
    hello = ChannelOpen(1, _source(), TARGET)
    output = RemoteOutput(exchange.peers, exchange.address, hello, exchange.output_lost.put, accept_timeout_ms=300)
    exchange.outputs.append(output)
    output.start()
    output.send(Barrier(1))
    _take(exchange.gate, 1)
    _until(lambda: output.is_accepted)
    exchange.gate.hold(0)
    block = pa.table({"v": list(range(131_072))})  # 1 MiB; the queues on both sides hold 24 of them

    with futures.ThreadPoolExecutor(1) as pool:

        def flood() -> None:
            for _ in range(60):
                output.send(block)

        flooding = pool.submit(flood)
        _until(lambda: not output.has_room())
        with pytest.raises(futures.TimeoutError):
            flooding.result(0.8)  # longer than a channel that was not taken is waited for
        exchange.gate.release([0])
        received = 0
        while received < 60 * 131_072:
            received += len(_rows(_take(exchange.gate, 1)))
        flooding.result(WAIT_S)


def test_a_receiver_that_disconnects_breaks_the_sender(exchange: TestingExchange) -> None:
    output = exchange.output()
    output.send(pa.table({"v": [1]}))
    _take(exchange.gate, 1)
    exchange.gate.close()
    assert "count[0]" in exchange.output_lost.get(timeout=WAIT_S)
    with pytest.raises(ChannelBroken):
        output.send(pa.table({"v": [2]}))
    assert exchange.gate_lost.empty()  # the gate was closed on purpose


def test_a_caller_without_the_secret_is_refused(exchange: TestingExchange) -> None:
    stranger = PeerChannels(Credentials(secret="not the secret of it"))
    exchange.output(peers=stranger)
    assert "UNAUTHENTICATED" in exchange.output_lost.get(timeout=WAIT_S)
    stranger.close()


class TestMutualTls:
    @pytest.fixture
    def credentials(self, credentials: Credentials, tmp_path: Path) -> Credentials:
        return replace(credentials, tls=replace(make_certificates(tmp_path, "tm"), mutual=True))

    def test_task_managers_show_each_other_certificates(self, exchange: TestingExchange) -> None:
        exchange.output().send(EndOfInput())
        assert isinstance(_take(exchange.gate, 1)[0], EndOfInput)

    def test_the_secret_alone_opens_nothing(self, exchange: TestingExchange, tmp_path: Path) -> None:
        tls = exchange.credentials.tls
        assert tls is not None
        other = make_certificates(tmp_path / "other", "tm")
        for files in (TlsFiles(authority=tls.authority), replace(other, authority=tls.authority)):
            with replace(exchange.credentials, tls=files).channel(exchange.address) as channel:
                call = rpc.call(channel, "ExchangeService", "Open")
                with pytest.raises(grpc.RpcError) as caught:
                    list(call(iter(()), metadata=exchange.credentials.metadata(), timeout=WAIT_S))
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE

    def test_a_renewed_certificate_is_used_while_old_channels_stay_open(
        self, exchange: TestingExchange, tmp_path: Path
    ) -> None:
        """A channel connects with the certificate that it was made with, also when it has lost its connection."""
        kept = exchange.output()
        kept.send(pa.table({"v": [1]}))
        _take(exchange.gate, 1)
        tls, renewed = exchange.credentials.tls, make_certificates(tmp_path / "renewed", "tm")
        assert tls is not None
        for name in ("certificate", "key", "authority"):
            shutil.copy(getattr(renewed, name), getattr(tls, name))
        exchange.server.stop()
        registry = GateRegistry()
        server = ExchangeServer(exchange.credentials, TokenFence(), registry)
        gate = InputGate([ChannelId("words", 1)])
        registry.register(TARGET, gate)
        assert server.start(exchange.address) == exchange.address
        try:
            exchange.output(ChannelOpen(1, _source(1), TARGET)).send(EndOfInput())
            assert isinstance(_take(gate, 1)[0], EndOfInput)
        finally:
            gate.close()
            server.stop()


def test_an_address_that_changes_hands_gets_another_channel(exchange: TestingExchange) -> None:
    """What is connected to the process before may stay so for long where the address is a name."""
    peers, before, after = exchange.peers, Peer("127.0.0.1:1", "a"), Peer("127.0.0.1:1", "b")
    used = peers.acquire(before)
    assert peers.acquire(before) is used
    newer = peers.acquire(after)
    assert newer is not used
    assert peers.acquire(after) is newer
    peers.release(used)
    assert not _is_closed(used), "its streams go on"
    peers.release(used)
    assert _is_closed(used)
    for _ in range(2):
        peers.release(newer)
    assert peers.acquire(after) is newer, "it is kept warm"
    peers.release(newer)
    peers.acquire(before)
    assert _is_closed(newer), "no one can ask for it again"


def _is_closed(channel: grpc.Channel) -> bool:
    try:
        channel.unary_unary("/a/b").future(b"").cancel()
    except ValueError:
        return True
    return False


def test_nothing_is_decoded_of_a_caller_without_the_secret_and_nothing_decompressed(
    exchange: TestingExchange, credentials: Credentials, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = rpc.decode

    def noting(kind: type, data: bytes) -> object:
        decoded.append(len(data))
        return decode(kind, data)

    monkeypatch.setattr(rpc, "decode", noting)
    path = rpc.SERVICES["ExchangeService"]["Open"].path

    def refused(data: bytes, secret: Credentials, **more: object) -> grpc.RpcError:
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(path)(iter((data,)), metadata=secret.metadata(), timeout=WAIT_S, **more))
        return caught.value

    with grpc.insecure_channel(exchange.address) as channel:
        assert refused(b"\xff" * 100, Credentials()).code() is grpc.StatusCode.UNAUTHENTICATED
        squeezed = refused(bytes(1_000_000), credentials, compression=grpc.Compression.Gzip)
        assert squeezed.code() is grpc.StatusCode.UNIMPLEMENTED
        assert decoded == []
        malformed = refused(b"\xff" * 100, credentials)
        assert malformed.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert malformed.details() == "the first element of a channel is ChannelOpen"
    assert decoded == [100]


def test_an_older_token_is_refused(exchange: TestingExchange) -> None:
    exchange.fence.observe(5)
    output, taken = exchange.output(ChannelOpen(4, _source(), TARGET)), list[object]()
    with contextlib.suppress(ChannelBroken):
        output.send(EndOfInput())

    def is_decided() -> bool:
        taken.extend(exchange.gate.poll(0.0))
        return bool(taken) or not exchange.output_lost.empty()

    _until(is_decided)
    assert taken == []
    assert "token 4 is older than 5" in exchange.output_lost.get_nowait()


@pytest.mark.parametrize("token", [9, 2**63 - 1])
def test_a_newer_token_opens_a_channel_and_shuts_no_leader_out(exchange: TestingExchange, token: int) -> None:
    output = exchange.output(ChannelOpen(token, _source(), TARGET))
    output.send(EndOfInput())
    _take(exchange.gate, 1)
    assert exchange.fence.highest < 9


def test_another_attempt_is_refused(exchange: TestingExchange) -> None:
    other = AttemptId("job", "run", 2)
    exchange.output(ChannelOpen(1, SubtaskId(other, "words", 0), SubtaskId(other, "count", 0)))
    assert "attempt 2, is not running here" in exchange.output_lost.get(timeout=WAIT_S)


def test_a_channel_that_the_graph_does_not_have_is_refused(exchange: TestingExchange) -> None:
    exchange.output(ChannelOpen(1, SubtaskId(ATTEMPT, "elsewhere", 0), TARGET))
    assert "has no input from elsewhere" in exchange.output_lost.get(timeout=WAIT_S)


def test_the_same_channel_twice_is_refused(exchange: TestingExchange) -> None:
    first = exchange.output()
    first.send(EndOfInput())
    _take(exchange.gate, 1)
    exchange.output()
    assert "has opened this channel before" in exchange.output_lost.get(timeout=WAIT_S)


@pytest.mark.parametrize("wait_s", [WAIT_S])
def test_a_deployment_that_is_just_arriving_is_waited_for(exchange: TestingExchange) -> None:
    late = SubtaskId(ATTEMPT, "count", 1)
    output = exchange.output(ChannelOpen(1, _source(), late))
    gate = InputGate([ChannelId("words", 0)])
    exchange.registry.register(late, gate)
    output.send(EndOfInput())
    assert _take(gate, 1) == [EndOfInput()]
    gate.close()


@pytest.mark.parametrize("first", [StreamElement(Barrier(1)), StreamElement(None)])
def test_a_stream_without_channel_open_is_refused(exchange: TestingExchange, first: StreamElement) -> None:
    call = rpc.call(exchange.peers.acquire(Peer(exchange.address, "")), "ExchangeService", "Open")
    with pytest.raises(Exception, match="the first element of a channel is ChannelOpen"):
        list(call(iter([first]), metadata=exchange.credentials.metadata()))


def _bomb() -> bytes:
    """32 MB of zeros in a few kB."""
    sink, zeros = pa.BufferOutputStream(), pa.table({"n": np.zeros(4_000_000, np.int64)})
    with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(zeros)
    return bytes(sink.getvalue())


def _records(data: bytes, rows: int) -> bytes:
    return encode(StreamElement(RecordBatch(data, rows)))


@pytest.mark.parametrize(
    ("element", "problem"),
    [
        (_records(b"nonsense", 1), "an element cannot be read: it is not Arrow data"),
        (_records(_bomb(), 1), "an element cannot be read: it is compressed"),
        (_records(to_message(pa.table({"v": [1, 2]})).arrow_ipc, 1), "says 2 rows, but 1 were announced"),
        (b"\xff\xff nonsense", "cannot be read"),
        (encode(StreamElement(ChannelOpen(1, None, None))), "neither records nor a control element"),
    ],
    ids=["nonsense", "bomb", "rows", "message", "second hello"],
)
def test_an_element_that_cannot_be_read_breaks_the_channel_with_a_sentence(
    exchange: TestingExchange, element: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()

    def requests() -> Iterator[bytes]:
        yield encode(StreamElement(ChannelOpen(1, _source(), TARGET)))
        yield element
        done.wait(WAIT_S)

    call = exchange.peers.acquire(Peer(exchange.address, "")).stream_stream(f"/{rpc.full_name('ExchangeService')}/Open")
    answers = call(requests(), metadata=exchange.credentials.metadata())
    assert problem in exchange.gate_lost.get(timeout=WAIT_S)
    done.set()
    assert len(list(answers)) == 1
    assert not [record for record in caplog.records if record.exc_info]


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
    first = peers.acquire(Peer("127.0.0.1:1", ""))
    assert peers.acquire(Peer("127.0.0.1:1", "")) is first
    peers.release(first)
    peers.release(first)
    assert peers.acquire(Peer("127.0.0.1:1", "")) is first
    peers.release(first)
    second = peers.acquire(Peer("127.0.0.1:2", ""))
    peers.release(second)
    assert peers.acquire(Peer("127.0.0.1:1", "")) is not first
    peers.close()
