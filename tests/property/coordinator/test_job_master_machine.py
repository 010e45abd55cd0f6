"""Random interleavings around a JobMaster: duplicates, reordering, loss, leader changes, crashes, suspension.

The machine plays runtime, ZooKeeper and task managers. Whatever comes back to the JobMaster lies in a bag from which
Hypothesis takes it in any order, again and again, or never. What the JobMaster does is checked the moment it does it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from lockgate_coordinator.graph.slots import (
    SlotEvent,
    SlotPool,
    SlotsMissing,
    SlotsOffered,
    TaskManagerAdded,
    TaskManagerRemoved,
    TimePassed,
)
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_proto.messages import (
    AttemptGone,
    AttemptId,
    AttemptRecord,
    CancelAttempt,
    CheckpointCommitted,
    CheckpointMetadata,
    CheckpointOptions,
    CompletedCheckpoint,
    DeclineCheckpoint,
    Deploy,
    DiscoverSplits,
    FailureCause,
    JobResult,
    JobState,
    NotifyCheckpointComplete,
    SplitsDiscovered,
    SplitState,
    SubtaskPhase,
    SubtaskReport,
    TriggerCheckpoint,
)

from tests.layouts import places
from tests.unit.coordinator.jobs import DIRECTORY, RECORD, SUBTASKS, ack, source_state, subtask, word_count

GRAPH = word_count(checkpoints=CheckpointOptions(interval_ms=100, timeout_ms=2_000, tolerable_failures=2, retained=2))
ENDED = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELED})
FAR_MS = 400_000


class Durable:
    """What survives a leader: the job's records. `token` is the epoch."""

    def __init__(self) -> None:
        self.token = 0
        self.attempt: AttemptRecord | None = None
        self.checkpoint_id = 0
        self.completed: dict[int, tuple[CompletedCheckpoint, CheckpointMetadata]] = {}
        self.result: JobResult | None = None

    def newest(self) -> int:
        return max(self.completed, default=0)


class JobMasterMachine(RuleBasedStateMachine):
    """A JobMaster whose messages, writes and timers arrive in any order, twice or never."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.durable = Durable()
        self.bag: list[events.Event] = []
        self.work: list[Any] = []  # of the ordered worker
        self.answers: list[events.Event] = []  # of the ordered worker
        self.alive = {"tm-a", "tm-b"}
        self.triggered: dict[int, tuple[int, int]] = {}  # id to (token, attempt)
        self.canceled: set[int] = set()
        self.deployed: set[int] = set()
        self.savepoints: dict[str, int] = {}
        self.places: dict[tuple[int, str, int], str] = {}
        self.cancel_requested = False
        self.became_leader()

    # leaders

    def became_leader(self) -> None:
        self.durable.token += 1
        self.work, self.answers, self.savepoints = [], [], {}
        self.bag = [event for event in self.bag if not isinstance(event, events.SlotsOffered)]
        self.suspended = False
        self.pool = SlotPool()
        self.master = JobMaster(RECORD, GRAPH, token=self.durable.token, checkpoint_directory=DIRECTORY)
        for name in sorted(self.alive):
            self.slots(TaskManagerAdded(name, f"{name}:1", 2))
        stored = self.durable.completed
        newest = self.durable.newest()
        recovered = events.Recovered(
            self.durable.attempt,
            tuple(stored[number][0] for number in sorted(stored, reverse=True)),
            stored[newest][1] if newest else None,
            self.durable.checkpoint_id + 1,
        )
        self.give(recovered)
        if self.cancel_requested:
            self.give(events.CancelRequested())

    # the JobMaster's environment

    def give(self, event: events.Event) -> None:
        for effect in self.master.handle(event, self.now):
            self.carry_out(effect)

    def carry_out(self, effect: effects.Effect) -> None:
        if isinstance(effect, effects.Send):
            self.sent(effect.task_manager_id, effect.body)
        elif isinstance(effect, effects.RequestSlots | effects.ReleaseSlots):
            self.slots(effect)
        elif isinstance(effect, effects.AnswerSavepoint):
            self.savepoints[effect.request_id] += 1
            assert self.savepoints[effect.request_id] == 1, "answered twice"
        elif isinstance(effect, effects.DiscardPending):
            assert effect.checkpoint_id not in self.durable.completed, "deletes a completed checkpoint"
            assert not any(
                isinstance(persist_checkpoint, effects.PersistCheckpoint)
                and persist_checkpoint.record.checkpoint_id == effect.checkpoint_id
                for persist_checkpoint in self.work
            ), "deletes a checkpoint that is being written"
        elif isinstance(effect, effects.WakeAt):
            assert effect.at_ms > self.now, "would tick for ever"
        elif not isinstance(effect, effects.Emit):
            assert not (self.suspended and isinstance(effect, effects.PersistAttempt | effects.PersistCheckpointId))
            self.work.append(effect)

    def slots(self, event: SlotEvent) -> None:
        for effect in self.pool.handle(event, self.now):
            if isinstance(effect, SlotsOffered | SlotsMissing):
                self.bag.append(effect)

    def sent(self, name: str, body: effects.ControlBody) -> None:
        attempt = body.subtask.attempt if not hasattr(body, "attempt") and body.subtask else body.attempt  # type: ignore[union-attr]
        assert isinstance(attempt, AttemptId)
        number = attempt.attempt
        if isinstance(body, CancelAttempt):
            self.canceled.add(number)
        else:
            assert number not in self.canceled, f"{type(body).__name__} for a dead attempt"
            assert self.durable.attempt is not None
            assert number == self.durable.attempt.attempt, "an attempt that is not the persisted one"
        if isinstance(body, Deploy):
            self.deployed.add(number)
            assert body.restored_checkpoint_id == self.durable.newest(), "not the newest completed snapshot"
        if isinstance(body, TriggerCheckpoint):
            assert body.checkpoint_id <= self.durable.checkpoint_id, "an id that is not durable"
            mark = (self.durable.token, number)
            assert self.triggered.setdefault(body.checkpoint_id, mark) == mark, "two checkpoints with one id"
        if isinstance(body, NotifyCheckpointComplete):
            assert body.checkpoint_id in self.durable.completed, "notified before it was durable"
        if name not in self.alive:
            self.bag.append(events.TaskManagerLost(name, "it is not connected"))
        else:
            self.bag += self.task_manager(name, body, number)

    def task_manager(self, name: str, body: effects.ControlBody, number: int) -> list[events.Event]:
        """What a task manager answers to a message, sooner or later."""
        if isinstance(body, Deploy):
            found = places(body)
            self.places |= {(number, *key): place for key, place in found.items()}
            here = [key for key, place in found.items() if place == name]
            running = SubtaskPhase.SUBTASK_RUNNING
            return [events.Reported(SubtaskReport(subtask=subtask(*key, number), phase=running)) for key in here]
        if isinstance(body, CancelAttempt):
            return [events.Gone(name, AttemptGone(attempt=body.attempt))]
        if isinstance(body, TriggerCheckpoint):
            states = {key: source_state(*key, ()) for key in SUBTASKS if key[0] == "read"}
            return [
                events.Acknowledged(ack(body.checkpoint_id, *key, number, states.get(key)))
                for key in SUBTASKS
                if self.places.get((number, *key)) == name
            ]
        if isinstance(body, NotifyCheckpointComplete):
            return [
                events.Committed(CheckpointCommitted(subtask=subtask(*key, number), checkpoint_id=body.checkpoint_id))
                for key in SUBTASKS
                if self.places.get((number, *key)) == name
            ]
        if isinstance(body, DiscoverSplits):
            splits = (SplitState("x", 0, 5), SplitState("y", 0, 7))
            return [events.SplitsFound(SplitsDiscovered(attempt=body.attempt, vertex_id="read", splits=splits))]
        return []

    def do_work(self, succeed: bool) -> None:
        """The worker carries out its next effect; the answer waits to be delivered, in order."""
        effect = self.work.pop(0)
        durable = self.durable
        if isinstance(effect, effects.PersistAttempt):
            if succeed:
                assert durable.attempt is None or effect.record.attempt > durable.attempt.attempt
                durable.attempt = effect.record
                self.answers.append(events.AttemptPersisted(effect.record.attempt))
            else:
                number = effect.record.attempt
                self.answers.append(events.PersistFailed(events.PersistKind.ATTEMPT, "not connected", number))
        elif isinstance(effect, effects.PersistCheckpointId):
            if succeed:
                assert effect.checkpoint_id > durable.checkpoint_id
                durable.checkpoint_id = effect.checkpoint_id
                self.answers.append(events.CheckpointIdPersisted(effect.checkpoint_id))
            else:
                self.answers.append(events.CheckpointIdPersistFailed(effect.checkpoint_id, "not connected"))
        elif isinstance(effect, effects.PersistCheckpoint):
            self.persist_checkpoint(effect, succeed)
        elif isinstance(effect, effects.PersistResult):
            if succeed:
                self.persist_result(effect.result)
            else:
                self.answers.append(events.PersistFailed(events.PersistKind.RESULT, "not connected"))
        elif isinstance(effect, effects.DiscardCheckpoint):
            number = effect.checkpoint.checkpoint_id
            assert number != durable.newest(), "deletes what a restore needs"
            durable.completed.pop(number, None)

    def persist_checkpoint(self, effect: effects.PersistCheckpoint, succeed: bool) -> None:
        metadata, number = effect.metadata, effect.record.checkpoint_id
        assert sorted((subtask.vertex_id, subtask.subtask) for subtask in metadata.subtasks) == sorted(SUBTASKS)
        marks = {(mark.records_in, mark.records_out) for subtask in metadata.subtasks for mark in subtask.counters}
        assert marks == {(metadata.attempt, number)}, "acks of several attempts or checkpoints in one snapshot"
        assert number not in self.durable.completed
        assert number > self.durable.newest()
        if succeed:
            self.durable.completed[number] = (effect.record, metadata)
            self.answers.append(events.CheckpointPersisted(replace(effect.record, checksum="crc32:1")))
        else:
            self.answers.append(events.CheckpointPersistFailed(number, "the disk is full"))

    def persist_result(self, result: JobResult) -> None:
        assert self.durable.result is None, "two results"
        self.durable.result = result
        reported = result.last_checkpoint.checkpoint_id if result.last_checkpoint is not None else 0
        assert reported == self.durable.newest(), "ended while a checkpoint was in doubt"
        if result.outcome == "FINISHED":
            assert self.durable.completed[self.durable.newest()][1].terminal
        self.answers.append(events.ResultPersisted())

    # rules

    @property
    def over(self) -> bool:
        return self.durable.result is not None

    @precondition(lambda self: self.bag)
    @rule(data=st.data(), keep=st.booleans())
    def deliver(self, data: st.DataObject, keep: bool) -> None:
        """Something arrives; with `keep` it will arrive again."""
        index = data.draw(st.integers(0, len(self.bag) - 1))
        event = self.bag[index] if keep else self.bag.pop(index)
        self.give(event)

    @precondition(lambda self: self.bag)
    @rule(count=st.integers(1, 12))
    def deliver_in_order(self, count: int) -> None:
        """The usual case."""
        for _ in range(min(count, len(self.bag))):
            self.give(self.bag.pop(0))

    @precondition(lambda self: self.bag)
    @rule(data=st.data(), chance=st.integers(0, 3))
    def lose(self, data: st.DataObject, chance: int) -> None:
        """Something never arrives."""
        if chance == 0:
            self.bag.pop(data.draw(st.integers(0, len(self.bag) - 1)))

    @precondition(lambda self: self.work)
    @rule(succeed=st.sampled_from([True, True, True, False]))
    def worker(self, succeed: bool) -> None:
        self.do_work(succeed)

    @precondition(lambda self: self.answers)
    @rule(index=st.sampled_from([0, -1]))
    def worker_answers(self, index: int) -> None:
        """Also the newest first, although the runtime keeps the order."""
        self.give(self.answers.pop(index))

    @rule(rounds=st.integers(1, 3), dies=st.booleans())
    def answers_are_slow(self, rounds: int, dies: bool) -> None:
        """Everything goes on, writes happen, but their answers are still on the way."""
        self.answers_are_slow_for(rounds, dies)

    def answers_are_slow_for(self, rounds: int, dies: bool) -> None:
        if dies and self.deployed:
            who = subtask("count", 0, max(self.deployed))
            self.give(events.Reported(SubtaskReport(who, SubtaskPhase.SUBTASK_FAILED, FailureCause.FAULT, "broke")))
        elif dies and len(self.alive) > 1:
            self.task_manager_goes_or_comes(max(self.alive))
        for _ in range(rounds):
            self.time_passes(500)
            while self.work or self.bag:
                if self.work:
                    self.do_work(True)
                else:
                    self.give(self.bag.pop(0))

    @rule(rounds=st.integers(1, 6), steps=st.integers(1, 40))
    def everything_works(self, rounds: int, steps: int) -> None:
        """A stretch without trouble, so that runs get far; it may stop in the middle of anything."""
        for _ in range(rounds):
            self.time_passes(100)
            for _ in range(steps):
                if self.work:
                    self.do_work(True)
                elif self.answers:
                    self.give(self.answers.pop(0))
                elif self.bag:
                    self.give(self.bag.pop(0))

    @rule(fails=st.booleans())
    def a_checkpoint_gets_as_far_as_being_written(self, fails: bool) -> None:
        """Goes on until a checkpoint's record is written and the answer on the way; then the attempt may fail."""
        self.until_written()
        if fails:
            self.answers_are_slow_for(2, True)

    def until_written(self) -> None:
        for _ in range(200):
            if any(isinstance(answer, events.CheckpointPersisted) for answer in self.answers):
                return
            if self.work:
                self.do_work(True)
            elif self.answers:
                self.give(self.answers.pop(0))
            elif self.bag:
                self.give(self.bag.pop(0))
            else:
                self.time_passes(100)

    @rule(step_ms=st.sampled_from([1, 50, 100, 100, 500, 2_000, 10_000]))
    def some_time_passes(self, step_ms: int) -> None:
        self.time_passes(step_ms)

    def time_passes(self, step_ms: int) -> None:
        self.now += step_ms
        self.slots(TimePassed())
        self.give(events.Tick())

    @precondition(lambda self: self.deployed)
    @rule(
        key=st.sampled_from(SUBTASKS),
        cause=st.sampled_from([FailureCause.FAULT, FailureCause.PEER_LOST]),
        canceled=st.booleans(),
        at_once=st.booleans(),
    )
    def subtask_fails(self, key: tuple[str, int], cause: FailureCause, canceled: bool, at_once: bool) -> None:
        phase = SubtaskPhase.SUBTASK_CANCELED if canceled else SubtaskPhase.SUBTASK_FAILED
        who = subtask(*key, max(self.deployed))
        event = events.Reported(SubtaskReport(subtask=who, phase=phase, cause=cause, error="broke"))
        if at_once:
            self.give(event)
        else:
            self.bag.append(event)

    @precondition(lambda self: self.deployed)
    @rule(chance=st.integers(0, 3))
    def input_ends(self, chance: int) -> None:
        number = max(self.deployed)
        for key in SUBTASKS if chance == 0 else ():
            report = SubtaskReport(subtask=subtask(*key, number), phase=SubtaskPhase.SUBTASK_EXHAUSTED)
            self.bag.append(events.Reported(report))

    @precondition(lambda self: self.triggered)
    @rule(key=st.sampled_from(SUBTASKS))
    def decline(self, key: tuple[str, int]) -> None:
        number = max(self.triggered)
        who = subtask(*key, self.triggered[number][1])
        self.bag.append(events.Declined(DeclineCheckpoint(subtask=who, checkpoint_id=number, reason="too large")))

    @rule(name=st.sampled_from(["tm-a", "tm-b", "tm-c"]), goodbye=st.booleans())
    def membership_changes(self, name: str, goodbye: bool) -> None:
        self.task_manager_goes_or_comes(name, goodbye)

    def task_manager_goes_or_comes(self, name: str, goodbye: bool = False) -> None:
        if name in self.alive and len(self.alive) > 1:
            self.alive.discard(name)
            self.slots(TaskManagerRemoved(name))
            self.bag.append(events.TaskManagerLost(name, "it is gone", planned=goodbye))
        else:
            self.alive.add(name)
            self.slots(TaskManagerAdded(name, f"{name}:1", 2))

    @rule()
    def savepoint(self) -> None:
        name = f"savepoint-{len(self.savepoints)}"
        self.savepoints[name] = 0
        self.give(events.SavepointRequested(name, 1_000))

    @rule(step_ms=st.sampled_from([10, 1_000]))
    def zookeeper_is_away_for_a_while(self, step_ms: int) -> None:
        self.suspended = True
        self.give(events.Suspended())
        self.time_passes(step_ms)
        while self.bag and len(self.bag) % 3:
            self.give(self.bag.pop(0))
        self.suspended = False
        self.give(events.Resumed())

    @precondition(lambda self: not self.over)
    @rule(behind=st.integers(0, 2))
    def leader_changes(self, behind: int) -> None:
        """Some of the old leader's writes still happen, without an answer; the others never will."""
        for _ in range(min(behind, len(self.work))):
            self.do_work(True)
        if not self.over:
            self.became_leader()

    @precondition(lambda self: not self.over)
    @rule(chance=st.integers(0, 19))
    def cancel(self, chance: int) -> None:
        if chance == 0:
            self.cancel_requested = True
            self.give(events.CancelRequested())

    @invariant()
    def states_agree_with_the_records(self) -> None:
        status = self.master.status()
        if status.state in ENDED:
            assert self.durable.result is not None
            assert status.state.name == self.durable.result.outcome
        else:
            assert status.state not in ENDED

    def teardown(self) -> None:
        """Cancel always ends, whatever happened before; and every savepoint request has been answered."""
        self.suspended = False
        self.give(events.Resumed())
        if not self.over:
            self.give(events.CancelRequested())
        for _ in range(50):
            while self.work or self.answers:
                if self.work:
                    self.do_work(True)
                else:
                    self.give(self.answers.pop(0))
            if self.master.status().state in ENDED:
                break
            self.now += FAR_MS
            self.give(events.Tick())
        assert self.master.status().state in ENDED, self.master.status()
        assert all(count == 1 for count in self.savepoints.values()), self.savepoints


JobMasterMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestJobMaster = JobMasterMachine.TestCase
