"""The completed checkpoints of one job, and which of them are retained."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import CheckpointKind, CheckpointMetadata, CompletedCheckpoint

from lockgate_coordinator.checkpoint.details import CheckpointDetails
from lockgate_coordinator.checkpoint.handles import shared_files
from lockgate_coordinator.checkpoint.history import CheckpointHistory


class SharedFiles:
    """Names in the run's `shared` folder, by snapshot. Pure."""

    def __init__(self) -> None:
        self._of: dict[int, frozenset[str]] = {}
        self._count: Counter[str] = Counter()
        self._unknown: set[int] = set()

    def add(self, checkpoint_id: int, files: frozenset[str] | None) -> None:
        """A retained snapshot refers to these files. None: its references have not been read."""
        if files is None:
            self._unknown.add(checkpoint_id)
            return
        self._of[checkpoint_id] = files
        self._count.update(files)

    def remove(self, checkpoint_id: int) -> tuple[str, ...]:
        """A snapshot goes. Returns the files that none is left to refer to, sorted.

        Returns none while a snapshot is kept that may refer to any file; the files that are left behind then are found
        by the search for orphans.
        """
        self._unknown.discard(checkpoint_id)
        files = self._of.pop(checkpoint_id, frozenset())
        self._count.subtract(files)
        free = tuple(sorted(name for name in files if not self._count[name]))
        for name in free:
            del self._count[name]
        return () if self._unknown else free


@dataclass(frozen=True, slots=True)
class Subsumed:
    """A checkpoint that is no longer retained. free: names of shared files that no other retained one refers to."""

    checkpoint: CompletedCheckpoint
    free: tuple[str, ...]


class CompletedCheckpoints:
    """Newest first. Savepoints are never subsumed: they belong to the client that requested them."""

    def __init__(
        self, retained: int, completed: tuple[CompletedCheckpoint, ...], metadata: CheckpointMetadata | None
    ) -> None:
        """completed: as stored. metadata: of the newest, or what the job's first run starts from, or None."""
        self.details = CheckpointDetails()
        self.history = CheckpointHistory()
        self._retained = retained
        self._all = sorted(
            (replace(checkpoint, metadata=b"") for checkpoint in completed),
            key=lambda checkpoint: -checkpoint.checkpoint_id,
        )
        self._metadata = metadata
        self._disposing: set[int] = set()
        self._shared = SharedFiles()
        self._bases: dict[int, CheckpointMetadata] = {}
        for checkpoint in completed:
            is_newest = metadata is not None and checkpoint.checkpoint_id == metadata.checkpoint_id
            known = metadata if is_newest else _inline(checkpoint)
            self._shared.add(checkpoint.checkpoint_id, None if known is None else shared_files(known))
            if known is not None and checkpoint.checkpoint_id >= self.newest_checkpoint_id:
                self._bases[checkpoint.checkpoint_id] = known  # increments may build on one behind savepoints

    @property
    def restore_point(self) -> CheckpointMetadata | None:
        """The snapshot that a new attempt starts from: the newest completed one, savepoints included."""
        return self._metadata

    @property
    def newest(self) -> CompletedCheckpoint | None:
        """The record of the job's newest completed checkpoint."""
        return self._all[0] if self._all else None

    @property
    def newest_checkpoint_id(self) -> int:
        """Id of the newest one that is not a savepoint, 0 when there is none: increments may build on it."""
        return next(
            (checkpoint.checkpoint_id for checkpoint in self._all if checkpoint.kind is not CheckpointKind.SAVEPOINT), 0
        )

    @property
    def savepoint_count(self) -> int:
        """Savepoints that have not been disposed of."""
        return sum(checkpoint.kind is CheckpointKind.SAVEPOINT for checkpoint in self.lasting())

    def answer_to(self, request_id: str) -> CompletedCheckpoint | None:
        """The savepoint that answers this request, also if an earlier leader took it."""
        return next((checkpoint for checkpoint in self.lasting() if request_id in checkpoint.request_ids), None)

    def bases(self) -> tuple[CheckpointMetadata, ...]:
        """The metadata of this job's checkpoints from which one in progress may have taken over bytes."""
        return tuple(self._bases.values())

    def all(self) -> tuple[CompletedCheckpoint, ...]:
        """Every one, newest first, `metadata` empty."""
        return tuple(self._all)

    def lasting(self) -> tuple[CompletedCheckpoint, ...]:
        """As `all`, without savepoints that a client wants deleted: they answer no request, deleted yet or not."""
        return tuple(checkpoint for checkpoint in self._all if checkpoint.checkpoint_id not in self._disposing)

    def dispose(self, checkpoint_id: int) -> None:
        """A client has requested the deletion of this savepoint; `forget` follows when its record is deleted."""
        self._disposing.add(checkpoint_id)

    def add(self, checkpoint: CompletedCheckpoint, metadata: CheckpointMetadata) -> None:
        """A checkpoint is durable. Ids only rise."""
        if self._all and checkpoint.checkpoint_id <= self._all[0].checkpoint_id:
            raise ValueError(f"checkpoint {checkpoint.checkpoint_id} is not newer than {self._all[0].checkpoint_id}")
        self._all.insert(0, replace(checkpoint, metadata=b""))
        self._metadata = metadata
        self._shared.add(checkpoint.checkpoint_id, shared_files(metadata))
        self._bases[checkpoint.checkpoint_id] = metadata

    def forget(self, checkpoint_id: int) -> None:
        """Its record is deleted. Never the newest one, which is the restore point."""
        newest, rest = self._all[:1], self._all[1:]
        self._all = newest + [checkpoint for checkpoint in rest if checkpoint.checkpoint_id != checkpoint_id]
        if any(checkpoint.checkpoint_id == checkpoint_id for checkpoint in rest):
            self._shared.remove(checkpoint_id)

    def take_subsumed(self, needed_from: int | None = None) -> tuple[Subsumed, ...]:
        """Forgets and returns the checkpoints beyond the retained ones, oldest first.

        needed_from: those with this id and later ones stay for now: a checkpoint under way may build on them.
        """
        kept = [item for item in self._all if item.kind is CheckpointKind.CHECKPOINT][: self._retained]
        subsumed = [
            checkpoint
            for checkpoint in self._all
            if checkpoint.kind is CheckpointKind.CHECKPOINT
            and checkpoint not in kept
            and (needed_from is None or checkpoint.checkpoint_id < needed_from)
        ]
        self._all = [item for item in self._all if item not in subsumed]
        oldest = min(self.newest_checkpoint_id, self.newest_checkpoint_id if needed_from is None else needed_from)
        self._bases = {number: base for number, base in self._bases.items() if number >= oldest}
        return tuple(Subsumed(gone, self._shared.remove(gone.checkpoint_id)) for gone in reversed(subsumed))


def _inline(checkpoint: CompletedCheckpoint) -> CheckpointMetadata | None:
    """The metadata in the record, None when it is missing or unreadable."""
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
    newest = next((checkpoint for checkpoint in completed if checkpoint.kind is not CheckpointKind.SAVEPOINT), None)
    return tuple(
        checkpoint
        for checkpoint in completed
        if checkpoint.kind is CheckpointKind.SAVEPOINT or (checkpoint is newest and keep_newest)
    )
