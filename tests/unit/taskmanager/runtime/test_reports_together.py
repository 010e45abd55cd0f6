"""ControlClient: reports travel together where the leader reads that, in order with all other messages."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptGone,
    AttemptId,
    BatchedReport,
    CoordinatorMessage,
    LeaderRecord,
    Register,
    Registered,
    ReportBatch,
    SubtaskId,
    TaskManagerMessage,
)
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.runtime import control_client
from lockgate_taskmanager.runtime.control_client import ControlClient
from lockgate_taskmanager.runtime.report_batches import Company

WAIT_S = 60.0
TOKEN = 4
ATTEMPT = AttemptId("job", "run", 1)
GONE = AttemptGone(ATTEMPT)
FOR_LONG = Company(3, 3_600_000)


def ack(index: int) -> AcknowledgeCheckpoint:
    return AcknowledgeCheckpoint(SubtaskId(ATTEMPT, "count", index), 3)


def together(*indices: int) -> ReportBatch:
    return ReportBatch(tuple(BatchedReport(ack(index)) for index in indices))


class Wire:
    """A leader; `says` are the answers of its streams, each followed by what a test does meanwhile."""

    def __init__(self, *says: tuple[CoordinatorMessage, Callable[[], object]]) -> None:
        self.sent: list[TaskManagerMessage] = []
        self._says = iter(says)

    def __call__(self, record: LeaderRecord, _: Any) -> Any:
        connection = mock.Mock(record=record, send=self.sent.append)

        def messages() -> Iterator[CoordinatorMessage]:
            answer, meanwhile = next(self._says)
            yield answer
            meanwhile()

        connection.messages = messages
        return connection

    def bodies(self) -> list[Any]:
        return [message.body for message in self.sent if not isinstance(message.body, Register)]


def client_of() -> ControlClient:
    return ControlClient(
        "tm",
        Credentials(),
        TokenFence(),
        register=lambda: Register("host:1"),
        handle=lambda _: None,
        on_registered=lambda: None,
        counters=lambda: (),
        heartbeat_ms=3_600_000,
    )


def run(client: ControlClient, wire: Wire, *tokens: int) -> None:
    with mock.patch.object(control_client, "LeaderConnection", wire):
        for token in tokens:
            record = LeaderRecord(coordinator_id="c", address="host:9", token=token)
            client.on_leader(record)
            client._run_stream(record)


def registered(token: int = TOKEN, *, takes_batches: bool = True) -> CoordinatorMessage:
    return CoordinatorMessage(token, Registered(1_000, takes_batches=takes_batches))


def report(client: ControlClient, *indices: int, company: Company = FOR_LONG) -> Callable[[], None]:
    def make() -> None:
        for index in indices:
            client.send(ack(index), company)

    return make


def test_the_reports_of_all_subtasks_are_one_message_with_one_number() -> None:
    client = client_of()
    wire = Wire((registered(), report(client, 0, 1, 2)))
    run(client, wire, TOKEN)
    assert wire.bodies() == [together(0, 1, 2)]
    assert [message.sequence for message in wire.sent] == [0, 1]


def test_a_leader_that_has_not_said_that_it_reads_batches_gets_each_report() -> None:
    client = client_of()
    wire = Wire((registered(takes_batches=False), report(client, 0, 1, 2)))
    run(client, wire, TOKEN)
    assert wire.bodies() == [ack(0), ack(1), ack(2)]


def test_another_message_goes_behind_the_reports_that_wait() -> None:
    client = client_of()
    wire = Wire((registered(), lambda: (report(client, 0, 1)(), client.send(GONE))))
    run(client, wire, TOKEN)
    assert wire.bodies() == [together(0, 1), GONE]


def test_reports_that_waited_as_the_stream_broke_reach_the_same_leader_over_the_next_one() -> None:
    client = client_of()
    wire = Wire((registered(), report(client, 0, 1)), (registered(), report(client, 2)))
    run(client, wire, TOKEN, TOKEN)
    assert wire.bodies() == [together(0, 1, 2)]


def test_a_batch_that_was_lost_with_its_stream_is_sent_again_with_its_number() -> None:
    client = client_of()
    wire = Wire((registered(), report(client, 0, 1, 2)), (registered(), lambda: None))
    run(client, wire, TOKEN, TOKEN)
    assert wire.bodies() == [together(0, 1, 2)] * 2
    assert [message.sequence for message in wire.sent] == [0, 1, 0, 1]


def test_reports_that_waited_for_a_leader_are_not_for_the_next_one() -> None:
    """They are in the registration, as those are that had been sent."""
    client = client_of()
    wire = Wire((registered(), report(client, 0, 1)), (registered(TOKEN + 1), lambda: client.send(GONE)))
    run(client, wire, TOKEN, TOKEN + 1)
    assert wire.bodies() == [GONE]


def test_reports_do_not_wait_for_ever() -> None:
    client = client_of()
    arrived: queue.Queue[Any] = queue.Queue()
    found: list[Any] = []

    def meanwhile() -> None:
        report(client, 0, 1, company=Company(3, 20))()
        found.extend(arrived.get(timeout=WAIT_S) for _ in range(2))

    wire = Wire((registered(), meanwhile))
    wire.sent = mock.Mock(append=lambda message: arrived.put(message.body))
    batcher = threading.Thread(target=client._send_batches, daemon=True)
    batcher.start()
    run(client, wire, TOKEN)
    client.stop()
    batcher.join(WAIT_S)
    assert not batcher.is_alive()
    assert found == [Register("host:1"), together(0, 1)]
