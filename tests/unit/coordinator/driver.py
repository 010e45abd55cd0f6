"""Plays runtime and task managers for one JobMaster, one step at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_proto.messages import (
    AttemptGone,
    AttemptRecord,
    CheckpointCommitted,
    CheckpointMetadata,
    CompletedCheckpoint,
    FailureCause,
    JobEventKind,
    JobGraph,
    JobRecord,
    JobResult,
    JobState,
    SplitState,
    SubtaskPhase,
    SubtaskReport,
    SubtaskState,
)

from tests.unit.coordinator.jobs import DIRECTORY, JOB, RECORD, SUBTASKS, TOKEN, ack, source_state, subtask, word_count

T = TypeVar("T")

SLOTS = (SlotOffer("tm-a", "a:1"), SlotOffer("tm-b", "b:1"))


class Driver:
    """One JobMaster with a manual clock. Keeps every effect; `take` looks at the newest batch."""

    def __init__(self, graph: JobGraph | None = None, record: JobRecord = RECORD, token: int = TOKEN) -> None:
        self.now = 1_000
        self.master = JobMaster(
            record, graph or word_count(), token=token, checkpoint_directory=DIRECTORY, unix_offset_ms=1_000_000
        )
        self.all: list[effects.Effect] = []
        self.last: list[effects.Effect] = []

    def give(self, event: events.Event, after_ms: int = 0) -> list[effects.Effect]:
        """Hands over one event, `after_ms` later than the one before."""
        self.now += after_ms
        self.last = self.master.handle(event, self.now)
        self.all += self.last
        return self.last

    def of(self, kind: type[T]) -> list[T]:
        """Effects of this kind in the newest batch."""
        return [effect for effect in self.last if isinstance(effect, kind)]

    def one(self, kind: type[T]) -> T:
        """The only effect of this kind in the newest batch."""
        found = self.of(kind)
        assert len(found) == 1, self.last
        return found[0]

    def sent(self, kind: type[T]) -> list[tuple[str, T]]:
        """(task manager, message) of this kind in the newest batch."""
        return [(send.task_manager_id, send.body) for send in self.of(effects.Send) if isinstance(send.body, kind)]

    def emitted(self, kind: JobEventKind) -> list[str]:
        """Texts of the events of this kind so far."""
        return [
            effect.event.text for effect in self.all if isinstance(effect, effects.Emit) and effect.event.kind is kind
        ]

    @property
    def state(self) -> JobState:
        return self.master.status().state

    @property
    def number(self) -> int:
        return self.master.status().attempt

    # ways through a job's life

    def recover(
        self,
        attempt: AttemptRecord | None = None,
        completed: tuple[CompletedCheckpoint, ...] = (),
        metadata: CheckpointMetadata | None = None,
        next_checkpoint_id: int = 1,
    ) -> effects.RequestSlots:
        self.give(events.Recovered(attempt, completed, metadata, next_checkpoint_id))
        return self.one(effects.RequestSlots)

    def offer(self, request: int, slots: tuple[SlotOffer, ...] = SLOTS) -> effects.PersistAttempt:
        self.give(events.SlotsOffered(JOB, request, slots))
        return self.one(effects.PersistAttempt)

    def deploy(self, request: int, slots: tuple[SlotOffer, ...] = SLOTS) -> list[effects.Effect]:
        self.offer(request, slots)
        return self.give(events.AttemptPersisted(self.number))

    def report(
        self,
        phase: SubtaskPhase,
        key: tuple[str, int],
        number: int | None = None,
        cause: FailureCause = FailureCause.FAILURE_CAUSE_UNSPECIFIED,
        error: str = "",
        after_ms: int = 0,
    ) -> list[effects.Effect]:
        who = subtask(*key, self.number if number is None else number)
        return self.give(events.Reported(SubtaskReport(subtask=who, phase=phase, cause=cause, error=error)), after_ms)

    def fail(
        self, cause: FailureCause = FailureCause.FAULT, error: str = "broke", after_ms: int = 0
    ) -> list[effects.Effect]:
        return self.report(SubtaskPhase.SUBTASK_FAILED, ("count", 0), cause=cause, error=error, after_ms=after_ms)

    def all_report(self, phase: SubtaskPhase) -> list[effects.Effect]:
        batch: list[effects.Effect] = []
        for key in SUBTASKS:
            batch += self.report(phase, key)
        self.last = batch
        return batch

    def run(self, **recovered: Any) -> Driver:
        """From nothing (or what was recovered) to RUNNING on tm-a and tm-b."""
        self.deploy(self.recover(**recovered).request)
        self.all_report(SubtaskPhase.SUBTASK_RUNNING)
        assert self.state is JobState.RUNNING
        return self

    def tick(self, after_ms: int = 0) -> list[effects.Effect]:
        return self.give(events.Tick(), after_ms)

    def trigger(self, after_ms: int = 1_000) -> int:
        """Lets the interval pass and the id be written; returns the id of the checkpoint under way."""
        self.tick(after_ms)
        checkpoint_id = self.one(effects.PersistCheckpointId).checkpoint_id
        self.give(events.CheckpointIdPersisted(checkpoint_id))
        return checkpoint_id

    def acknowledge(self, checkpoint_id: int, states: dict[tuple[str, int], SubtaskState] | None = None) -> None:
        """Every subtask acknowledges; the newest batch is that of the last one."""
        for key in SUBTASKS:
            state = (states or {}).get(key)
            if state is None and key[0] == "read":
                state = source_state(*key, (SplitState(split=f"file-{key[1]}", offset=3, end=9),))
            self.give(events.Acknowledged(ack(checkpoint_id, *key, self.number, state)))

    def collect(self, after_ms: int = 1_000) -> effects.PersistCheckpoint:
        """A checkpoint up to the moment when it has to be written."""
        self.acknowledge(self.trigger(after_ms))
        return self.one(effects.PersistCheckpoint)

    def persisted(self, persist: effects.PersistCheckpoint) -> CompletedCheckpoint:
        """The runtime has written it."""
        checkpoint = replace(persist.record, checksum="crc32:1", metadata=b"inline")
        self.give(events.CheckpointPersisted(checkpoint))
        return checkpoint

    def complete(self, after_ms: int = 1_000) -> tuple[CompletedCheckpoint, CheckpointMetadata]:
        """A whole checkpoint."""
        persist = self.collect(after_ms)
        return self.persisted(persist), persist.metadata

    def commit(self, checkpoint_id: int) -> None:
        """Every subtask has committed."""
        for key in SUBTASKS:
            committed = CheckpointCommitted(subtask=subtask(*key, self.number), checkpoint_id=checkpoint_id)
            self.give(events.Committed(committed))

    def gone(self, task_manager_id: str, number: int | None = None) -> list[effects.Effect]:
        who = subtask("read", 0, self.number if number is None else number).attempt
        return self.give(events.Gone(task_manager_id, AttemptGone(attempt=who)))

    def result(self) -> JobResult:
        """The result that was asked to be written, at any time so far."""
        return [effect.result for effect in self.all if isinstance(effect, effects.PersistResult)][-1]
