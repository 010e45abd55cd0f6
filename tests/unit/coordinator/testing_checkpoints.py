"""Plays JobMaster and runtime for one CheckpointCoordinator."""

from __future__ import annotations

from typing import Any, TypeVar

from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.content import CheckpointSetting
from lockgate_coordinator.checkpoint.coordinator import CheckpointCoordinator
from lockgate_coordinator.checkpoint.effects import (
    CheckpointCompleted,
    CheckpointEffect,
    CheckpointTriggered,
    PersistCheckpoint,
    PersistCheckpointId,
)
from lockgate_coordinator.checkpoint.events import (
    Acknowledged,
    AttemptRunning,
    CheckpointEvent,
    CheckpointIdPersisted,
    CheckpointPersisted,
    Declined,
    Tick,
)
from lockgate_proto.messages import (
    CheckpointOptions,
    DeclineCheckpoint,
)

from tests.unit.coordinator.jobs import DIRECTORY, JOB, RUN, SUBTASKS, TOKEN, ack, attempt, subtask

T = TypeVar("T")


class TestingCheckpoints:
    """A coordinator with a running attempt 1 and a manual clock."""

    def __init__(self, running: bool = True, **options: Any) -> None:
        given = CheckpointOptions(**{"interval_ms": 1_000, "timeout_ms": 10_000, "retained": 1, **options})
        setting = CheckpointSetting(JOB, RUN, TOKEN, DIRECTORY, given, ())
        self.machine = CheckpointCoordinator(setting, CompletedCheckpoints(given.retained, (), None), 1)
        self.now = 0
        self.last: list[CheckpointEffect] = []
        if running:
            self.give(AttemptRunning(attempt(1), frozenset(SUBTASKS)))

    def give(self, event: CheckpointEvent, after_ms: int = 0) -> list[CheckpointEffect]:
        self.now += after_ms
        self.last = self.machine.handle(event, self.now)
        return self.last

    def of(self, kind: type[T]) -> list[T]:
        return [checkpoint_effect for checkpoint_effect in self.last if isinstance(checkpoint_effect, kind)]

    def trigger(self, after_ms: int = 1_000) -> int:
        self.give(Tick(), after_ms)
        (reserve,) = self.of(PersistCheckpointId)
        self.give(CheckpointIdPersisted(reserve.checkpoint_id))
        assert self.of(CheckpointTriggered)
        return reserve.checkpoint_id

    def acknowledge(self, number: int, without: tuple[str, int] | None = None, attempt_number: int = 1) -> None:
        for key in SUBTASKS:
            if key != without:
                self.give(Acknowledged(ack(number, *key, attempt_number)))

    def persist(self) -> PersistCheckpoint:
        (persist,) = self.of(PersistCheckpoint)
        return persist

    def complete(self, after_ms: int = 1_000) -> int:
        number = self.trigger(after_ms)
        self.acknowledge(number)
        self.give(CheckpointPersisted(self.persist().record))
        assert self.of(CheckpointCompleted)
        return number

    def decline(self, number: int, who: tuple[str, int] = ("count", 0), attempt_number: int = 1) -> None:
        self.give(Declined(DeclineCheckpoint(subtask(*who, attempt_number), number, "too large")))
