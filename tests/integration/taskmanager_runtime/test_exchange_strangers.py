"""Callers of the exchange without the cluster's secret: they hold no thread, and wrong credentials wait."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator

import grpc
import pytest
from grpc import StatusCode
from grpc_health.v1 import health_pb2, health_pb2_grpc
from lockgate_common.proof import Peer
from lockgate_common.security import Credentials
from lockgate_common.serving import requests, wrong_tries
from lockgate_common.serving.refusals import UNKNOWN_CALLER
from lockgate_proto import rpc
from lockgate_proto.messages import AttemptId, ChannelOpen, EndOfInput, SubtaskId
from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.exchange.outputs import RemoteOutput
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer

from tests.quick_credentials import note_waits

pytestmark = pytest.mark.integration

WAIT_S = 60.0
SECRET = Credentials("a secret of this test")
CHANNELS = 2  # threads of the server
STRANGERS = 20
HEALTH = "/grpc.health.v1.Health"
OPEN = rpc.path("ExchangeService", "Open")
ATTEMPT = AttemptId("job", "run", 1)
TARGET = SubtaskId(ATTEMPT, "count", 0)


@pytest.fixture
def gate() -> Iterator[InputGate]:
    made = InputGate([ChannelId("words", 0)])
    yield made
    made.close()


@pytest.fixture
def address(gate: InputGate) -> Iterator[str]:
    registry = GateRegistry()
    registry.register(TARGET, gate)
    server = ExchangeServer(SECRET, TokenFence(), registry, max_channels=CHANNELS)
    yield server.start("127.0.0.1:0")
    server.stop()


@pytest.fixture
def channel(address: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(address) as made:
        yield made


def silence(over: threading.Event) -> Iterator[bytes]:
    over.wait(WAIT_S)
    yield from ()


def wrong(channel: grpc.Channel, credentials: Credentials) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(OPEN)(iter(()), metadata=credentials.metadata(), timeout=WAIT_S))
    return caught.value


def test_calls_whose_request_never_arrives_hold_nothing(address: str, channel: grpc.Channel, gate: InputGate) -> None:
    over = threading.Event()
    silent = [
        channel.stream_stream(path)(silence(over), timeout=WAIT_S)
        for path in (f"{HEALTH}/Check", f"{HEALTH}/Watch", OPEN)
        for _ in range(STRANGERS)
    ]
    peers = PeerChannels(SECRET)
    output = RemoteOutput(peers, address, ChannelOpen(1, SubtaskId(ATTEMPT, "words", 0), TARGET), lambda _: None)
    try:
        stub = health_pb2_grpc.HealthStub(channel)
        assert (
            stub.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S).status == health_pb2.HealthCheckResponse.SERVING
        )
        output.start()
        output.send(EndOfInput())
        assert gate.poll(WAIT_S) == [(0, EndOfInput())]
        assert sum(thread.name.startswith("exchange_") for thread in threading.enumerate()) == 1
    finally:
        over.set()
        for call in silent:
            call.cancel()
        output.cancel()
        assert output.join(WAIT_S)
        peers.close()


def test_a_channel_too_many_is_refused_with_the_reason_until_another_ends() -> None:
    gate = InputGate([ChannelId("words", number) for number in range(CHANNELS + 1)])
    registry = GateRegistry()
    registry.register(TARGET, gate)
    server = ExchangeServer(SECRET, TokenFence(), registry, wait_s=0.1, max_channels=CHANNELS)
    address, peers = server.start("127.0.0.1:0"), PeerChannels(SECRET)
    outputs: list[RemoteOutput] = []

    def refusal(number: int) -> str:
        """Of a channel that sends its end at once; empty when that has arrived."""
        lost = queue.Queue[str]()
        output = RemoteOutput(peers, address, ChannelOpen(1, SubtaskId(ATTEMPT, "words", number), TARGET), lost.put)
        outputs.append(output)
        output.start()
        output.send(EndOfInput())
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if gate.poll(0.01):
                return ""
            with contextlib.suppress(queue.Empty):
                return lost.get_nowait()
        raise TimeoutError

    try:
        assert [refusal(number) for number in range(CHANNELS)] == ["", ""]
        reason = refusal(CHANNELS)
        assert "2 channels from other task managers are open there, which is the most: use more task managers" in reason
        outputs[0].cancel()
        deadline = time.monotonic() + WAIT_S
        while reason and time.monotonic() < deadline:  # its thread is free a moment later
            reason = refusal(CHANNELS)
        assert not reason
    finally:
        for output in outputs:
            output.cancel()
            assert output.join(WAIT_S)
        peers.close()
        gate.close()
        server.stop()


@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_a_call_whose_request_does_not_come_ends(
    channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(requests, "_FREE_WAIT_S", 0.05)
    over = threading.Event()
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(f"{HEALTH}/{method}")(silence(over), timeout=WAIT_S))
    over.set()
    assert caught.value.code() is StatusCode.DEADLINE_EXCEEDED
    assert "no request arrived" in caught.value.details()


def test_wrong_credentials_get_no_details_and_wait_longer_each_time(
    address: str, channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As at a coordinator. Proofs do not wait: one may be for the process that was at this address before."""
    waited = note_waits(monkeypatch)
    caplog.set_level(logging.WARNING)
    for credentials in (Credentials(), Credentials("not the secret of it"), Credentials("another secret")):
        refused = wrong(channel, credentials)
        assert (refused.code(), refused.details()) == (StatusCode.UNAUTHENTICATED, UNKNOWN_CALLER)
    assert waited == [0.3, 0.6, 1.2]
    stale = SECRET.introduction(Peer(address, "the process before"), OPEN).metadata
    with pytest.raises(grpc.RpcError) as caught:
        list(channel.stream_stream(OPEN)(iter(()), metadata=stale, timeout=WAIT_S))
    assert caught.value.details() == UNKNOWN_CALLER
    assert len(waited) == 3
    counted = [record.getMessage() for record in caplog.records]
    assert counted == ["1 calls with wrong or missing credentials from 127.0.0.1 in a row"]


def test_wrong_proofs_wait_too(channel: grpc.Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrong_tries, "_STALE_PROOFS", 1)
    waited = note_waits(monkeypatch)
    for _ in range(3):
        proof = Credentials("not the secret of it").introduction(Peer("127.0.0.1:1", "before"), OPEN).metadata
        with pytest.raises(grpc.RpcError) as caught:
            list(channel.stream_stream(OPEN)(iter(()), metadata=proof, timeout=WAIT_S))
        assert caught.value.code() is StatusCode.UNAUTHENTICATED
    assert [seconds for seconds in waited if seconds >= 0.3] == [0.3, 0.6]
