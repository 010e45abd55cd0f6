"""The completed checkpoints of one job, and which of them are kept."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import CheckpointKind, CheckpointMetadata, CompletedCheckpoint

from coordinator.checkpoint.handles import shared_files
from coordinator.checkpoint.shared import SharedFiles


@dataclass(frozen=True, slots=True)
class Subsumed:
    """A checkpoint that is not kept any longer. free: names of shared files that no other kept one refers to."""

    checkpoint: CompletedCheckpoint
    free: tuple[str, ...]


class CompletedCheckpoints:
    """Newest first. Savepoints are never subsumed: they belong to whoever asked for them."""

    def __init__(
        self, retained: int, completed: tuple[CompletedCheckpoint, ...], metadata: CheckpointMetadata | None
    ) -> None:
        """completed: as stored. metadata: of the newest, or what the job's first run starts from, or None."""
        self._retained = retained
        self._all = sorted((replace(one, metadata=b"") for one in completed), key=lambda one: -one.checkpoint_id)
        self._metadata = metadata
        self._disposing: set[int] = set()
        self._shared = SharedFiles()
        self._bases: dict[int, CheckpointMetadata] = {}
        for one in completed:
            is_newest = metadata is not None and one.checkpoint_id == metadata.checkpoint_id
            known = metadata if is_newest else _inline(one)
            self._shared.add(one.checkpoint_id, None if known is None else shared_files(known))
            if is_newest and metadata is not None:
                self._bases[one.checkpoint_id] = metadata

    @property
    def restore_point(self) -> CheckpointMetadata | None:
        """What a new attempt starts from: the newest completed snapshot of all, savepoints included."""
        return self._metadata

    @property
    def newest(self) -> CompletedCheckpoint | None:
        """The record of the newest one of this job."""
        return self._all[0] if self._all else None

    @property
    def newest_checkpoint_id(self) -> int:
        """Of the newest one that is no savepoint, 0 when there is none: what increments may build on."""
        return next((one.checkpoint_id for one in self._all if one.kind is not CheckpointKind.SAVEPOINT), 0)

    def answer_to(self, request_id: str) -> CompletedCheckpoint | None:
        """The savepoint that a client was or should have been given for this request, also by a leader before."""
        return next((one for one in self.lasting() if request_id in one.request_ids), None)

    def bases(self) -> tuple[CheckpointMetadata, ...]:
        """What is in the checkpoints of this job that one under way may have taken bytes over from."""
        return tuple(self._bases.values())

    def all(self) -> tuple[CompletedCheckpoint, ...]:
        """Every one, newest first, `metadata` empty."""
        return tuple(self._all)

    def lasting(self) -> tuple[CompletedCheckpoint, ...]:
        """As `all`, without what a client wants deleted: it is no answer to anything, whether it is gone yet or not."""
        return tuple(one for one in self._all if one.checkpoint_id not in self._disposing)

    def dispose(self, checkpoint_id: int) -> None:
        """A client wants this savepoint deleted; `forget` follows when its record is gone."""
        self._disposing.add(checkpoint_id)

    def add(self, checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata) -> None:
        """A checkpoint has become durable. Ids only rise."""
        if self._all and checkpoint.checkpoint_id <= self._all[0].checkpoint_id:
            raise ValueError(f"checkpoint {checkpoint.checkpoint_id} is not newer than {self._all[0].checkpoint_id}")
        self._all.insert(0, replace(checkpoint, metadata=b""))
        self._metadata = metadata
        self._shared.add(checkpoint.checkpoint_id, shared_files(metadata))
        self._bases[checkpoint.checkpoint_id] = metadata

    def forget(self, checkpoint_id: int) -> None:
        """Its record is gone. Never the newest: that is the restore point."""
        newest, rest = self._all[:1], self._all[1:]
        self._all = newest + [one for one in rest if one.checkpoint_id != checkpoint_id]
        if any(one.checkpoint_id == checkpoint_id for one in rest):
            self._shared.remove(checkpoint_id)

    def take_subsumed(self, needed_from: int | None = None) -> tuple[Subsumed, ...]:
        """Forgets and returns the checkpoints beyond the retained ones, oldest first.

        needed_from: those with this id and later ones stay for now: a checkpoint under way may build on them.
        """
        kept = [one for one in self._all if one.kind is CheckpointKind.CHECKPOINT][: self._retained]
        subsumed = [
            one
            for one in self._all
            if one.kind is CheckpointKind.CHECKPOINT
            and one not in kept
            and (needed_from is None or one.checkpoint_id < needed_from)
        ]
        self._all = [one for one in self._all if one not in subsumed]
        oldest = min(self.newest_checkpoint_id, self.newest_checkpoint_id if needed_from is None else needed_from)
        self._bases = {number: one for number, one in self._bases.items() if number >= oldest}
        return tuple(Subsumed(one, self._shared.remove(one.checkpoint_id)) for one in reversed(subsumed))


def _inline(checkpoint: CompletedCheckpoint) -> CheckpointMetadata | None:
    """The metadata in the record, None when it is not there or not readable."""
    try:
        return decode(CheckpointMetadata, checkpoint.metadata) if checkpoint.metadata else None
    except MalformedMessage:
        return None


def retained_after_end(
    completed: tuple[CompletedCheckpoint, ...], *, keep_newest: bool, keep_all: bool
) -> tuple[CompletedCheckpoint, ...]:
    """Which checkpoints outlive the job, newest first.

    completed: newest first. keep_all: an operator has to choose what to restore from, so nothing is deleted.
    keep_newest: the newest checkpoint stays. Savepoints always do.
    """
    if keep_all:
        return completed
    newest = next((one for one in completed if one.kind is not CheckpointKind.SAVEPOINT), None)
    return tuple(one for one in completed if one.kind is CheckpointKind.SAVEPOINT or (one is newest and keep_newest))
