"""The greeting of a leader: who this is, and what the same leader has not acknowledged.

Behind each greeting comes a message of the test: what stands between the two is the greeting, and nothing is waited for
that may not come.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptGone,
    AttemptId,
    DeclineCheckpoint,
    FailureCause,
    NotifyCheckpointComplete,
    Register,
    SplitsDiscovered,
    SplitState,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    SubtaskState,
)
from lockgate_proto.rpc import MAX_MESSAGE_ELEMENTS
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.runtime.control_client import ControlClient

from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, ScriptedCoordinator

pytestmark = pytest.mark.integration

ATTEMPT = AttemptId("job", "run", 1)
ACK = AcknowledgeCheckpoint(SubtaskId(ATTEMPT, "read", 0), 3, SubtaskState("read", 0))
OTHER = AcknowledgeCheckpoint(SubtaskId(ATTEMPT, "read", 0), 4, SubtaskState("read", 0))
NO_BEATS_MS = 3_600_000


class Guest:
    """One control client, without a task manager behind it."""

    def __init__(self, credentials: Credentials) -> None:
        self._registered = threading.Semaphore(0)
        self.heard: queue.Queue[object] = queue.Queue()
        self._numbers = itertools.count(1)
        self.client = ControlClient(
            "tm-0",
            credentials,
            TokenFence(),
            register=lambda: Register("host:1", 1, 1),
            handle=self.heard.put,
            on_registered=self._registered.release,
            counters=lambda: (),
            heartbeat_ms=NO_BEATS_MS,
        )
        self.client.start()

    def meet(self, leader: ScriptedCoordinator) -> None:
        """The leader is announced, and takes the client."""
        self.client.on_leader(leader.record)
        self.wait_taken()

    def wait_taken(self) -> None:
        """Until a leader has taken the client once more."""
        assert self._registered.acquire(timeout=WAIT_S)

    def greeting(self, leader: ScriptedCoordinator) -> list[object]:
        """What the leader has received on the newest stream by now; earlier marks of this test left out."""
        mark = AttemptGone(AttemptId("mark", "run", next(self._numbers)))
        self.client.send(mark)
        leader.wait_for(AttemptGone, where=lambda attempt_gone: attempt_gone == mark)
        bodies = [message.body for message in leader.messages()]
        newest = max(at for at, body in enumerate(bodies) if isinstance(body, Register))
        return [body for body in bodies[newest:] if not isinstance(body, Register | AttemptGone)]


@pytest.fixture
def guest(credentials: Credentials) -> Iterator[Guest]:
    made = Guest(credentials)
    yield made
    made.client.stop()


def test_messages_are_repeated_on_every_stream_until_they_are_acknowledged(
    guest: Guest, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    leader = new_coordinator(token=5)
    guest.meet(leader)
    guest.client.send(ACK)  # number 1
    guest.client.send(OTHER)
    assert guest.greeting(leader) == [ACK, OTHER]
    for _ in range(2):
        leader.break_streams()
        guest.wait_taken()
        assert guest.greeting(leader) == [ACK, OTHER]
    leader.send("tm-0", NotifyCheckpointComplete(ATTEMPT, 3), acknowledged=1)
    guest.heard.get(timeout=WAIT_S)
    leader.break_streams()
    guest.wait_taken()
    assert guest.greeting(leader) == [OTHER]


def test_repeated_messages_of_a_leader_are_handled_once_and_acknowledged(
    guest: Guest, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    leader = new_coordinator(token=5)
    guest.meet(leader)
    first, other, last = (NotifyCheckpointComplete(ATTEMPT, checkpoint) for checkpoint in (3, 4, 5))
    leader.send("tm-0", first, sequence=1)
    handled = [guest.heard.get(timeout=WAIT_S)]
    leader.break_streams()
    guest.wait_taken()
    leader.send("tm-0", first, sequence=1)
    leader.send("tm-0", other, sequence=2)
    leader.send("tm-0", last)
    while handled[-1] != last:
        handled.append(guest.heard.get(timeout=WAIT_S))
    assert handled == [first, other, last]
    guest.greeting(leader)
    assert leader.messages()[-1].acknowledged == 2


def test_messages_queued_without_a_stream_are_sent_on_the_next_one(
    guest: Guest, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    leader = new_coordinator(token=5)
    guest.meet(leader)
    leader.refusal = (grpc.StatusCode.UNAVAILABLE, "not now")
    leader.break_streams()
    leader.wait(lambda: leader.refused_count > 0)
    guest.client.send(ACK)
    leader.refusal = None
    guest.wait_taken()
    assert guest.greeting(leader) == [ACK]


def test_another_leader_receives_no_report(guest: Guest, new_coordinator: Callable[..., ScriptedCoordinator]) -> None:
    first, second = new_coordinator(token=5), new_coordinator(token=6)
    guest.meet(first)
    guest.client.send(ACK)
    assert guest.greeting(first) == [ACK]
    first.die()
    guest.meet(second)
    assert guest.greeting(second) == []


def test_a_leader_that_leads_again_receives_everything_although_its_record_is_late(
    guest: Guest, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    """Its streams end, the task manager comes back at once, and only then does ZooKeeper tell of the new term.

    A registration under the earlier token counts for little there: it registers again once it knows the later one.
    """
    leader = new_coordinator(token=5)
    guest.meet(leader)
    for _ in range(20):
        guest.greeting(leader)
    leader.token = 6
    leader.break_streams()
    guest.wait_taken()
    guest.client.send(ACK)
    assert guest.greeting(leader) == [ACK]
    guest.client.on_leader(leader.record)
    guest.client.send(OTHER)
    assert guest.greeting(leader) == [ACK, OTHER]
    registers = [received.token for received in leader.messages() if isinstance(received.body, Register)]
    assert registers == [5, 5, 6], "the late record ends no stream"
    numbers = [received.sequence for received in leader.messages() if received.sequence and received.token == 6]
    assert len({*numbers}) == len(numbers)
    assert min(numbers) > 20, "a number of the earlier term would be taken for a message that was handled"


UNSENDABLE = "r\udce9sum\u00e9.csv"  # a file's name that is no Unicode, as Python has it


@pytest.mark.parametrize(
    ("body", "instead"),
    [
        (SubtaskReport(ACK.subtask, SubtaskPhase.SUBTASK_FAILED, FailureCause.USER_CODE, UNSENDABLE), "error"),
        (SplitsDiscovered(ATTEMPT, "read", (SplitState(UNSENDABLE, 0, 1),), round=3), "error"),
        (DeclineCheckpoint(ACK.subtask, 3, UNSENDABLE), "reason"),
        (SplitsDiscovered(ATTEMPT, "read", (SplitState("a" * 64 * 1024 * 1024, 0, 1),), round=3), "error"),
        (SplitsDiscovered(ATTEMPT, "read", (SplitState(),) * (MAX_MESSAGE_ELEMENTS + 1), round=3), "error"),
    ],
    ids=["report", "splits", "decline", "too large", "too many"],
)
def test_a_message_that_cannot_be_sent_delays_no_other(
    guest: Guest, new_coordinator: Callable[..., ScriptedCoordinator], body: Any, instead: str
) -> None:
    leader = new_coordinator(token=5)
    guest.meet(leader)
    guest.client.send(body)
    guest.client.send(OTHER)
    found, other = guest.greeting(leader)
    assert other == OTHER
    assert type(found) is type(body)
    assert "cannot be sent" in getattr(found, instead)
    assert len(leader.received(Register)) == 1
