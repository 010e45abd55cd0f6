"""A wake-up the CheckpointCoordinator asks for always finds work to do, and is never in the past."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_coordinator.checkpoint.effects import CheckpointTriggered, PersistCheckpoint, PersistCheckpointId
from lockgate_coordinator.checkpoint.events import (
    AttemptEnded,
    AttemptRunning,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    Draining,
    InputExhausted,
    Resumed,
    SavepointRequested,
    Suspended,
    Tick,
)
from lockgate_coordinator.checkpoint.final import Purpose
from lockgate_proto.messages import CheckpointKind

from tests.unit.coordinator.jobs import SUBTASKS, attempt
from tests.unit.coordinator.testing_checkpoints import TestingCheckpoints

EVENTS = {
    "rescale": SavepointRequested("order", 30_000, CheckpointKind.CHECKPOINT, Purpose.RESCALE),
    "draining": Draining(),
    "exhausted": InputExhausted(),
    "suspended": Suspended(),
    "resumed": Resumed(),
    "ended": AttemptEnded("it died"),
    "running": AttemptRunning(attempt(1), frozenset(SUBTASKS)),
}
ANSWERS = ("reserved", "refused", "acknowledged", "declined", "written")


def drawn(choice: random.Random) -> list[int | str]:
    """A long plan. What ends an attempt or the input is rare; Hypothesis likes short plans too much."""
    rare = [*EVENTS]
    plan: list[int | str] = []
    for _ in range(60):
        kind = choice.random()
        if kind < 0.4:
            plan.append(choice.randint(0, 1_500))
        else:
            plan.append(choice.choice(rare if kind < 0.5 else [*ANSWERS, "reserved", "savepoint"]))
    return plan


class FakeJobMaster:
    """Gives a coordinator events, and answers to its effects, in any order."""

    def __init__(self, **options: int) -> None:
        self.checkpoints = TestingCheckpoints(tolerable_failures=3, **options)
        self.asked = 0
        self.ids: list[int] = []
        self.triggered: list[int] = []
        self.writes: list[PersistCheckpoint] = []

    def give(self, event: object, after_ms: int = 0) -> None:
        self.checkpoints.give(event, after_ms)  # type: ignore[arg-type]
        self.note()

    def note(self) -> None:
        self.ids += [
            persist_checkpoint_id.checkpoint_id for persist_checkpoint_id in self.checkpoints.of(PersistCheckpointId)
        ]
        self.triggered += [
            checkpoint_triggered.checkpoint_id for checkpoint_triggered in self.checkpoints.of(CheckpointTriggered)
        ]
        self.writes += self.checkpoints.of(PersistCheckpoint)

    def play(self, step: str) -> None:
        if step == "savepoint":
            self.asked += 1
            self.give(SavepointRequested(f"s{self.asked}", 30_000))
        elif step in EVENTS:
            self.give(EVENTS[step])
        elif step == "reserved" and self.ids:
            self.give(CheckpointIdPersisted(self.ids.pop(0)))
        elif step == "refused" and self.ids:
            self.give(CheckpointIdPersistFailed(self.ids.pop(0), "no"))
        elif step == "acknowledged" and self.triggered:
            self.checkpoints.acknowledge(self.triggered.pop(0))
            self.note()
        elif step == "declined" and self.triggered:
            self.checkpoints.decline(self.triggered.pop(0))
            self.note()
        elif step == "written" and self.writes:
            self.give(CheckpointPersisted(self.writes.pop(0).record))


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 3), st.sampled_from([0, 1_500]), st.integers(0, 2**32))
def test_after_a_tick_the_next_wake_is_later_or_effects_were_returned(most: int, pause_ms: int, seed: int) -> None:
    master = FakeJobMaster(max_concurrent=most, min_pause_ms=pause_ms)
    for step in drawn(random.Random(seed)):
        if isinstance(step, str):
            master.play(step)
        master.give(Tick(), step if isinstance(step, int) else 0)
        wake = master.checkpoints.machine.next_wake_ms()
        assert master.checkpoints.last or wake is None or wake > master.checkpoints.now
