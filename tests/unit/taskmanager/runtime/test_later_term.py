"""A leader that was granted leadership again since ZooKeeper announced it receives every report once more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AttemptId,
    CoordinatorMessage,
    LeaderRecord,
    Register,
    Registered,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    TaskManagerMessage,
)
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.runtime import control_client
from lockgate_taskmanager.runtime.control_client import ControlClient

KNOWN, LATER = 4, 5
DONE = SubtaskReport(SubtaskId(AttemptId("job", "run", 1), "read", 0), SubtaskPhase.SUBTASK_EXHAUSTED)


class Wire:
    """A leader with a later token. before_answer: called once, as the first stream is being opened."""

    def __init__(self) -> None:
        self.streams: list[list[TaskManagerMessage]] = []
        self.before_answer = lambda: None

    def __call__(self, record: LeaderRecord, _: Any) -> Any:
        sent: list[TaskManagerMessage] = []
        self.streams.append(sent)
        connection = mock.Mock(record=record, send=sent.append)

        def messages() -> Iterator[CoordinatorMessage]:
            self.before_answer()
            self.before_answer = lambda: None
            yield CoordinatorMessage(LATER, Registered(1_000))

        connection.messages = messages
        return connection


def test_a_new_registration_repeats_reports_under_the_earlier_token() -> None:
    phases = [SubtaskPhase.SUBTASK_RUNNING]
    wire = Wire()
    client = ControlClient(
        "tm",
        Credentials(),
        TokenFence(),
        register=lambda: Register("host:1", pid=int(phases[-1])),  # the phase, for want of anything simpler
        handle=lambda _: None,
        on_registered=lambda: None,
        counters=lambda: (),
        heartbeat_ms=1_000,
    )

    def reach_the_end() -> None:
        phases.append(DONE.phase)
        client.send(DONE)

    wire.before_answer = reach_the_end
    record = LeaderRecord(coordinator_id="c", address="host:9", token=KNOWN)
    client.on_leader(record)
    with mock.patch.object(control_client, "LeaderConnection", wire):
        client._run_stream(record)
        assert not client.is_connected
        again = client._leader
        assert again == LeaderRecord(coordinator_id="c", address="host:9", token=LATER)
        assert again is not None
        client._run_stream(again)
    first, second = wire.streams
    assert [message.token for message in first] == [KNOWN, KNOWN], "the leader takes these for signs of life"
    register = second[0].body
    assert isinstance(register, Register)
    assert (second[0].token, register.pid) == (LATER, int(SubtaskPhase.SUBTASK_EXHAUSTED))
