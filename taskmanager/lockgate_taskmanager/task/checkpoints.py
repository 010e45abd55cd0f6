"""The checkpoints in progress as one subtask sees them.

            TakeSnapshot         StartUpload               Acknowledge           Commit
(unknown) --------------> FREEZING ---------> UPLOADING ---------------> ACKED ----------> COMMITTING -> (forgotten)
                             |                    |                        |
                             +--------------------+------------------------+--> (forgotten): failed, aborted or
                                                                                overtaken by a newer complete one
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from lockgate_proto.messages import Barrier

REMEMBERED = 64  # acknowledged checkpoints whose outcome is never reported are forgotten beyond this count


class CheckpointPhase(Enum):
    """How far this subtask's part of a checkpoint has progressed."""

    FREEZING = "freezing"
    UPLOADING = "uploading"
    ACKED = "acknowledged"
    COMMITTING = "committing"


ALLOWED: dict[CheckpointPhase, frozenset[CheckpointPhase]] = {
    CheckpointPhase.FREEZING: frozenset({CheckpointPhase.UPLOADING}),
    CheckpointPhase.UPLOADING: frozenset({CheckpointPhase.ACKED}),
    CheckpointPhase.ACKED: frozenset({CheckpointPhase.COMMITTING}),
    CheckpointPhase.COMMITTING: frozenset(),
}


@dataclass(frozen=True, slots=True)
class SubtaskCheckpoint:
    """One checkpoint as this subtask sees it.

    delivered: for an unaligned checkpoint, the input channels whose barrier had arrived; None for an aligned one.
    """

    barrier: Barrier
    alignment_ms: int
    delivered: frozenset[int] | None = None
    phase: CheckpointPhase = CheckpointPhase.FREEZING
    sync_us: int = 0


class SubtaskCheckpoints:
    """The checkpoints that this subtask has begun and whose outcome it does not know yet. Pure."""

    def __init__(self) -> None:
        self._open: dict[int, SubtaskCheckpoint] = {}
        self._highest = 0
        self._aborted: set[int] = set()

    @property
    def are_under_way(self) -> bool:
        """Whether the outcome of any checkpoint is still unknown."""
        return bool(self._open)

    def is_new(self, checkpoint_id: int) -> bool:
        """False for a checkpoint that was begun, superseded or aborted before."""
        return checkpoint_id > self._highest and checkpoint_id not in self._aborted

    def begin(self, barrier: Barrier, alignment_ms: int, delivered: frozenset[int] | None = None) -> None:
        """Records a checkpoint whose snapshot is being taken."""
        self._highest = barrier.checkpoint_id
        self._aborted = {number for number in self._aborted if number > self._highest}
        self._open[barrier.checkpoint_id] = SubtaskCheckpoint(barrier, alignment_ms, delivered)
        while len(self._open) > REMEMBERED:
            self.forget(min(self._open))

    def at(self, checkpoint_id: int, phase: CheckpointPhase) -> SubtaskCheckpoint | None:
        """The checkpoint, if it is in exactly this phase."""
        found = self._open.get(checkpoint_id)
        return found if found is not None and found.phase is phase else None

    def advance(self, checkpoint_id: int, phase: CheckpointPhase, sync_us: int | None = None) -> SubtaskCheckpoint:
        """Moves it to the next phase. Raises KeyError or ValueError when `phase` is not the next one."""
        known = self._open[checkpoint_id]
        if phase not in ALLOWED[known.phase]:
            raise ValueError(f"checkpoint {checkpoint_id}: {known.phase.value} -> {phase.value}")
        moved = replace(known, phase=phase, sync_us=known.sync_us if sync_us is None else sync_us)
        self._open[checkpoint_id] = moved
        return moved

    def abort(self, checkpoint_id: int) -> None:
        """No part of it will be begun or acknowledged from now on."""
        self.forget(checkpoint_id)
        if checkpoint_id > self._highest:
            self._aborted.add(checkpoint_id)

    def abort_up_to(self, checkpoint_id: int) -> tuple[int, ...]:
        """As `abort` for this one and all earlier ones, unless they are being committed. Returns those in progress."""
        lost = tuple(
            number
            for number, known in sorted(self._open.items())
            if number <= checkpoint_id and known.phase is not CheckpointPhase.COMMITTING
        )
        for number in lost:
            self.forget(number)
        self._highest = max(self._highest, checkpoint_id)
        self._aborted = {number for number in self._aborted if number > self._highest}
        return lost

    def forget(self, checkpoint_id: int) -> None:
        """Drops it; unknown ids are ignored."""
        self._open.pop(checkpoint_id, None)

    def forget_before(self, checkpoint_id: int) -> tuple[int, ...]:
        """Drops all older checkpoints and returns their ids."""
        older = tuple(number for number in self._open if number < checkpoint_id)
        for number in older:
            self.forget(number)
        return older
