"""Deployments that come late, twice or out of order, and what replaces what. Real subtasks with an idle program."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from lockgate_common.backlog import Backlog
from lockgate_common.logs import JsonFormatter
from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AssignSplits,
    AssignSplitsTogether,
    AttemptGone,
    AttemptId,
    CancelAttempt,
    DeclineCause,
    DeclineCheckpoint,
    Deploy,
    GeneratorSource,
    JobGraph,
    LeaderFailover,
    NotifyCheckpointAborted,
    Operator,
    Participant,
    SplitState,
    SubtaskId,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
    Vertex,
)
from lockgate_taskmanager.exchange.fencing import TokenFence
from lockgate_taskmanager.exchange.peers import PeerChannels
from lockgate_taskmanager.exchange.registry import GateRegistry
from lockgate_taskmanager.runtime.deployments import Deployments
from lockgate_taskmanager.runtime.report_batches import ALONE, Company
from lockgate_taskmanager.runtime.stories import Stories
from lockgate_taskmanager.runtime.time_shares import Share
from lockgate_taskmanager.task.program import Batch, Idle, ProgramContext

from tests.layouts import layout

WAIT_S = 60.0
GRAPH = JobGraph("job", (Vertex("read", "read", 1, 128, (Operator("generate", kind=GeneratorSource()),)),))


class IdleSource:
    """A program that has nothing to do until it is cancelled."""

    is_source = True
    irreproducible = ""

    def __init__(self, attempt: int, opened: Callable[[], None]) -> None:
        self.attempt = attempt
        self.is_canceled = False
        self._opened = opened

    def open(self) -> Batch:
        self._opened()
        return Batch()

    def poll(self) -> Idle:
        return Idle(1_000)

    def backlog(self) -> Backlog:
        return Backlog()

    def assign(self, *_: object) -> None: ...

    def cancel(self) -> None:
        self.is_canceled = True

    def counters(self) -> tuple[()]:
        return ()

    def place(self) -> None: ...

    def at_work(self) -> None: ...

    def close(self) -> None: ...


class TestingTaskManager:
    """The deployments of one task manager, and what they say to the leader. It is the factory of its programs."""

    def __init__(self) -> None:
        self.programs: list[IdleSource] = []
        self.reports: list[object] = []
        self._changed = threading.Condition()
        self._opened = 0
        peers, self.stories = PeerChannels(Credentials()), Stories("tm", "test")
        factory: Any = self
        self.fence = TokenFence()
        self.deployments = Deployments("tm", factory, GateRegistry(), peers, self.fence, self._hear, self.stories)

    def interrupt_user_code(self, thread: int) -> None:
        """See ProgramFactory. There is no author's code here."""

    def build(self, context: ProgramContext) -> Any:
        assert context.subtask.attempt is not None
        self.programs.append(IdleSource(context.subtask.attempt.attempt, self._note_open))
        return self.programs[-1]

    def deploy(self, attempt: int, run: str = "run", more: bytes = b"", beside: tuple[int, ...] = ()) -> None:
        """The message of the leader, carried out when this returns. more: at the end of the layout."""
        places = layout(GRAPH, Participant("tm", "unused:1")) + more
        self.deployments.handle(Deploy(AttemptId("job", run, attempt), layout=places, beside=beside))

    def cancel(self, attempt: int) -> None:
        """The message of the leader."""
        self.deployments.handle(CancelAttempt(AttemptId("job", "run", attempt), "test"))

    def running(self) -> list[int]:
        """Attempts."""
        return [running.attempt for running in self.deployments.running()]

    def gone(self) -> list[int]:
        """Attempts reported to the leader as gone, as often as they were reported."""
        with self._changed:
            bodies = list(self.reports)
        return [body.attempt.attempt for body in bodies if isinstance(body, AttemptGone) and body.attempt is not None]

    def wait_open(self, count: int) -> None:
        """Until so many programs have been opened in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._opened >= count, WAIT_S)

    def wait_gone(self, count: int) -> None:
        """Until so many attempts were reported as gone."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum(isinstance(attempt_gone, AttemptGone) for attempt_gone in self.reports) >= count, WAIT_S
            )

    def _note_open(self) -> None:
        with self._changed:
            self._opened += 1
            self._changed.notify_all()

    def _hear(self, body: object, company: Company = ALONE) -> None:  # noqa: ARG002  as Reporting
        with self._changed:
            self.reports.append(body)
            self._changed.notify_all()


@pytest.fixture
def manager() -> Iterator[TestingTaskManager]:
    made = TestingTaskManager()
    yield made
    assert made.deployments.stop(WAIT_S)


def test_a_newer_attempt_cancels_the_one_that_it_replaces(manager: TestingTaskManager) -> None:
    manager.deploy(1)
    manager.wait_open(1)
    manager.deploy(2)
    assert [program.is_canceled for program in manager.programs if program.attempt == 1] == [True]
    manager.wait_gone(1)
    assert (manager.gone(), manager.running()) == ([1], [2])


def test_an_attempt_of_a_later_run_of_the_job_replaces_the_former_run(manager: TestingTaskManager) -> None:
    manager.deploy(7)
    manager.wait_open(1)
    manager.deploy(1, run="another")
    assert manager.programs[0].is_canceled
    manager.wait_gone(1)
    assert (manager.gone(), manager.running()) == ([7], [1])


def test_an_attempt_replaces_those_only_beside_which_it_is_not_deployed(manager: TestingTaskManager) -> None:
    manager.deploy(1)
    manager.deploy(2, beside=(1,))
    manager.wait_open(2)
    assert (manager.running(), manager.programs[0].is_canceled) == ([1, 2], False)
    manager.deploy(3, beside=(2,))
    manager.wait_gone(1)
    assert (manager.gone(), manager.running()) == ([1], [2, 3])
    manager.deploy(4)
    manager.wait_gone(3)
    assert manager.running() == [4]


def test_some_slots_of_an_attempt_end_and_the_others_run_on(manager: TestingTaskManager) -> None:
    wide = replace(
        GRAPH,
        vertices=(replace(GRAPH.vertices[0], parallelism=2),),
        leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH,
    )
    attempt, here = AttemptId("job", "run", 1), Participant("tm", "unused:1")
    manager.deployments.handle(Deploy(attempt, layout=layout(wide, here, here)))
    manager.wait_open(2)
    manager.deployments.handle(CancelAttempt(attempt, "test", slots=(1,)))
    assert sorted(program.is_canceled for program in manager.programs) == [False, True]
    (progress,) = manager.deployments.progress()
    assert ([item.subtask for item in progress.subtasks], manager.gone(), manager.running()) == ([0], [], [1])
    manager.cancel(1)
    manager.wait_gone(1)


class Hanging(IdleSource):
    """Its first poll is in the author's code, which nothing interrupts, until it is released."""

    def __init__(self, attempt: int, opened: Callable[[], None], released: threading.Event) -> None:
        super().__init__(attempt, opened)
        self.polled, self.frozen = threading.Event(), threading.Event()
        self._released = released

    def poll(self) -> Idle:
        self.polled.set()
        assert self._released.wait(WAIT_S)
        return Idle(1)

    def snapshot(self, *_: object) -> None:
        self.frozen.set()
        raise RuntimeError("there is nothing to keep")


class HangingTaskManager(TestingTaskManager):
    """All its programs hang; kept by attempt and subtask."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.of: dict[tuple[int, int], Hanging] = {}

    def build(self, context: ProgramContext) -> Any:
        assert context.subtask.attempt is not None
        program = Hanging(context.subtask.attempt.attempt, self._note_open, self.released)
        self.of[program.attempt, context.subtask.subtask] = program
        return program


def test_what_hangs_in_a_cancelled_slot_takes_part_in_no_checkpoint_of_what_runs_on() -> None:
    """It would commit what a newer subtask reads again: each message to the attempt comes to it, too."""
    manager, attempt, here = HangingTaskManager(), AttemptId("job", "run", 1), Participant("tm", "unused:1")
    wide = replace(GRAPH, vertices=(replace(GRAPH.vertices[0], parallelism=2),))
    manager.deployments.handle(Deploy(attempt, layout=layout(wide, here, here)))
    manager.wait_open(2)
    assert all(program.polled.wait(WAIT_S) for program in manager.of.values())
    manager.deployments.handle(CancelAttempt(attempt, "test", slots=(1,)))
    part = replace(attempt, attempt=2)
    manager.deployments.handle(Deploy(part, layout=layout(wide, Participant(), here), beside=(1,)))
    manager.wait_open(3)
    for known in (attempt, part):
        manager.deployments.handle(TriggerCheckpoint(known, 7))
    manager.released.set()
    assert manager.of[1, 0].frozen.wait(WAIT_S)
    assert manager.of[2, 1].frozen.wait(WAIT_S)
    assert manager.deployments.stop(WAIT_S)
    assert not manager.of[1, 1].frozen.is_set()
    ends = [
        body.phase
        for body in manager.reports
        if isinstance(body, SubtaskReport) and body.subtask == SubtaskId(attempt, "read", 1)
    ]
    assert ends[-1] is SubtaskPhase.SUBTASK_CANCELED


def test_an_attempt_with_something_that_this_version_does_not_know_is_refused(manager: TestingTaskManager) -> None:
    manager.deploy(1, more=b"\xc0\x3e\x01")
    errors = [body.error for body in manager.reports if isinstance(body, SubtaskReport)]
    assert errors
    assert all("Layout has a field 1000, which Lockgate " in error for error in errors)
    assert (manager.gone(), manager.running(), manager.programs) == ([1], [], [])


def test_an_older_attempt_is_refused(manager: TestingTaskManager) -> None:
    manager.deploy(2)
    manager.wait_open(1)
    manager.deploy(1)
    assert (manager.gone(), manager.running()) == ([1], [2])
    assert not manager.programs[0].is_canceled


def test_a_doubled_deployment_is_ignored(manager: TestingTaskManager) -> None:
    manager.deploy(2)
    manager.wait_open(1)
    (attempt,) = manager.deployments.running()
    before = manager.deployments.tasks(attempt)
    manager.deploy(2)
    assert manager.deployments.tasks(attempt) == before
    assert not manager.programs[0].is_canceled
    assert manager.gone() == []


def test_a_deployment_of_an_ended_attempt_is_answered_and_not_carried_out(manager: TestingTaskManager) -> None:
    manager.deploy(1)
    manager.wait_open(1)
    manager.cancel(1)
    manager.wait_gone(1)
    manager.deploy(1)
    assert (manager.gone(), manager.running()) == ([1, 1], [])


def test_a_deployment_that_arrives_after_its_cancellation_is_refused(manager: TestingTaskManager) -> None:
    manager.cancel(3)
    assert manager.gone() == [3]
    manager.deploy(3)
    assert (manager.gone(), manager.running()) == ([3, 3], [])
    manager.deploy(4)
    assert manager.running() == [4]


def test_without_a_leader_every_attempt_ends_and_none_of_them_can_be_adopted(manager: TestingTaskManager) -> None:
    manager.deploy(3)
    manager.deployments.cancel_all("no leader for 600000 ms")
    assert manager.deployments.progress() == ()
    manager.wait_gone(1)
    manager.deploy(3)
    assert manager.running() == [], "a deployment of it that comes late"
    manager.deploy(4)
    assert manager.running() == [4]


def test_progress_is_kept_for_jobs_that_a_new_leader_may_adopt_and_for_no_other(manager: TestingTaskManager) -> None:
    manager.deploy(1)
    assert manager.deployments.progress() == ()
    reattach = replace(GRAPH, leader_failover=LeaderFailover.LEADER_FAILOVER_REATTACH)
    attempt = AttemptId("other", "run", 1)
    manager.deployments.handle(Deploy(attempt, layout=layout(reattach, Participant("tm", "unused:1"))))
    source = SubtaskId(attempt, "read", 0)
    first, last = (AssignSplits(source, (SplitState(name, 0, 9),), complete=name == "b") for name in ("a", "b"))
    manager.deployments.handle(AssignSplitsTogether((first, last)))
    (progress,) = manager.deployments.progress()
    assert progress.attempt == attempt
    (found,) = progress.subtasks
    assert ([split.split for split in found.assigned], found.complete) == (["a", "b"], True)
    manager.deployments.handle(CancelAttempt(attempt, "moved"))
    assert manager.deployments.progress() == (), "its subtasks may take their time to end"


def test_a_subtask_that_replays_records_in_flight_says_so_of_an_aborted_checkpoint(manager: TestingTaskManager) -> None:
    manager.deploy(1)
    manager.wait_open(1)
    attempt = AttemptId("job", "run", 1)
    (task,) = manager.deployments.tasks(attempt).values()
    manager.deployments.handle(NotifyCheckpointAborted(attempt, 4))
    with mock.patch.object(type(task.gate), "is_replaying", True):
        manager.deployments.handle(NotifyCheckpointAborted(attempt, 5))
    declined = [body for body in manager.reports if isinstance(body, DeclineCheckpoint)]
    assert [(body.subtask, body.checkpoint_id, body.cause) for body in declined] == [
        (task.id, 5, DeclineCause.REPLAYING)
    ]


def test_a_source_whose_records_a_checkpoint_holds_back_is_not_idle(manager: TestingTaskManager) -> None:
    polled = threading.Semaphore(0)

    def poll(_: IdleSource) -> Idle:
        polled.release()
        return Idle(1, is_held=True)

    with mock.patch.object(IdleSource, "poll", poll):
        manager.deploy(1)
        for _ in range(3):
            assert polled.acquire(timeout=WAIT_S)
        (task,) = manager.deployments.tasks(AttemptId("job", "run", 1)).values()
        spent = task.shares.seconds()
        manager.cancel(1)
        manager.wait_gone(1)
    assert spent[Share.BACKPRESSURED] > 0
    assert spent[Share.IDLE] == 0


class JsonLines(logging.Handler):
    """Log lines as a process writes them, each made on the thread that logs."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


def test_lines_of_a_subtask_name_the_present_leader_also_after_it_was_adopted(
    manager: TestingTaskManager, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = JsonLines()
    logging.getLogger().addHandler(handler)
    try:
        manager.fence.observe(3)
        manager.deploy(1)
        manager.wait_open(1)
        manager.fence.observe(4)
        manager.cancel(1)
        manager.wait_gone(1)
    finally:
        logging.getLogger().removeHandler(handler)
    found = [line for line in handler.lines if line["thread"].startswith("subtask-")]
    tokens = {line["message"].rpartition(": ")[2]: line.get("token") for line in found}
    assert tokens["SUBTASK_CANCELED"] == 4
    assert all(tokens.values())
    assert all((line["job"], line["attempt"], line["subtask"]) == ("job", 1, "read[0]") for line in found)
