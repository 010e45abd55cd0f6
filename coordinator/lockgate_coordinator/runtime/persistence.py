"""Blocking reads and writes of jobs: records in ZooKeeper, and files. Runs on the jobs' ordered workers only."""

from __future__ import annotations

import dataclasses
import logging

from lockgate_ha.errors import Conflict, CorruptRecord, NewerRecord, StoreError, StoreUnavailable
from lockgate_ha.leader_history import with_leader
from lockgate_ha.paths import Paths, text_of
from lockgate_ha.records import FoundJob, JobRecords, RestartPoint
from lockgate_ha.store import CoordinationStore
from lockgate_proto.codec import MalformedMessage, UnknownField, decode, encode
from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    JobGraph,
    JobOrders,
    JobRecord,
    JobResult,
    LeadershipRecord,
)

from lockgate_coordinator.checkpoint.failures import FailureReason
from lockgate_coordinator.job.effects import PersistCheckpoint
from lockgate_coordinator.job.events import (
    AttemptPersisted,
    CheckpointIdPersisted,
    CheckpointIdPersistFailed,
    CheckpointPersisted,
    CheckpointPersistFailed,
    OrdersPersisted,
    PersistFailed,
    PersistKind,
    Recovered,
    RecoveryFailed,
    ResultPersisted,
)
from lockgate_coordinator.job.first_positions import unpacked
from lockgate_coordinator.runtime import faults
from lockgate_coordinator.runtime.errors import ForeignSnapshot, NeedsOperator, NewerFormat, StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run, content_of, run_of
from lockgate_coordinator.runtime.term_fence import SETTLE_MS, TermFence

log = logging.getLogger(__name__)

INLINE_METADATA_BYTES = 256 * 1024
INLINE_GRAPH_BYTES = 512 * 1024


class Persistence:
    """Carries out the writes of every job of one term. Methods raise Stopped once the term is over."""

    def __init__(
        self,
        fence: TermFence,
        store: CoordinationStore,
        cluster: str,
        files: MetadataFiles,
    ) -> None:
        self._fence = fence
        self._store = store
        self._paths = Paths(cluster)
        self._records = JobRecords(store, cluster, settle_ms=SETTLE_MS)
        self._files = files

    # -- leaders ------------------------------------------------------------------------------------------------------

    def note_leader(self, leader: LeadershipRecord, detected_unix_us: int | None) -> tuple[LeadershipRecord, ...]:
        """Adds this term's leader to the history of leaders, which it returns, see `with_leader`. Raises Stopped.

        One that cannot be read begins anew, one of a newer version is left as it is: nothing depends on it.
        """
        try:
            known = self._fence.read(self._records.leaders)
        except (CorruptRecord, NewerRecord) as error:
            log.warning("the history of leaders is not read: %s", error)
            if isinstance(error, NewerRecord):
                return (leader,)
            known = ()
        leaders = with_leader(known, leader, detected_unix_us)
        try:
            self._fence.write(lambda: self._records.write_leaders(self._fence.grant, leaders))
        except StoreError as error:
            log.warning("the history of leaders is not written: %s", error)
        return leaders

    # -- reading ------------------------------------------------------------------------------------------------------

    def job_keys(self) -> tuple[str, ...]:
        """The keys of all jobs that are not cleaned up, readable or not. Raises Stopped."""
        return tuple(map(text_of, self._fence.read(lambda: self._store.children(self._paths.jobs))))

    def results(self) -> tuple[JobResult, ...]:
        """Every result kept. Raises Stopped."""
        return self._fence.read(self._records.results)

    def result(self, key: str) -> JobResult | None:
        """The result of a job. Raises StoreUnavailable, CorruptRecord."""
        return self._records.result(key)

    def load(self, key: str) -> FoundJob | CorruptRecord:
        """The job's record and result, whichever exist, or the error of a corrupt one.

        Raises StoreUnavailable, NewerRecord.
        """
        try:
            return self._records.found(key)
        except CorruptRecord as error:
            return error

    def note_recovery(self, key: str, begun: int) -> None:
        """Marks the beginning of a recovery. If that cannot be written, the recovery begins anyway. Raises Stopped."""
        try:
            self._fence.write(lambda: self._records.note_recovery(self._fence.grant, key, begun))
        except StoreError as error:
            log.warning("job %s: its recovery begins without a mark in ZooKeeper: %s", key, error)

    def clear_recovery_count(self, key: str) -> None:
        """Removes the mark: the recovery succeeded, or is to be retried. Raises StoreError, Stopped."""
        self._fence.write(lambda: self._records.clear_recovery_count(self._fence.grant, key))

    def start(self, record: JobRecord, *, fresh: bool) -> tuple[JobGraph, Recovered | RecoveryFailed]:
        """The job's graph, and the first event of its JobMaster. fresh: it has only just been submitted.

        Raises StorageError, NeedsOperator, Stopped.
        """
        graph = self.graph(record)
        if fresh and not record.restore_from:
            return graph, Recovered(None, (), None, 1)
        return graph, self.recover(record)

    def graph(self, record: JobRecord) -> JobGraph:
        """The job's graph, from the record or from the storage. Raises StorageError, NeedsOperator."""
        data = record.graph or self._files.read_graph(record.graph_pointer, record.graph_checksum)
        try:
            return decode(JobGraph, data)
        except UnknownField as error:
            raise _held_back(record.job_key, f"its job graph is of another version: {error}") from error
        except MalformedMessage as error:
            raise StorageError(f"the job graph of {record.job_key} is not readable: {error}") from error

    def recover(self, record: JobRecord) -> Recovered | RecoveryFailed:
        """The first event of a JobMaster, from the job's records and newest snapshot. Raises NeedsOperator, Stopped."""
        key = record.job_key
        found = RestartPoint(None, (), 0, JobOrders())
        try:
            found = self._fence.read(lambda: self._records.restart_point(key))
            if found.attempt is None or not found.checkpoint_id or not found.checkpoints:  # new, or something is lost
                self._fence.read(lambda: self._records.require_whole(key))
            for positions in found.attempt.first_positions if found.attempt is not None else ():
                unpacked(positions)
            metadata = self._restored(record, found.checkpoints)
        except (NewerRecord, NewerFormat) as error:
            raise _held_back(key, str(error)) from error
        except MalformedMessage as error:
            corrupt = CorruptRecord(self._paths.attempt(key), str(error))
            text, retryable = f"A record in ZooKeeper is corrupt: {corrupt}", False
            attempt = dataclasses.replace(found.attempt or AttemptRecord(), first_positions=())
            found = dataclasses.replace(found, attempt=attempt)
        except CorruptRecord as error:
            text, retryable = f"A record in ZooKeeper is corrupt: {error}", False
            found = dataclasses.replace(found, checkpoints=found.checkpoints or self._readable_checkpoints(key))
        except StorageError as error:
            text, retryable = str(error), error.retryable
        else:
            completed = self._with_base(key, found.checkpoints)
            return Recovered(found.attempt, completed, metadata, found.checkpoint_id + 1, found.orders)
        return RecoveryFailed(text, retryable, found.attempt, found.checkpoints, found.checkpoint_id + 1)

    def _with_base(self, key: str, completed: tuple[CompletedCheckpoint, ...]) -> tuple[CompletedCheckpoint, ...]:
        """The same, with the content of the checkpoint behind newer savepoints: the next increments build on it."""
        base = next((found for found in completed if found.kind is not CheckpointKind.SAVEPOINT), None)
        if base is None or base is completed[0] or base.metadata:
            return completed
        try:
            content = encode(content_of(base, self._files))
        except StorageError as error:
            log.warning("job %s: checkpoint %s is no base for the next one: %s", key, base.checkpoint_id, error)
            return completed
        return tuple(dataclasses.replace(found, metadata=content) if found is base else found for found in completed)

    def _readable_checkpoints(self, key: str) -> tuple[CompletedCheckpoint, ...]:
        """The checkpoints for the result of a job that cannot run, even if other records are corrupt."""
        try:
            return self._fence.read(lambda: self._records.checkpoints(key))
        except (StoreError, ValueError) as error:
            log.warning("job %s: its checkpoints are not listed in its result: %s", key, error)
            return ()

    def _restored(self, record: JobRecord, completed: tuple[CompletedCheckpoint, ...]) -> CheckpointMetadata | None:
        if completed:
            return content_of(completed[0], self._files)
        if not record.restore_from:
            return None
        try:
            return self._files.read(record.restore_from, record.restore_checksum)
        except ForeignSnapshot as error:
            raise NeedsOperator(
                "An earlier version submitted this job, which has no checkpoint of its own yet, and the snapshot "
                f"that it starts from, {error.file}, lacks the seal of this cluster; so it is held back. If that "
                "snapshot is right, stop every coordinator and task manager and run `lockgate zookeeper protect`, "
                f"which accepts it in its current state. `lockgate cancel {record.job_key}` ends the job; its "
                "snapshots stay."
            ) from error

    # -- writing ------------------------------------------------------------------------------------------------------

    def submit(self, record: JobRecord, graph: bytes) -> JobRecord | JobResult:
        """Creates the job, durably when this returns. A large graph is written to the storage first.

        Returns the record as written, or the existing record or result of the same key. Raises StoreError,
        StorageError, Stopped.
        """
        ended = self._records.result(record.job_key)
        if ended is not None:
            return ended
        if len(graph) > INLINE_GRAPH_BYTES:
            stored = self._files.write_graph(run_of(record), graph)
            record = dataclasses.replace(record, graph=b"", graph_pointer=stored.pointer)
        else:
            record = dataclasses.replace(record, graph=graph)
        try:
            faults.point("before-submission-persist")
            self._fence.write(lambda: self._records.submit(self._fence.grant, record))
            faults.point("after-submission-persist")
        except StoreError as error:  # so nothing was written, and the next try is another run
            if record.graph_pointer:
                self._delete_unsubmitted(run_of(record))
            if not isinstance(error, Conflict):
                raise
            other = self._records.result(record.job_key) or self._records.job(record.job_key)
            if other is None:
                raise
            return other
        return record

    def _delete_unsubmitted(self, run: Run) -> None:
        try:
            self._files.delete_run(run)
        except StorageError as error:
            log.warning("job %s: the graph of run %s is not deleted: %s", run.job_key, run.run_id, error)

    def delete_unsubmitted(self, record: JobRecord) -> None:
        """Deletes the graphs left by failed submissions of this job. Call it when the valid run is known."""
        try:
            for run in self._files.runs_of_only_a_graph(run_of(record)):
                self._delete_unsubmitted(run)
        except StorageError as error:
            log.warning("job %s: could not look for graphs that were never submitted: %s", record.job_key, error)

    def write_attempt(self, key: str, record: AttemptRecord) -> AttemptPersisted | PersistFailed:
        """Carries out PersistAttempt. Raises CorruptRecord, Stopped."""
        try:
            self._fence.write(lambda: self._records.write_attempt(self._fence.grant, key, record))
        except CorruptRecord:
            raise
        except StoreError as error:
            return PersistFailed(PersistKind.ATTEMPT, str(error), attempt=record.attempt)
        faults.point("after-attempt-persist")
        return AttemptPersisted(record.attempt)

    def write_orders(self, key: str, orders: JobOrders) -> OrdersPersisted | PersistFailed:
        """Carries out PersistOrders."""
        faults.point("before-orders-persist")
        try:
            self._fence.write(lambda: self._records.write_orders(self._fence.grant, key, orders))
        except StoreError as error:
            return PersistFailed(PersistKind.ORDERS, str(error))
        faults.point("after-orders-persist")
        return OrdersPersisted(orders)

    def write_checkpoint_id(self, key: str, number: int) -> CheckpointIdPersisted | CheckpointIdPersistFailed:
        """Carries out PersistCheckpointId. Raises CorruptRecord, Stopped."""
        try:
            self._fence.write(lambda: self._records.write_checkpoint_id(self._fence.grant, key, number))
        except CorruptRecord:
            raise
        except StoreError as error:
            return CheckpointIdPersistFailed(number, str(error))
        return CheckpointIdPersisted(number)

    def write_checkpoint(self, run: Run, effect: PersistCheckpoint) -> CheckpointPersisted | CheckpointPersistFailed:
        """Carries out PersistCheckpoint: file, then record."""
        number = effect.metadata.checkpoint_id
        try:
            faults.point("before-metadata-write")
            data = self._files.content(effect.metadata)
            stored = self._files.write(run, effect.metadata, data)
            faults.point("after-metadata-write")
            record = dataclasses.replace(
                effect.record,
                pointer=stored.pointer,
                checksum=stored.checksum,
                size_bytes=effect.record.size_bytes + stored.size_bytes,
                metadata=data if len(data) <= INLINE_METADATA_BYTES else b"",
            )
            faults.point("before-zookeeper-commit")
            self._fence.write(lambda: self._records.add_checkpoint(self._fence.grant, run.job_key, record))
            faults.point("after-zookeeper-commit")
        except StorageError as error:
            return CheckpointPersistFailed(number, str(error), FailureReason.STORAGE_FAILED)
        except StoreUnavailable as error:
            return CheckpointPersistFailed(number, str(error), FailureReason.STORE_AWAY)
        except StoreError as error:
            return CheckpointPersistFailed(number, str(error))
        return CheckpointPersisted(record)

    def request_cancel(self, record: JobRecord) -> None:
        """Makes a cancel durable, so that a later leader ends the job. No effect on a job that has ended.

        Raises StoreError, Stopped.
        """
        try:
            self._fence.write(lambda: self._records.request_cancel(self._fence.grant, record))
        except Conflict:
            if self._fence.read(lambda: self._records.result(record.job_key)) is None:
                raise

    def write_result(self, result: JobResult) -> ResultPersisted | PersistFailed:
        """Carries out PersistResult."""
        faults.point("before-result")
        try:
            self._fence.write(lambda: self._records.write_result(self._fence.grant, result))
        except StoreError as error:
            return PersistFailed(PersistKind.RESULT, str(error))
        return ResultPersisted()

    def give_up(self, result: JobResult) -> JobResult:
        """Ends a job that could not run: writes its result so that no leader ever deletes its files.

        Clean-up follows. Returns the result with all readable checkpoints in `retained`. Raises StoreError, Stopped.
        """
        key = result.job_key
        retained = tuple(
            dataclasses.replace(readable_checkpoint, metadata=b"")
            for readable_checkpoint in self._readable_checkpoints(key)
        )
        result = dataclasses.replace(result, keep_files=True, retained=retained)
        self._fence.write(lambda: self._records.write_result(self._fence.grant, result))
        return result


def _held_back(key: str, why: str) -> NeedsOperator:
    return NeedsOperator(
        f"This coordinator cannot run the job, which is held back until one of the newer version leads: {why}. "
        f"`lockgate release {key}` tries again; nothing of the job was changed."
    )
