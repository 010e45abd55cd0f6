"""The completed checkpoints of one job, and which of them are kept."""

from __future__ import annotations

from dataclasses import replace

from lockgate_proto.messages import CheckpointKind, CheckpointMetadata, CompletedCheckpoint


class CompletedCheckpoints:
    """Newest first. Savepoints are never subsumed: they belong to whoever asked for them."""

    def __init__(
        self, retained: int, completed: tuple[CompletedCheckpoint, ...], metadata: CheckpointMetadata | None
    ) -> None:
        """completed: as stored. metadata: of the newest, or what the job's first run starts from, or None."""
        self._retained = retained
        self._all = sorted((replace(one, metadata=b"") for one in completed), key=lambda one: -one.checkpoint_id)
        self._metadata = metadata

    @property
    def restore_point(self) -> CheckpointMetadata | None:
        """What a new attempt starts from: the newest completed snapshot of all, savepoints included."""
        return self._metadata

    @property
    def newest(self) -> CompletedCheckpoint | None:
        """The record of the newest one of this job."""
        return self._all[0] if self._all else None

    def all(self) -> tuple[CompletedCheckpoint, ...]:
        """Every one, newest first, `metadata` empty."""
        return tuple(self._all)

    def add(self, checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata) -> None:
        """A checkpoint has become durable. Ids only rise."""
        if self._all and checkpoint.checkpoint_id <= self._all[0].checkpoint_id:
            raise ValueError(f"checkpoint {checkpoint.checkpoint_id} is not newer than {self._all[0].checkpoint_id}")
        self._all.insert(0, replace(checkpoint, metadata=b""))
        self._metadata = metadata

    def take_subsumed(self) -> tuple[CompletedCheckpoint, ...]:
        """Forgets and returns the checkpoints beyond the retained ones, oldest first."""
        kept = [one for one in self._all if one.kind is CheckpointKind.CHECKPOINT][: self._retained]
        subsumed = [one for one in self._all if one.kind is CheckpointKind.CHECKPOINT and one not in kept]
        self._all = [one for one in self._all if one not in subsumed]
        return tuple(reversed(subsumed))


def retained_after_end(
    completed: tuple[CompletedCheckpoint, ...], *, finished: bool, retain_after_end: bool, keep_all: bool
) -> tuple[CompletedCheckpoint, ...]:
    """Which checkpoints outlive the job, newest first.

    completed: newest first. keep_all: an operator has to choose what to restore from, so nothing is deleted.
    Savepoints always stay; of a job that failed or was cancelled the newest checkpoint, when its options say so.
    """
    if keep_all:
        return completed
    newest = next((one for one in completed if one.kind is not CheckpointKind.SAVEPOINT), None)
    return tuple(
        one
        for one in completed
        if one.kind is CheckpointKind.SAVEPOINT or (one is newest and retain_after_end and not finished)
    )
