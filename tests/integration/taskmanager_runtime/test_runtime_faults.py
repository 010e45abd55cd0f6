"""What goes wrong between a leader and its task managers, and what the task managers make of it."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    DeclineCheckpoint,
    Deploy,
    DiscoverSplits,
    Edge,
    FailureCause,
    Goodbye,
    Heartbeat,
    NotifyCheckpointAborted,
    Participant,
    Partitioning,
    Register,
    SplitsDiscovered,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
)
from lockgate_taskmanager.exchange.outputs import RemoteOutput
from lockgate_taskmanager.runtime import subtask_task
from lockgate_taskmanager.runtime.task_manager import TaskManager
from lockgate_taskmanager.task.program import DataError, SnapshotTooLarge, StateUnreadable, UserCodeFailed, UserError

from tests.certificates import make_certificates
from tests.integration.taskmanager_runtime.fake_programs import FakeFactory, World, expected, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, Leader, ScriptedCoordinator
from tests.layouts import layout

pytestmark = pytest.mark.integration

RUNNING = SubtaskPhase.SUBTASK_RUNNING
FAILED = SubtaskPhase.SUBTASK_FAILED
CANCELED = SubtaskPhase.SUBTASK_CANCELED


@dataclass
class TestingRuntime:
    """A leader and its two registered task managers."""

    leader: Leader
    coordinator: ScriptedCoordinator
    managers: list[TaskManager]
    world: World

    def failures(self) -> list[SubtaskReport]:
        return [
            subtask_report
            for subtask_report in self.coordinator.received(SubtaskReport)
            if subtask_report.phase is FAILED
        ]

    def held(self) -> int:
        """Input channels that are held now, in all subtasks."""
        tasks = [task for manager in self.managers for task in manager.deployments.tasks(self.leader.attempt).values()]
        return sum(len(task.gate.held()) for task in tasks)

    def wait_gone(self, attempt: AttemptId, count: int) -> None:
        self.coordinator.wait_for(AttemptGone, count, lambda attempt_gone: attempt_gone.attempt == attempt)

    def start(self, rows: int = 100_000, complete: bool = False) -> None:
        self.leader.deploy(1)
        self.leader.assign(rows, complete)
        self.leader.wait_phase(RUNNING)

    def cancel(self) -> None:
        for manager in self.managers:
            self.coordinator.send(manager.id, CancelAttempt(self.leader.attempt, "test"))


@pytest.fixture
def runtime(
    new_coordinator: Callable[..., ScriptedCoordinator], new_task_manager: Callable[..., TaskManager], world: World
) -> TestingRuntime:
    coordinator = new_coordinator(token=5)
    managers = [new_task_manager("tm-0", heartbeat_ms=50), new_task_manager("tm-1", heartbeat_ms=50)]
    for manager in managers:
        manager.on_leader(coordinator.record)
    coordinator.wait_for(Register, 2)
    return TestingRuntime(Leader(coordinator, word_count_graph(), ("tm-0", "tm-1")), coordinator, managers, world)


def test_an_error_of_the_job_is_reported_as_the_users(runtime: TestingRuntime) -> None:
    runtime.world.fail_process = UserError("no column `wrod`; the input has: word")
    runtime.leader.deploy(1)
    runtime.leader.assign(10)
    report = runtime.coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)[0]
    assert (report.cause, report.error) == (FailureCause.USER_ERROR, "no column `wrod`; the input has: word")


def test_unreadable_state_is_reported_as_such(runtime: TestingRuntime) -> None:
    runtime.world.fail_open = StateUnreadable("chk-3/x.state is missing")
    runtime.leader.deploy(1)
    report = runtime.coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)[0]
    assert (report.cause, report.error) == (FailureCause.STATE_UNREADABLE, "chk-3/x.state is missing")


@pytest.mark.parametrize(
    ("error", "cause"), [(KeyError("x"), FailureCause.INTERNAL_ERROR), (SystemExit(3), FailureCause.FAULT)]
)
def test_an_unexpected_error_is_reported_with_a_short_traceback(
    runtime: TestingRuntime, error: BaseException, cause: FailureCause
) -> None:
    runtime.world.fail_process = error  # type: ignore[assignment]
    runtime.leader.deploy(1)
    runtime.leader.assign(10)
    report = runtime.coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)[0]
    assert report.cause is cause
    assert report.error.startswith(type(error).__name__)
    assert "fake_programs.py" in report.error


@pytest.mark.parametrize(
    ("error", "cause"),
    [(DataError("a cast"), FailureCause.DATA_ERROR), (UserCodeFailed("away"), FailureCause.USER_CODE)],
)
def test_errors_of_records_are_distinguished_from_errors_without_any_record(
    runtime: TestingRuntime, error: Exception, cause: FailureCause
) -> None:
    runtime.world.fail_process = error
    runtime.leader.deploy(1)
    runtime.leader.assign(10)
    report = runtime.coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)[0]
    assert (report.cause, report.error) == (cause, str(error))


def test_an_interruption_before_its_work_begins_is_repeated(runtime: TestingRuntime) -> None:
    runtime.world.process_gate.clear()
    runtime.leader.deploy(1)
    runtime.leader.assign(1_000_000)
    runtime.coordinator.wait_for(SubtaskReport, 2, lambda subtask_report: subtask_report.phase is RUNNING)
    runtime.world.lost_interrupts = 8  # of each of four subtasks the first
    runtime.cancel()
    runtime.wait_gone(runtime.leader.attempt, 2)
    assert runtime.world.lost_interrupts == 0


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SnapshotTooLarge("17 MiB, at most 16")])
def test_a_failed_upload_declines_the_checkpoint_and_the_stream_continues(
    runtime: TestingRuntime, error: Exception
) -> None:
    runtime.world.fail_persist = error
    runtime.world.limit = 50
    runtime.start(100, complete=True)
    runtime.leader.trigger(1)
    declined = runtime.coordinator.wait_for(DeclineCheckpoint, 4)
    assert str(error) in declined[0].reason
    runtime.world.fail_persist = None
    runtime.leader.checkpoint(2)
    runtime.world.limit = None
    runtime.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    runtime.leader.checkpoint(3, terminal=True)
    assert runtime.world.visible == expected(100, 2)


def test_a_barrier_lost_at_one_source_is_declined_when_the_next_one_arrives(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.coordinator.send("tm-0", TriggerCheckpoint(runtime.leader.attempt, 1))  # tm-1 never receives it
    runtime.coordinator.wait(lambda: runtime.held() == 2)
    runtime.leader.trigger(2)
    declined = runtime.coordinator.wait_for(DeclineCheckpoint, 2)
    assert {
        (decline_checkpoint.subtask.vertex_id, decline_checkpoint.checkpoint_id)
        for decline_checkpoint in declined
        if decline_checkpoint.subtask
    } == {("count", 1)}
    runtime.leader.wait_acks(2)


def test_an_abort_notice_releases_held_channels(runtime: TestingRuntime) -> None:
    runtime.world.limit = 1000  # or the sources might have come to their ends by now
    runtime.start(2000, complete=True)
    runtime.coordinator.send("tm-0", TriggerCheckpoint(runtime.leader.attempt, 1))
    runtime.coordinator.wait(lambda: runtime.held() == 2)
    runtime.coordinator.wait_for(AcknowledgeCheckpoint)  # of the source: one that is still being stored is declined
    runtime.world.limit = None
    for manager in runtime.managers:
        runtime.coordinator.send(manager.id, NotifyCheckpointAborted(runtime.leader.attempt, 1, "timeout"))
    runtime.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    runtime.leader.checkpoint(2, terminal=True)
    assert runtime.world.visible == expected(2000, 2)
    assert runtime.coordinator.received(DeclineCheckpoint) == []


def test_cancel_ends_every_subtask_and_frees_it(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.cancel()
    runtime.wait_gone(runtime.leader.attempt, 2)
    runtime.leader.wait_phase(CANCELED)
    assert runtime.failures() == []
    assert all(manager.deployments.running() == () for manager in runtime.managers)
    assert len(runtime.world.closed) == 4
    ends = [report for report in runtime.coordinator.received(SubtaskReport) if report.phase is CANCELED]
    assert len(ends) == 4
    assert all(report.counters for report in ends), "what they had read last is in no heartbeat"


def test_cancel_reaches_sources_blocked_by_back_pressure(runtime: TestingRuntime) -> None:
    runtime.world.padding = 400_000
    runtime.world.process_gate.clear()
    runtime.leader.deploy(1)
    runtime.leader.assign(1_000_000)
    runtime.coordinator.wait_for(SubtaskReport, 2, lambda subtask_report: subtask_report.phase is RUNNING)
    runtime.cancel()
    runtime.wait_gone(runtime.leader.attempt, 2)
    assert runtime.failures() == []


def test_a_source_blocked_by_a_peer_that_cannot_be_reached_fails_in_time(
    new_coordinator: Callable[..., ScriptedCoordinator],
    new_task_manager: Callable[..., TaskManager],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its control stream is fine, so no other process would ever notice; the subtask itself is inside a send."""
    monkeypatch.setitem(RemoteOutput.__init__.__kwdefaults__, "accept_timeout_ms", 500)
    world.padding, world.limit = 400_000, 100
    with socket.socket() as taken:  # bound and not listening: connections to it are refused
        taken.bind(("127.0.0.1", 0))
        unreachable = f"127.0.0.1:{taken.getsockname()[1]}"
        coordinator = new_coordinator()
        managers = [new_task_manager("tm-0"), new_task_manager("tm-1", advertise=unreachable)]
        for manager in managers:
            manager.on_leader(coordinator.record)
        coordinator.wait_for(Register, 2)
        leader = Leader(coordinator, word_count_graph(), ("tm-0", "tm-1"))
        leader.deploy(1)
        leader.assign(100)
        report = coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)[0]
    assert report.cause is FailureCause.PEER_LOST
    assert report.error == "a downstream subtask did not accept its channel within 0.5 s"
    assert report.subtask is not None
    assert (report.subtask.vertex_id, report.subtask.subtask) == ("words", 0)


def test_a_newer_attempt_replaces_the_older_one_without_waiting_for_a_stuck_subtask(runtime: TestingRuntime) -> None:
    runtime.start()
    first = runtime.leader.attempt
    runtime.world.ignores_cancel = True
    runtime.world.process_gate.clear()
    runtime.world.limit = 0
    runtime.leader.deploy(2)
    runtime.coordinator.wait_for(
        SubtaskReport, 2, lambda subtask_report: subtask_report.phase is RUNNING and _attempt(subtask_report) == 2
    )
    runtime.world.process_gate.set()
    runtime.wait_gone(first, 2)
    runtime.leader.wait_phase(RUNNING)
    assert [manager.deployments.running() for manager in runtime.managers] == [(runtime.leader.attempt,)] * 2
    assert runtime.failures() == []


def test_an_older_attempt_is_refused_and_a_doubled_deployment_ignored(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.leader.deploy(2)
    runtime.leader.wait_phase(RUNNING)
    refused = AttemptId("job", "run", 1)
    runtime.wait_gone(refused, 2)
    opened = len(runtime.world.opened)
    runtime.leader.deploy(2)
    runtime.leader.deploy(1)
    runtime.wait_gone(refused, 4)  # twice as replaced, twice as refused
    assert len(runtime.world.opened) == opened
    assert [manager.deployments.running()[0].attempt for manager in runtime.managers] == [2, 2]


def test_cancel_of_an_unknown_attempt_is_answered_and_its_late_deployment_refused(runtime: TestingRuntime) -> None:
    runtime.leader.attempt = AttemptId("job", "run", 1)
    runtime.cancel()
    runtime.wait_gone(runtime.leader.attempt, 2)
    runtime.leader.deploy(1)
    runtime.wait_gone(runtime.leader.attempt, 4)
    assert runtime.world.opened == []


def test_a_message_with_an_older_token_is_refused_and_the_stream_left(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.coordinator.send("tm-0", CancelAttempt(runtime.leader.attempt, "zombie"), token=4)
    coordinator = runtime.coordinator
    coordinator.wait(lambda: len(coordinator.received(Register)) > 2 or coordinator.received(AttemptGone))
    assert coordinator.received(AttemptGone) == []
    assert coordinator.received(Register)[2].running == (runtime.leader.attempt,)


def test_subtasks_run_on_without_a_leader_and_the_next_one_finds_them(
    runtime: TestingRuntime, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    runtime.start(500, complete=True)
    runtime.coordinator.die()
    for manager in runtime.managers:
        manager.on_leader(None)
    successor = new_coordinator(token=6)
    for manager in runtime.managers:
        manager.on_leader(successor.record)
    registers = successor.wait_for(Register, 2)
    assert [register.running for register in registers] == [(runtime.leader.attempt,)] * 2
    assert {message.token for message in successor.messages()} == {6}


def test_a_leader_with_an_older_token_is_never_joined(
    runtime: TestingRuntime, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    zombie = new_coordinator(token=4)
    runtime.managers[0].on_leader(zombie.record)
    runtime.coordinator.wait_for(Heartbeat, 4)
    assert zombie.received(Register) == []


def test_a_broken_stream_to_a_living_leader_is_opened_again(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.coordinator.break_streams()
    registers = runtime.coordinator.wait_for(Register, 4)
    assert registers[3].running == (runtime.leader.attempt,)


def test_messages_from_before_a_broken_stream_are_repeated_to_the_same_leader_only(
    runtime: TestingRuntime, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    runtime.start()
    runtime.leader.checkpoint(1)
    runtime.leader.checkpoint(2)
    runtime.leader.trigger(3)
    runtime.leader.wait_acks(3)
    acks = [message for message in runtime.coordinator.messages() if isinstance(message.body, AcknowledgeCheckpoint)]
    for name in {ack.task_manager_id for ack in acks}:
        first = min(ack.sequence for ack in acks if ack.task_manager_id == name and ack.body.checkpoint_id == 3)
        runtime.coordinator.send(name, Heartbeat(), acknowledged=first - 1)
    runtime.coordinator.break_streams()
    again = runtime.coordinator.wait_for(AcknowledgeCheckpoint, 12 + 4)[12:]
    assert {acknowledge_checkpoint.checkpoint_id for acknowledge_checkpoint in again} == {3}, (
        "the leader has acknowledged the others"
    )
    assert len(runtime.coordinator.received(SubtaskReport)) == 4, "and what was said before them"
    runtime.leader.complete(3)
    runtime.coordinator.die()
    successor = new_coordinator(token=6)
    for manager in runtime.managers:
        manager.on_leader(successor.record)
    successor.wait_for(Heartbeat, 2)
    assert successor.received(SubtaskReport) == []


def test_splits_assigned_twice_are_read_once(runtime: TestingRuntime) -> None:
    runtime.start(100, complete=True)
    runtime.leader.assign(100)
    runtime.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    runtime.leader.checkpoint(1, terminal=True)
    assert runtime.world.visible == expected(100, 2)


def test_a_lost_peer_is_reported_by_the_subtasks_that_had_channels_to_it(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.leader.checkpoint(1)  # every channel is open now
    runtime.managers[1].stop()
    reports = runtime.coordinator.wait_for(SubtaskReport, 2, lambda subtask_report: subtask_report.phase is FAILED)
    assert {report.cause for report in reports} == {FailureCause.PEER_LOST}
    assert {report.subtask.subtask for report in reports if report.subtask} == {0}


def test_the_cause_of_a_failure_arrives_before_the_channels_it_breaks(
    runtime: TestingRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtask_task, "PEER_LOST_GRACE_S", WAIT_S)  # a slow machine's message is on its way for longer
    runtime.leader.deploy(1)
    runtime.leader.wait_phase(RUNNING)
    runtime.world.fail_process = UserError("bad")
    runtime.leader.assign(10)
    runtime.coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)
    assert runtime.failures()[0].cause is FailureCause.USER_ERROR


def test_splits_are_listed_or_the_reason_is_reported(runtime: TestingRuntime) -> None:
    runtime.start()
    attempt = runtime.leader.attempt
    runtime.coordinator.send("tm-0", DiscoverSplits(attempt, "words", ("0",)))
    runtime.coordinator.send("tm-0", DiscoverSplits(attempt, "elsewhere"))
    answers = {
        splits_discovered.vertex_id: splits_discovered
        for splits_discovered in runtime.coordinator.wait_for(SplitsDiscovered, 2)
    }
    assert [split.split for split in answers["words"].splits] == ["1"]
    assert answers["words"].complete
    assert answers["elsewhere"].error == "no vertex elsewhere"
    assert answers["elsewhere"].cause is FailureCause.USER_ERROR


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("the share is away"), FailureCause.FAULT),
        (StateUnreadable("a list is corrupt"), FailureCause.STATE_UNREADABLE),
    ],
)
def test_a_failed_listing_reports_whether_a_restart_can_help(
    runtime: TestingRuntime, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: FailureCause
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(FakeFactory, "discover", broken)
    runtime.start()
    runtime.coordinator.send("tm-0", DiscoverSplits(runtime.leader.attempt, "words"))
    (answer,) = runtime.coordinator.wait_for(SplitsDiscovered)
    assert str(error) in answer.error
    assert answer.cause is cause


@pytest.mark.parametrize(
    ("error", "has_trace"), [(OSError("the share is away"), False), (KeyError("a mistake in the code"), True)]
)
def test_a_source_that_is_away_is_one_line_however_often_it_is_listed(
    runtime: TestingRuntime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    has_trace: bool,
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(FakeFactory, "discover", broken)
    runtime.start()
    for number in range(3):
        runtime.coordinator.send("tm-0", DiscoverSplits(runtime.leader.attempt, "words"))
        runtime.coordinator.wait_for(SplitsDiscovered, number + 1)
    (line,) = [record for record in caplog.records if "cannot be listed" in record.getMessage()]
    assert line.levelno == logging.WARNING
    assert str(error) in line.getMessage()
    assert bool(line.exc_info) is has_trace
    assert f"of job {runtime.leader.attempt.job_key} cannot" in line.getMessage()


def test_heartbeats_carry_the_counters(runtime: TestingRuntime) -> None:
    runtime.start(100, complete=True)
    runtime.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)

    def is_counted() -> bool:
        beats = runtime.coordinator.received(Heartbeat)[-2:]
        found = [two.records_in for beat in beats for sub in beat.counters for two in sub.counters]
        return sum(found) == 200

    runtime.coordinator.wait(is_counted)


def test_a_refused_registration_is_logged_once_for_each_reason(
    new_coordinator: Callable[..., ScriptedCoordinator],
    new_task_manager: Callable[..., TaskManager],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "lockgate_taskmanager.runtime.control_client")
    coordinator = new_coordinator()

    def refuse(code: grpc.StatusCode, reason: str, tries: int) -> None:
        coordinator.refusal, already = (code, reason), coordinator.refused_count
        coordinator.wait(lambda: coordinator.refused_count >= already + tries)

    coordinator.refusal = grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use"
    new_task_manager("tm-0").on_leader(coordinator.record)
    refuse(grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use", 4)
    refuse(grpc.StatusCode.UNAVAILABLE, "try again", 3)  # no refusal, and the next one is the one from before
    refuse(grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use", 3)
    refuse(grpc.StatusCode.UNAUTHENTICATED, "the secret is wrong", 3)
    coordinator.refusal = None
    coordinator.wait_for(Register)
    coordinator.refusal = grpc.StatusCode.UNAUTHENTICATED, "the secret is wrong"
    coordinator.break_streams()
    refuse(grpc.StatusCode.UNAUTHENTICATED, "the secret is wrong", 3)
    reported = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert reported == [
        f"the leader at {coordinator.address} refuses this task manager: {reason}"
        for reason in (
            "ALREADY_EXISTS: the id tm-0 is in use",
            "UNAUTHENTICATED: the secret is wrong",
            "UNAUTHENTICATED: the secret is wrong",  # again, after it had been taken in between
        )
    ]


def test_a_certificate_that_the_leader_does_not_take_is_logged_once(
    new_task_manager: Callable[..., TaskManager],
    credentials: Credentials,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mutual = replace(make_certificates(tmp_path / "tls"), mutual=True)
    foreign = replace(make_certificates(tmp_path / "other"), authority=mutual.authority, mutual=True)
    coordinator = ScriptedCoordinator(replace(credentials, tls=mutual))
    caplog.set_level(logging.DEBUG, "lockgate_taskmanager.runtime.control_client")

    def reported() -> tuple[list[str], int]:
        records = [item for item in caplog.records if item.name.endswith("control_client")]
        ends = [item for item in records if "tls.mutual" in item.getMessage()]
        return [item.getMessage() for item in ends if item.levelno >= logging.WARNING], len(ends)

    new_task_manager("tm-0", credentials=replace(credentials, tls=foreign)).on_leader(coordinator.record)
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while reported()[1] < 3:
        assert time.monotonic() < deadline
        pause.wait(0.05)
    coordinator.die()
    (sentence,) = reported()[0]
    assert sentence.startswith(f"the leader at {coordinator.address} refuses this task manager: it has ended the TLS")
    assert "set tls.certificate and tls.key" in sentence


def test_a_silent_leader_is_left(
    new_coordinator: Callable[..., ScriptedCoordinator], new_task_manager: Callable[..., TaskManager]
) -> None:
    coordinator = new_coordinator(heartbeat_ms=50)
    manager = new_task_manager("tm-0", heartbeat_ms=50)
    manager.on_leader(coordinator.record)
    coordinator.wait_for(Register)
    coordinator.send("tm-0", Heartbeat(1))  # and then nothing more
    coordinator.wait_for(Register, 2)


def test_a_deployment_that_makes_no_sense_fails_and_nothing_else_does(runtime: TestingRuntime) -> None:
    runtime.start()
    other = AttemptId("other", "run", 1)
    graph = word_count_graph()
    nowhere = replace(graph, edges=(Edge("words", "nowhere", Partitioning.HASH, ("word",)), *graph.edges))
    places = layout(nowhere, *[Participant("tm-0", "127.0.0.1:1")] * 2)
    runtime.coordinator.send("tm-0", Deploy(other, layout=places))
    report = runtime.coordinator.wait_for(SubtaskReport, where=lambda subtask_report: subtask_report.phase is FAILED)[0]
    assert "nowhere" in report.error
    runtime.wait_gone(other, 1)
    runtime.leader.checkpoint(1)


def test_stopping_ends_the_stream_first(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.managers[0].stop()
    assert runtime.coordinator.wait_ended("tm-0")
    assert [
        subtask_report
        for subtask_report in runtime.coordinator.received(SubtaskReport)
        if subtask_report.phase is CANCELED
    ] == []


def test_a_goodbye_is_answered_before_any_channel_breaks(runtime: TestingRuntime) -> None:
    found: list[tuple[str, int]] = []

    def look(name: str) -> None:
        host, _, port = runtime.managers[0].exchange_address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()  # raises where nothing listens any more
        found.append((name, len(runtime.failures())))

    runtime.coordinator.on_goodbye = look
    runtime.start()
    runtime.managers[0].stop()
    assert found == [("tm-0", 0)]
    runtime.coordinator.wait_for(
        SubtaskReport, where=lambda subtask_report: subtask_report.cause is FailureCause.PEER_LOST
    )
    assert len(runtime.coordinator.received(Goodbye)) == 1
    assert len(runtime.coordinator.received(Register)) == 2  # a stream that ended like this is not opened again


def test_without_a_leader_there_is_no_wait(runtime: TestingRuntime) -> None:
    runtime.start()
    runtime.coordinator.die()
    runtime.managers[0].stop()
    assert runtime.coordinator.received(Goodbye) == []


def test_a_leader_that_dies_during_a_goodbye_is_not_waited_for_and_no_other_is_notified(
    runtime: TestingRuntime, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    successor = new_coordinator(token=6)

    def die(_name: str) -> None:
        runtime.managers[0].on_leader(successor.record)
        runtime.coordinator.break_streams()

    runtime.coordinator.on_goodbye = die
    runtime.start()
    runtime.managers[0].stop()
    assert successor.messages() == []


def test_a_leader_that_does_not_answer_a_goodbye_does_not_keep_the_process(
    runtime: TestingRuntime,
) -> None:
    never = threading.Event()
    runtime.coordinator.on_goodbye = lambda _name: never.wait()
    runtime.start()
    runtime.managers[0].stop()
    assert len(runtime.coordinator.wait_for(Goodbye)) == 1
    never.set()


def _attempt(report: SubtaskReport) -> int:
    assert report.subtask is not None
    assert report.subtask.attempt is not None
    return report.subtask.attempt.attempt
