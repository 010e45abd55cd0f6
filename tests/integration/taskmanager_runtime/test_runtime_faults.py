"""What goes wrong between a leader and its task managers, and what the task managers make of it."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

import grpc
import pytest
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    DeclineCheckpoint,
    Deploy,
    DiscoverSplits,
    FailureCause,
    Goodbye,
    Heartbeat,
    NotifyCheckpointAborted,
    Register,
    SplitsDiscovered,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
)

from taskmanager.exchange.outputs import RemoteOutput
from taskmanager.runtime import control_client, subtask_task
from taskmanager.runtime.task_manager import TaskManager
from taskmanager.task.program import DataError, SnapshotTooLarge, StateUnreadable, UserCodeFailed, UserError
from tests.integration.taskmanager_runtime.fake_programs import FakeFactory, World, expected, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration

RUNNING = SubtaskPhase.SUBTASK_RUNNING
FAILED = SubtaskPhase.SUBTASK_FAILED
CANCELED = SubtaskPhase.SUBTASK_CANCELED


@dataclass
class Bench:
    """A leader and its two registered task managers."""

    leader: Leader
    coordinator: ScriptedCoordinator
    managers: list[TaskManager]
    world: World

    def failures(self) -> list[SubtaskReport]:
        return [one for one in self.coordinator.received(SubtaskReport) if one.phase is FAILED]

    def held(self) -> int:
        """Input channels that are held now, in all subtasks."""
        tasks = [task for one in self.managers for task in one.deployments.tasks(self.leader.attempt).values()]
        return sum(len(task.gate.held()) for task in tasks)

    def wait_gone(self, attempt: AttemptId, count: int) -> None:
        self.coordinator.wait_for(AttemptGone, count, lambda one: one.attempt == attempt)

    def start(self, rows: int = 100_000, complete: bool = False) -> None:
        self.leader.deploy(1)
        self.leader.assign(rows, complete)
        self.leader.wait_phase(RUNNING)

    def cancel(self) -> None:
        for one in self.managers:
            self.coordinator.send(one.id, CancelAttempt(self.leader.attempt, "test"))


@pytest.fixture
def bench(
    new_coordinator: Callable[..., ScriptedCoordinator], new_task_manager: Callable[..., TaskManager], world: World
) -> Bench:
    coordinator = new_coordinator(token=5)
    managers = [new_task_manager("tm-0", heartbeat_ms=50), new_task_manager("tm-1", heartbeat_ms=50)]
    for one in managers:
        one.on_leader(coordinator.record)
    coordinator.wait_for(Register, 2)
    return Bench(Leader(coordinator, word_count_graph(), ("tm-0", "tm-1")), coordinator, managers, world)


def test_an_error_of_the_job_is_reported_as_the_users(bench: Bench) -> None:
    bench.world.fail_process = UserError("no column `wrod`; the input has: word")
    bench.leader.deploy(1)
    bench.leader.assign(10)
    report = bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)[0]
    assert (report.cause, report.error) == (FailureCause.USER_ERROR, "no column `wrod`; the input has: word")


def test_unreadable_state_is_reported_as_such(bench: Bench) -> None:
    bench.world.fail_open = StateUnreadable("chk-3/x.state is missing")
    bench.leader.deploy(1)
    report = bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)[0]
    assert (report.cause, report.error) == (FailureCause.STATE_UNREADABLE, "chk-3/x.state is missing")


@pytest.mark.parametrize(
    ("error", "cause"), [(KeyError("x"), FailureCause.INTERNAL_ERROR), (SystemExit(3), FailureCause.FAULT)]
)
def test_an_unexpected_error_is_told_with_a_short_traceback(
    bench: Bench, error: BaseException, cause: FailureCause
) -> None:
    bench.world.fail_process = error  # type: ignore[assignment]
    bench.leader.deploy(1)
    bench.leader.assign(10)
    report = bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)[0]
    assert report.cause is cause
    assert report.error.startswith(type(error).__name__)
    assert "fake_programs.py" in report.error


@pytest.mark.parametrize(
    ("error", "cause"),
    [(DataError("a cast"), FailureCause.DATA_ERROR), (UserCodeFailed("away"), FailureCause.USER_CODE)],
)
def test_what_depends_on_records_is_told_apart_from_what_is_wrong_without_any(
    bench: Bench, error: Exception, cause: FailureCause
) -> None:
    bench.world.fail_process = error
    bench.leader.deploy(1)
    bench.leader.assign(10)
    report = bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)[0]
    assert (report.cause, report.error) == (cause, str(error))


def test_an_interruption_that_comes_before_the_work_it_would_stop_is_repeated(bench: Bench) -> None:
    bench.world.process_gate.clear()
    bench.leader.deploy(1)
    bench.leader.assign(1_000_000)
    bench.coordinator.wait_for(SubtaskReport, 2, lambda one: one.phase is RUNNING)
    bench.world.lost_interrupts = 8  # of each of four subtasks the first
    bench.cancel()
    bench.wait_gone(bench.leader.attempt, 2)
    assert bench.world.lost_interrupts == 0


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SnapshotTooLarge("17 MiB, at most 16")])
def test_a_failed_upload_declines_the_checkpoint_and_the_stream_goes_on(bench: Bench, error: Exception) -> None:
    bench.world.fail_persist = error
    bench.world.limit = 50
    bench.start(100, complete=True)
    bench.leader.trigger(1)
    declined = bench.coordinator.wait_for(DeclineCheckpoint, 4)
    assert str(error) in declined[0].reason
    bench.world.fail_persist = None
    bench.leader.checkpoint(2)
    bench.world.limit = None
    bench.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    bench.leader.checkpoint(3, terminal=True)
    assert bench.world.visible == expected(100, 2)


def test_a_barrier_lost_at_one_source_is_declined_when_the_next_one_comes(bench: Bench) -> None:
    bench.start()
    bench.coordinator.send("tm-0", TriggerCheckpoint(bench.leader.attempt, 1))  # tm-1 never hears of it
    bench.coordinator.wait(lambda: bench.held() == 2)
    bench.leader.trigger(2)
    declined = bench.coordinator.wait_for(DeclineCheckpoint, 2)
    assert {(one.subtask.vertex_id, one.checkpoint_id) for one in declined if one.subtask} == {("count", 1)}
    bench.leader.wait_acks(2)


def test_an_abort_notice_releases_held_channels(bench: Bench) -> None:
    bench.world.limit = 1000  # or the sources might have come to their ends by now
    bench.start(2000, complete=True)
    bench.coordinator.send("tm-0", TriggerCheckpoint(bench.leader.attempt, 1))
    bench.coordinator.wait(lambda: bench.held() == 2)
    bench.world.limit = None
    for one in bench.managers:
        bench.coordinator.send(one.id, NotifyCheckpointAborted(bench.leader.attempt, 1, "timeout"))
    bench.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    bench.leader.checkpoint(2, terminal=True)
    assert bench.world.visible == expected(2000, 2)
    assert bench.coordinator.received(DeclineCheckpoint) == []


def test_cancel_ends_every_subtask_and_frees_it(bench: Bench) -> None:
    bench.start()
    bench.cancel()
    bench.wait_gone(bench.leader.attempt, 2)
    bench.leader.wait_phase(CANCELED)
    assert bench.failures() == []
    assert all(one.deployments.running() == () for one in bench.managers)
    assert len(bench.world.closed) == 4


def test_cancel_reaches_sources_blocked_by_back_pressure(bench: Bench) -> None:
    bench.world.padding = 400_000
    bench.world.process_gate.clear()
    bench.leader.deploy(1)
    bench.leader.assign(1_000_000)
    bench.coordinator.wait_for(SubtaskReport, 2, lambda one: one.phase is RUNNING)
    bench.cancel()
    bench.wait_gone(bench.leader.attempt, 2)
    assert bench.failures() == []


def test_a_source_blocked_by_a_peer_that_cannot_be_reached_fails_in_time(
    new_coordinator: Callable[..., ScriptedCoordinator],
    new_task_manager: Callable[..., TaskManager],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its control stream is fine, so nobody else would ever notice; the subtask itself is inside a send."""
    monkeypatch.setitem(RemoteOutput.__init__.__kwdefaults__, "accept_timeout_ms", 500)
    world.padding, world.limit = 400_000, 100
    with socket.socket() as taken:  # bound and not listening: connections to it are refused
        taken.bind(("127.0.0.1", 0))
        unreachable = f"127.0.0.1:{taken.getsockname()[1]}"
        coordinator = new_coordinator()
        managers = [new_task_manager("tm-0"), new_task_manager("tm-1", advertise=unreachable)]
        for one in managers:
            one.on_leader(coordinator.record)
        coordinator.wait_for(Register, 2)
        leader = Leader(coordinator, word_count_graph(), ("tm-0", "tm-1"))
        leader.deploy(1)
        leader.assign(100)
        report = coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)[0]
    assert report.cause is FailureCause.PEER_LOST
    assert report.error == "a downstream subtask did not take its channel in 0.5 s"
    assert report.subtask is not None
    assert (report.subtask.vertex_id, report.subtask.subtask) == ("words", 0)


def test_a_newer_attempt_replaces_the_older_one_without_waiting_for_a_stuck_subtask(bench: Bench) -> None:
    bench.start()
    first = bench.leader.attempt
    bench.world.ignores_cancel = True
    bench.world.process_gate.clear()
    bench.world.limit = 0
    bench.leader.deploy(2)
    bench.coordinator.wait_for(SubtaskReport, 2, lambda one: one.phase is RUNNING and _attempt(one) == 2)
    bench.world.process_gate.set()
    bench.wait_gone(first, 2)
    bench.leader.wait_phase(RUNNING)
    assert [one.deployments.running() for one in bench.managers] == [(bench.leader.attempt,)] * 2
    assert bench.failures() == []


def test_an_older_attempt_is_refused_and_a_doubled_deployment_ignored(bench: Bench) -> None:
    bench.start()
    bench.leader.deploy(2)
    bench.leader.wait_phase(RUNNING)
    refused = AttemptId("job", "run", 1)
    bench.wait_gone(refused, 2)
    opened = len(bench.world.opened)
    bench.leader.deploy(2)
    bench.leader.deploy(1)
    bench.wait_gone(refused, 4)  # twice as replaced, twice as refused
    assert len(bench.world.opened) == opened
    assert [one.deployments.running()[0].attempt for one in bench.managers] == [2, 2]


def test_cancel_of_an_unknown_attempt_is_answered_and_its_late_deployment_refused(bench: Bench) -> None:
    bench.leader.attempt = AttemptId("job", "run", 1)
    bench.cancel()
    bench.wait_gone(bench.leader.attempt, 2)
    bench.leader.deploy(1)
    bench.wait_gone(bench.leader.attempt, 4)
    assert bench.world.opened == []


def test_a_message_with_an_older_token_is_refused_and_the_stream_left(bench: Bench) -> None:
    bench.start()
    bench.coordinator.send("tm-0", CancelAttempt(bench.leader.attempt, "zombie"), token=4)
    registers = bench.coordinator.wait_for(Register, 3)
    assert registers[2].running == (bench.leader.attempt,)
    assert bench.coordinator.received(AttemptGone) == []


def test_subtasks_run_on_without_a_leader_and_the_next_one_finds_them(
    bench: Bench, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    bench.start(500, complete=True)
    bench.coordinator.die()
    for one in bench.managers:
        one.on_leader(None)
    successor = new_coordinator(token=6)
    for one in bench.managers:
        one.on_leader(successor.record)
    registers = successor.wait_for(Register, 2)
    assert [one.running for one in registers] == [(bench.leader.attempt,)] * 2
    assert {one.token for one in successor.messages()} == {6}


def test_a_leader_with_an_older_token_is_never_joined(
    bench: Bench, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    zombie = new_coordinator(token=4)
    bench.managers[0].on_leader(zombie.record)
    bench.coordinator.wait_for(Heartbeat, 4)
    assert zombie.received(Register) == []


def test_a_broken_stream_to_a_living_leader_is_opened_again(bench: Bench) -> None:
    bench.start()
    bench.coordinator.break_streams()
    registers = bench.coordinator.wait_for(Register, 4)
    assert registers[3].running == (bench.leader.attempt,)


def test_what_was_said_before_a_stream_broke_is_said_again_to_the_same_leader_only(
    bench: Bench, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    bench.start()
    bench.leader.checkpoint(1)
    bench.leader.checkpoint(2)
    bench.leader.trigger(3)
    bench.leader.wait_acks(3)
    bench.coordinator.break_streams()
    again = bench.coordinator.wait_for(AcknowledgeCheckpoint, 12 + 4)[12:]
    assert {one.checkpoint_id for one in again} == {3}, "the leader has said of the others how they ended"
    bench.coordinator.wait_for(SubtaskReport, 8, lambda one: one.phase is RUNNING)
    bench.leader.complete(3)
    bench.coordinator.die()
    successor = new_coordinator(token=6)
    for one in bench.managers:
        one.on_leader(successor.record)
    successor.wait_for(Heartbeat, 2)
    assert successor.received(SubtaskReport) == []


def test_splits_assigned_twice_are_read_once(bench: Bench) -> None:
    bench.start(100, complete=True)
    bench.leader.assign(100)
    bench.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    bench.leader.checkpoint(1, terminal=True)
    assert bench.world.visible == expected(100, 2)


def test_a_lost_peer_is_reported_by_the_subtasks_that_had_channels_to_it(bench: Bench) -> None:
    bench.start()
    bench.leader.checkpoint(1)  # every channel is open now
    bench.managers[1].stop()
    reports = bench.coordinator.wait_for(SubtaskReport, 2, lambda one: one.phase is FAILED)
    assert {one.cause for one in reports} == {FailureCause.PEER_LOST}
    assert {one.subtask.subtask for one in reports if one.subtask} == {0}


def test_the_cause_of_a_failure_arrives_before_the_channels_it_breaks(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtask_task, "PEER_LOST_GRACE_S", WAIT_S)  # a slow machine's message is on its way for longer
    bench.leader.deploy(1)
    bench.leader.wait_phase(RUNNING)
    bench.world.fail_process = UserError("bad")
    bench.leader.assign(10)
    bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)
    assert bench.failures()[0].cause is FailureCause.USER_ERROR


def test_splits_are_listed_or_the_reason_is_told(bench: Bench) -> None:
    bench.start()
    attempt = bench.leader.attempt
    bench.coordinator.send("tm-0", DiscoverSplits(attempt, "words", ("0",)))
    bench.coordinator.send("tm-0", DiscoverSplits(attempt, "elsewhere"))
    answers = {one.vertex_id: one for one in bench.coordinator.wait_for(SplitsDiscovered, 2)}
    assert [one.split for one in answers["words"].splits] == ["1"]
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
def test_a_listing_that_breaks_tells_whether_a_restart_can_help(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception, cause: FailureCause
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(FakeFactory, "discover", broken)
    bench.start()
    bench.coordinator.send("tm-0", DiscoverSplits(bench.leader.attempt, "words"))
    (answer,) = bench.coordinator.wait_for(SplitsDiscovered)
    assert str(error) in answer.error
    assert answer.cause is cause


def test_heartbeats_carry_the_counters(bench: Bench) -> None:
    bench.start(100, complete=True)
    bench.leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)

    def is_counted() -> bool:
        beats = bench.coordinator.received(Heartbeat)[-2:]
        found = [two.records_in for one in beats for sub in one.counters for two in sub.counters]
        return sum(found) == 200

    bench.coordinator.wait(is_counted)


def test_a_refused_registration_is_logged_once_for_each_reason(
    new_coordinator: Callable[..., ScriptedCoordinator],
    new_task_manager: Callable[..., TaskManager],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "taskmanager.runtime.control_client")
    coordinator = new_coordinator()

    def refuse(code: grpc.StatusCode, reason: str, tries: int) -> None:
        coordinator.refusal, already = (code, reason), coordinator.refused_count
        coordinator.wait(lambda: coordinator.refused_count >= already + tries)

    coordinator.refusal = grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use"
    new_task_manager("tm-0").on_leader(coordinator.record)
    refuse(grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use", 4)
    refuse(grpc.StatusCode.UNAVAILABLE, "ask again", 3)  # no refusal, and the next one is the one from before
    refuse(grpc.StatusCode.ALREADY_EXISTS, "the id tm-0 is in use", 3)
    refuse(grpc.StatusCode.UNAUTHENTICATED, "the secret is wrong", 3)
    coordinator.refusal = None
    coordinator.wait_for(Register)
    coordinator.refusal = grpc.StatusCode.UNAUTHENTICATED, "the secret is wrong"
    coordinator.break_streams()
    refuse(grpc.StatusCode.UNAUTHENTICATED, "the secret is wrong", 3)
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    assert told == [
        f"the leader at {coordinator.address} refuses this task manager: {reason}"
        for reason in (
            "ALREADY_EXISTS: the id tm-0 is in use",
            "UNAUTHENTICATED: the secret is wrong",
            "UNAUTHENTICATED: the secret is wrong",  # again, after it had been taken in between
        )
    ]


def test_a_silent_leader_is_left(
    new_coordinator: Callable[..., ScriptedCoordinator], new_task_manager: Callable[..., TaskManager]
) -> None:
    coordinator = new_coordinator(heartbeat_ms=50)
    manager = new_task_manager("tm-0", heartbeat_ms=50)
    manager.on_leader(coordinator.record)
    coordinator.wait_for(Register)
    coordinator.send("tm-0", Heartbeat(1))  # and then nothing more
    coordinator.wait_for(Register, 2)


def test_a_deployment_that_makes_no_sense_fails_and_nothing_else_does(bench: Bench) -> None:
    bench.start()
    other = AttemptId("other", "run", 1)
    placements = tuple(one for one in bench.leader.placements() if one.vertex_id == "words")
    bench.coordinator.send("tm-0", Deploy(other, word_count_graph(), placements))
    report = bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.phase is FAILED)[0]
    assert "places no subtask of vertex 'count'" in report.error
    bench.wait_gone(other, 1)
    bench.leader.checkpoint(1)


def test_stopping_ends_the_stream_first(bench: Bench) -> None:
    bench.start()
    bench.managers[0].stop()
    assert bench.coordinator.wait_ended("tm-0")
    assert [one for one in bench.coordinator.received(SubtaskReport) if one.phase is CANCELED] == []


def test_a_goodbye_is_answered_before_any_channel_breaks(bench: Bench) -> None:
    found: list[tuple[str, int]] = []

    def look(name: str) -> None:
        host, _, port = bench.managers[0].exchange_address.rpartition(":")
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()  # raises where nobody listens any more
        found.append((name, len(bench.failures())))

    bench.coordinator.on_goodbye = look
    bench.start()
    bench.managers[0].stop()
    assert found == [("tm-0", 0)]
    bench.coordinator.wait_for(SubtaskReport, where=lambda one: one.cause is FailureCause.PEER_LOST)
    assert len(bench.coordinator.received(Goodbye)) == 1
    assert len(bench.coordinator.received(Register)) == 2  # nobody comes back to a stream that ended like this


def test_without_a_leader_nobody_is_waited_for(bench: Bench) -> None:
    bench.start()
    bench.coordinator.die()
    bench.managers[0].stop()
    assert bench.coordinator.received(Goodbye) == []


def test_a_leader_that_dies_over_a_goodbye_is_not_waited_for_and_no_other_is_told(
    bench: Bench, new_coordinator: Callable[..., ScriptedCoordinator]
) -> None:
    successor = new_coordinator(token=6)

    def die(_name: str) -> None:
        bench.managers[0].on_leader(successor.record)
        bench.coordinator.break_streams()

    bench.coordinator.on_goodbye = die
    bench.start()
    bench.managers[0].stop()
    assert successor.messages() == []


def test_a_leader_that_does_not_answer_a_goodbye_does_not_keep_the_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    never = threading.Event()
    monkeypatch.setattr(control_client, "GOODBYE_WAIT_S", 1.0)
    bench.coordinator.on_goodbye = lambda _name: never.wait()
    bench.start()
    bench.managers[0].stop()
    assert len(bench.coordinator.wait_for(Goodbye)) == 1
    never.set()


def _attempt(report: SubtaskReport) -> int:
    assert report.subtask is not None
    assert report.subtask.attempt is not None
    return report.subtask.attempt.attempt
