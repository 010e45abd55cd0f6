"""What a new leader makes of a job's records: its checkpoints, and whether it may go on from them."""

from __future__ import annotations

from lockgate_proto.messages import CheckpointMetadata, CheckpointOptions, CompletedCheckpoint, JobGraph, JobRecord

from coordinator.checkpoint.completed import CompletedCheckpoints
from coordinator.checkpoint.coordinator import CheckpointCoordinator, CheckpointSetting
from coordinator.graph.shape import vertex_shapes
from coordinator.recovery.effects import DiscardCheckpoint
from coordinator.recovery.events import Recovered, RecoveryFailed
from coordinator.recovery.restore import misfits


class Takeover:
    """The state of a job's checkpoints at the moment of the grant."""

    def __init__(
        self,
        record: JobRecord,
        graph: JobGraph,
        event: Recovered | RecoveryFailed,
        *,
        token: int,
        directory: str,
        unix_offset_ms: int,
    ) -> None:
        """graph: normalized."""
        self._record = record
        self._graph = graph
        self._metadata = event.metadata if isinstance(event, Recovered) else None
        options = graph.checkpoints or CheckpointOptions()
        newest_id = self._metadata.checkpoint_id if self._metadata is not None else 0
        used = [newest_id, event.next_checkpoint_id - 1, *(one.checkpoint_id for one in event.completed)]
        next_id = max(used) + 1
        setting = CheckpointSetting(
            job_key=record.job_key,
            run_id=record.run_id,
            token=token,
            directory=directory,
            options=options,
            vertices=vertex_shapes(graph),
            unix_offset_ms=unix_offset_ms,
        )
        completed = CompletedCheckpoints(options.retained, event.completed, self._metadata)
        self._newest: CompletedCheckpoint | None = completed.newest
        self.coordinator = CheckpointCoordinator(setting, completed, next_id)

    @property
    def metadata(self) -> CheckpointMetadata | None:
        """The snapshot that the next attempt starts from, None for a start from nothing."""
        return self._metadata

    def problem(self) -> str | None:
        """Why the job must not go on from here, in sentences. A job that has a snapshot is never started empty."""
        metadata, newest = self._metadata, self._newest
        if metadata is None:
            wanted = newest.pointer if newest is not None else self._record.restore_from
            return f"The snapshot {wanted} was not read, and the job is not started empty." if wanted else None
        if newest is not None and metadata.checkpoint_id != newest.checkpoint_id:
            return f"Snapshot {metadata.checkpoint_id} was read, but the newest completed is {newest.checkpoint_id}."
        problems = misfits(self._graph, metadata, allow_unmatched=self._record.allow_unmatched_state)
        return "\n".join(("The snapshot does not fit the job.", *problems)) if problems else None

    def leftovers(self) -> list[DiscardCheckpoint]:
        """Subsumed checkpoints that the leaders before did not get round to deleting.

        Given once, and not before the job runs again: a failover does not wait for deletions.
        """
        subsumed = self.coordinator.completed.take_subsumed()
        return [DiscardCheckpoint(one.checkpoint, one.free) for one in subsumed]
