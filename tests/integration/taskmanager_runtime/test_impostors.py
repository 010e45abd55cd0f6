"""Addresses at which somebody else answers: neither secret nor data goes there, and nothing is taken from there."""

from __future__ import annotations

import logging
import queue
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AttemptId,
    CancelAttempt,
    ChannelOpen,
    CoordinatorMessage,
    ExchangeSignal,
    LeaderRecord,
    Register,
    SubtaskId,
)
from lockgate_taskmanager.exchange.errors import ChannelBroken
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.outputs import RemoteOutput
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.exchange.server import ExchangeServer
from lockgate_taskmanager.runtime.control_client import ControlClient

from tests.impostor import Impostor

pytestmark = pytest.mark.integration

WAIT_S = 60.0
ATTEMPT = AttemptId("job", "run", 1)
ORDER = encode(CoordinatorMessage(9, CancelAttempt(ATTEMPT)))  # stands for a Deploy with code in it
HELLO = ChannelOpen(1, SubtaskId(ATTEMPT, "words", 0), SubtaskId(ATTEMPT, "count", 0))


@pytest.fixture
def carried_out() -> queue.Queue[Any]:
    return queue.Queue()


@pytest.fixture
def client(credentials: Credentials, carried_out: queue.Queue[Any]) -> Iterator[ControlClient]:
    made = ControlClient(
        "tm-0",
        credentials,
        TokenFence(),
        register=lambda: Register("host:1", 1, 1),
        handle=carried_out.put,
        on_registered=lambda: carried_out.put("registered"),
        counters=lambda: (),
        heartbeat_ms=3_600_000,
    )
    made.start()
    yield made
    made.stop()


class _Refusals(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: queue.Queue[str] = queue.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(record.getMessage())


@pytest.fixture
def refusals() -> Iterator[queue.Queue[str]]:
    handler, logger = _Refusals(), logging.getLogger("lockgate_taskmanager.runtime.control_client")
    logger.addHandler(handler)
    yield handler.messages
    logger.removeHandler(handler)


def test_a_planted_leader_gets_no_secret_and_its_orders_are_ignored(
    client: ControlClient, credentials: Credentials, carried_out: queue.Queue[Any], refusals: queue.Queue[str]
) -> None:
    with Impostor([ORDER]) as impostor:
        client.on_leader(LeaderRecord(token=1, address=impostor.address, coordinator_id="planted"))
        metadata_lines = [impostor.metadata_lines.get(timeout=WAIT_S) for _ in range(3)]
        messages = refusals.get(timeout=WAIT_S)
    assert not any(credentials.secret in metadata for metadata in metadata_lines)
    assert len(set(metadata_lines)) == 3  # and nothing that could be shown again
    assert impostor.taken.empty()  # not even a Register
    assert carried_out.empty()
    assert "does not prove that it knows the cluster's secret" in messages


def test_a_stranger_that_forwards_a_call_to_the_real_process_gets_no_proof(credentials: Credentials) -> None:
    real = ExchangeServer(credentials, TokenFence(), GateRegistry())
    with Impostor([encode(ExchangeSignal(accepted=True))], relay_to=real.start("127.0.0.1:0")) as relay:
        peers, lost = PeerChannels(credentials), queue.Queue[str]()
        output = RemoteOutput(peers, relay.address, HELLO, lost.put)
        output.start()
        assert relay.relayed.get(timeout=WAIT_S) == "UNAUTHENTICATED"
        assert "does not prove" in lost.get(timeout=WAIT_S)
        output.cancel()
        assert output.join(WAIT_S)
        peers.close()
    real.stop()


def test_a_channel_sends_nothing_to_a_process_that_replaced_its_receiver(credentials: Credentials) -> None:
    peers, lost = PeerChannels(credentials), queue.Queue[str]()
    with Impostor([encode(ExchangeSignal(accepted=True))]) as impostor:
        output = RemoteOutput(peers, impostor.address, HELLO, lost.put)
        output.send(pa.table({"v": ["a record of a user"]}))
        output.start()
        assert "does not prove" in lost.get(timeout=WAIT_S)
        with pytest.raises(ChannelBroken):
            output.send(pa.table({"v": [1]}))
        output.cancel()
        assert output.join(WAIT_S)
    peers.close()
    assert credentials.secret not in impostor.metadata_lines.get(timeout=WAIT_S)
    assert impostor.taken.empty()
    assert not output.is_accepted


@pytest.mark.parametrize(
    ("meant", "answer"),
    [("the first", "UNAUTHENTICATED"), ("the second", "FAILED_PRECONDITION")],
    ids=["started again since", "the one that is meant"],
)
def test_a_channel_is_for_one_process_and_not_for_its_address(
    credentials: Credentials, meant: str, answer: str
) -> None:
    server = ExchangeServer(credentials, TokenFence(), GateRegistry(), instance="the second", wait_s=0.0)
    address = server.start("127.0.0.1:0")
    peers, lost = PeerChannels(credentials), queue.Queue[str]()
    output = RemoteOutput(peers, address, HELLO, lost.put, instance=meant)
    output.start()
    assert answer in lost.get(timeout=WAIT_S)  # FAILED_PRECONDITION: let in, and there is no such subtask
    output.cancel()
    assert output.join(WAIT_S)
    peers.close()
    server.stop()
