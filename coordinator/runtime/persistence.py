"""The blocking half of one job: its records in ZooKeeper and its files. Runs on the job's ordered workers only."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import (
    AttemptRecord,
    CheckpointMetadata,
    CompletedCheckpoint,
    JobGraph,
    JobOrders,
    JobRecord,
    JobResult,
)

from coordinator.checkpoint.failures import Fault
from coordinator.checkpoint.handles import shared_files, writer_of
from coordinator.recovery.effects import PersistCheckpoint
from coordinator.recovery.events import (
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
from coordinator.runtime import faults
from coordinator.runtime.errors import Stopped, StorageError
from coordinator.runtime.metadata_files import MetadataFiles, Run, crc32, parse_metadata, run_of
from ha.errors import Conflict, CorruptRecord, Fenced, OutcomeUnknown, StoreError, StoreUnavailable
from ha.grant import LeadershipGrant
from ha.paths import Paths, text_of
from ha.records import JobRecords
from ha.store import CoordinationStore

log = logging.getLogger(__name__)

INLINE_METADATA_BYTES = 256 * 1024
INLINE_GRAPH_BYTES = 512 * 1024
_RETRY_S = 0.2
_SETTLE_MS = 2_000  # of one look at an unknown outcome; another follows until it is known or the term is over

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Tenure:
    """One grant as the workers see it: what to write under, and whether it is over.

    step_down: called with the reason when ZooKeeper says that a later grant exists.
    """

    grant: LeadershipGrant
    over: threading.Event
    step_down: Callable[[str], None]


class Persistence:
    """Carries out the writes of every job of one term. Methods raise Stopped once the term is over."""

    def __init__(
        self,
        tenure: Tenure,
        store: CoordinationStore,
        cluster: str,
        files: MetadataFiles,
        forgetting: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        """forgetting: told, on a worker's thread, the keys of results that ZooKeeper is about to keep no longer."""
        self._forgetting = forgetting
        self._tenure = tenure
        self._store = store
        self._paths = Paths(cluster)
        self._records = JobRecords(store, cluster, settle_ms=_SETTLE_MS)
        self._files = files

    # -- reading ------------------------------------------------------------------------------------------------------

    def job_keys(self) -> tuple[str, ...]:
        """The key of every job that is not cleaned up, readable or not. Raises Stopped."""
        return tuple(map(text_of, self._reading(lambda: self._store.children(self._paths.jobs))))

    def results(self) -> tuple[JobResult, ...]:
        """Every result kept. Raises Stopped."""
        return self._reading(self._records.results)

    def result(self, key: str) -> JobResult | None:
        """How a job ended. Raises StoreUnavailable, CorruptRecord."""
        return self._records.result(key)

    def load(self, key: str) -> tuple[JobRecord | None, JobResult | None] | CorruptRecord:
        """The job's record and its result, whichever exist, or what is wrong with them. Raises StoreUnavailable."""
        try:
            return self._records.job(key), self._records.result(key)
        except CorruptRecord as error:
            return error

    def deaths(self, key: str) -> int:
        """Leaders in a row that died while they recovered the job; 0 where that cannot be read. Raises Stopped."""
        try:
            return self._reading(lambda: self._records.deaths(key))
        except CorruptRecord as error:
            log.error("job %s: %s; it is recovered as if no leader had died of it", key, error)
            return 0

    def note_recovery(self, key: str, begun: int) -> None:
        """Before a recovery. When it cannot be written the recovery begins all the same. Raises Stopped."""
        try:
            self._fenced(lambda: self._records.note_recovery(self._tenure.grant, key, begun))
        except StoreError as error:
            log.warning("job %s: its recovery begins without a mark in ZooKeeper: %s", key, error)

    def forget_deaths(self, key: str) -> None:
        """The job's recovery got through, or is to be tried again. Raises StoreError, Stopped."""
        self._fenced(lambda: self._records.forget_deaths(self._tenure.grant, key))

    def start(self, record: JobRecord, *, fresh: bool) -> tuple[JobGraph, Recovered | RecoveryFailed]:
        """The job's graph, and what a JobMaster starts from. fresh: it has only just been submitted.

        Raises StorageError, Stopped.
        """
        graph = self.graph(record)
        if fresh and not record.restore_from:
            return graph, Recovered(None, (), None, 1)
        return graph, self.recover(record)

    def graph(self, record: JobRecord) -> JobGraph:
        """The job's graph, from the record or from the storage. Raises StorageError."""
        data = record.graph or self._files.read_graph(record.graph_pointer, record.graph_checksum)
        try:
            return decode(JobGraph, data)
        except MalformedMessage as error:
            raise StorageError(f"the job graph of {record.job_key} is not readable: {error}") from error

    def recover(self, record: JobRecord) -> Recovered | RecoveryFailed:
        """Everything a JobMaster starts from."""
        key = record.job_key
        attempt: AttemptRecord | None = None
        completed: tuple[CompletedCheckpoint, ...] = ()
        counter = 0
        try:
            attempt, completed, counter, orders = self._reading(
                lambda: (
                    self._records.attempt(key),
                    self._records.checkpoints(key),
                    self._records.checkpoint_id(key),
                    self._records.orders(key),
                )
            )
            if attempt is None or not counter or not completed:  # it is new, or something is lost
                self._reading(lambda: self._records.require_whole(key))
            metadata = self._restored(record, completed)
        except CorruptRecord as error:
            return RecoveryFailed(f"A record in ZooKeeper is corrupt: {error}", False, attempt, completed, counter + 1)
        except StorageError as error:
            return RecoveryFailed(str(error), error.retryable, attempt, completed, counter + 1)
        return Recovered(attempt, completed, metadata, counter + 1, orders)

    def _restored(self, record: JobRecord, completed: tuple[CompletedCheckpoint, ...]) -> CheckpointMetadata | None:
        if completed:
            return self.metadata(completed[0])
        return self._files.read(record.restore_from) if record.restore_from else None

    def metadata(self, checkpoint: CompletedCheckpoint) -> CheckpointMetadata:
        """The content of a completed checkpoint's metadata. Raises StorageError."""
        data = checkpoint.metadata
        if not data:
            return self._files.read(checkpoint.pointer, checkpoint.checksum)
        if crc32(data) != checkpoint.checksum:
            raise StorageError(
                f"the ZooKeeper record of checkpoint {checkpoint.checkpoint_id} is corrupt: "
                f"its metadata has checksum {crc32(data)}, not {checkpoint.checksum}"
            )
        return parse_metadata(data, f"the ZooKeeper record of checkpoint {checkpoint.checkpoint_id}")

    # -- writing ------------------------------------------------------------------------------------------------------

    def submit(self, record: JobRecord, graph: bytes) -> JobRecord | JobResult:
        """Makes the job exist; durable when this returns. A large graph goes to the storage first.

        Returns the record as written, or what there is of another run of the same key. Raises StoreError,
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
            self._fenced(lambda: self._records.submit(self._tenure.grant, record))
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
            log.warning("job %s: the graph of run %s is left behind: %s", run.job_key, run.run_id, error)

    def delete_unsubmitted(self, record: JobRecord) -> None:
        """Deletes the graphs that failed submissions of this job have left, now that it is known which run counts."""
        try:
            for run in self._files.runs_of_only_a_graph(run_of(record)):
                self._delete_unsubmitted(run)
        except StorageError as error:
            log.warning("job %s: could not look for graphs that were never submitted: %s", record.job_key, error)

    def write_attempt(self, key: str, record: AttemptRecord) -> AttemptPersisted | PersistFailed:
        """Carries out PersistAttempt. Raises CorruptRecord, Stopped."""
        try:
            self._fenced(lambda: self._records.write_attempt(self._tenure.grant, key, record))
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
            self._fenced(lambda: self._records.write_orders(self._tenure.grant, key, orders))
        except StoreError as error:
            return PersistFailed(PersistKind.ORDERS, str(error))
        faults.point("after-orders-persist")
        return OrdersPersisted(orders)

    def write_checkpoint_id(self, key: str, number: int) -> CheckpointIdPersisted | CheckpointIdPersistFailed:
        """Carries out PersistCheckpointId. Raises CorruptRecord, Stopped."""
        try:
            self._fenced(lambda: self._records.write_checkpoint_id(self._tenure.grant, key, number))
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
            data = encode(effect.metadata)
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
            self._fenced(lambda: self._records.add_checkpoint(self._tenure.grant, run.job_key, record))
            faults.point("after-zookeeper-commit")
        except StorageError as error:
            return CheckpointPersistFailed(number, str(error), Fault.STORAGE)
        except StoreUnavailable as error:
            return CheckpointPersistFailed(number, str(error), Fault.NONE)
        except StoreError as error:
            return CheckpointPersistFailed(number, str(error))
        return CheckpointPersisted(record)

    def request_cancel(self, record: JobRecord) -> None:
        """Makes a cancel durable: a later leader ends the job. Of a job that has ended nothing is left to be marked.

        Raises StoreError, Stopped.
        """
        try:
            self._fenced(lambda: self._records.request_cancel(self._tenure.grant, record))
        except Conflict:
            if self._reading(lambda: self._records.result(record.job_key)) is None:
                raise

    def write_result(self, result: JobResult) -> ResultPersisted | PersistFailed:
        """Carries out PersistResult."""
        faults.point("before-result")
        try:
            self._fenced(lambda: self._records.write_result(self._tenure.grant, result))
        except StoreError as error:
            return PersistFailed(PersistKind.RESULT, str(error))
        return ResultPersisted()

    # -- deleting: the pointer first, and only when it is certainly gone the files ----------------------------------

    def forget_checkpoint(self, key: str, number: int) -> None:
        """Deletes the record of a checkpoint: its files may go when this returns. Raises StoreError, Stopped."""
        self._fenced(lambda: self._records.remove_checkpoint(self._tenure.grant, key, number))

    def delete_files(self, run: Run, checkpoint: CompletedCheckpoint, free: Sequence[str]) -> None:
        """Of a checkpoint whose record is gone. free: names of shared files that no other one refers to."""
        try:
            self._files.delete_pointed(checkpoint.pointer)
            self._files.delete_shared(run, free)
        except StorageError as error:
            text = "job %s: files of the subsumed checkpoint %s are left behind: %s"
            log.warning(text, run.job_key, checkpoint.checkpoint_id, error)

    def delete_pointed(self, pointer: str) -> None:
        """Deletes the files of a savepoint whose record is gone. Raises StorageError."""
        self._files.delete_pointed(pointer)

    def dispose_retained(self, key: str, checkpoint: CompletedCheckpoint) -> JobResult:
        """Deletes a snapshot of a job that has ended, and what no other kept one shares with it.

        Returns the job's result as it is then. Raises as `dispose`, CorruptRecord.
        """
        result = self._reading(lambda: self._records.result(key))
        if result is None:
            raise StorageError(f"the result of job {key} is not remembered any more")
        kept = tuple(one for one in result.retained if one.checkpoint_id != checkpoint.checkpoint_id)
        result = dataclasses.replace(result, retained=kept)
        self._fenced(lambda: self._records.write_result(self._tenure.grant, result))
        self._files.delete_pointed(checkpoint.pointer)
        run = run_of(result)
        if run.run_id and {one.checkpoint_id for one in kept}.issuperset(self._files.checkpoint_ids(run)):
            self._delete_unshared(run, kept)  # else there may be a checkpoint that the result does not list
        return result

    def discard_pending(self, run: Run, number: int) -> None:
        """Carries out DiscardPending."""
        try:
            self._files.delete_checkpoint(run, number)
            shared = self._files.shared_files(run)
            self._files.delete_shared(run, [name for name in shared if writer_of(name) == number])
        except StorageError as error:
            log.warning("job %s: aborted checkpoint %s is not deleted: %s", run.job_key, number, error)

    def delete_orphans(self, run: Run, below: int) -> None:
        """Deletes what checkpoints with ids under `below` have left behind that no record refers to.

        Folders of those that never completed, and shared files that no completed checkpoint is made of: a dead leader
        had no time for them, or an upload came late. below: the newest completed one; what is under way is newer.
        """
        try:
            self._delete_orphans(run, below)
        except (StoreError, StorageError) as error:
            log.warning("job %s: could not look for what nothing refers to: %s", run.job_key, error)

    def _delete_orphans(self, run: Run, below: int) -> None:
        key = run.job_key
        known = self._records.checkpoints(key)
        numbers = {one.checkpoint_id for one in known}
        for number in self._files.checkpoint_ids(run):
            if number < below and number not in numbers and not self._tenure.over.is_set():
                self._files.delete_checkpoint(run, number)
                log.info("job %s: deleted chk-%s, which never completed", key, number)
        old = [name for name in self._files.shared_files(run) if (writer_of(name) or below) < below]
        if old:  # only then is it worth reading what each checkpoint is made of
            used = frozenset[str]().union(*(shared_files(self.metadata(one)) for one in known))
            abandoned = [name for name in old if name not in used]
            if abandoned and not self._tenure.over.is_set():
                self._files.delete_shared(run, abandoned)
                log.info("job %s: deleted %s shared files that no checkpoint refers to", key, len(abandoned))

    def clean_up(self, key: str, run_id: str) -> None:
        """Carries out CleanUp, of which the stored result tells all: what is retained, and where the files are.

        Raises StoreError, StorageError, Stopped: the result is still dirty then, and the same call may be made again.
        """
        grant = self._tenure.grant
        result = self._reading(lambda: self._records.result(key))
        if result is None or result.run_id != run_id:
            log.error("job %s has no result of run %s in ZooKeeper, so nothing of it is deleted", key, run_id)
            return
        if not result.keep_files:
            self._delete_files(result)
        self._fenced(lambda: self._records.clean(grant, key, self._forgetting))

    def give_up(self, result: JobResult) -> JobResult:
        """Ends a job that could not be run: its result is written so that no leader ever deletes a file of it.

        Clean-up comes after that. Returns the result with every checkpoint that could be read in `retained`. Raises
        StoreError, Stopped.
        """
        key = result.job_key
        retained: tuple[CompletedCheckpoint, ...] = ()
        try:
            found = self._reading(lambda: self._records.checkpoints(key))
            retained = tuple(dataclasses.replace(one, metadata=b"") for one in found)
        except (StoreError, ValueError) as error:
            log.warning("job %s: its checkpoints are not listed in its result: %s", key, error)
        result = dataclasses.replace(result, keep_files=True, retained=retained)
        self._fenced(lambda: self._records.write_result(self._tenure.grant, result))
        return result

    def _delete_files(self, result: JobResult) -> None:
        key, kept = result.job_key, {one.checkpoint_id for one in result.retained}
        if not result.run_id:
            log.error("the result of job %s names no run, so its files stay", key)
            return
        try:
            stored = self._reading(lambda: self._records.checkpoints(key))
        except CorruptRecord as error:
            log.warning("job %s: its files stay, because a record is corrupt: %s", key, error)
            return
        for one in stored:
            if one.checkpoint_id not in kept:
                self._fenced(partial(self._records.remove_checkpoint, self._tenure.grant, key, one.checkpoint_id))
        self._delete_run(run_of(result), result.retained)

    def _delete_run(self, run: Run, kept: Sequence[CompletedCheckpoint]) -> None:
        if not kept:
            self._files.delete_run(run)
            return
        numbers = {one.checkpoint_id for one in kept}
        for number in self._files.checkpoint_ids(run):
            if number not in numbers:
                self._files.delete_checkpoint(run, number)
        self._delete_unshared(run, kept)

    def _delete_unshared(self, run: Run, kept: Sequence[CompletedCheckpoint]) -> None:
        """Of a run that has ended: shared files that none of the kept checkpoints refers to."""
        shared = self._files.shared_files(run)
        if not shared:
            return
        try:
            used = frozenset[str]().union(*(shared_files(self.metadata(one)) for one in kept))
        except StorageError as error:
            if error.retryable:
                raise
            log.warning("job %s: its shared files stay, because a checkpoint cannot be read: %s", run.job_key, error)
            return
        self._files.delete_shared(run, [name for name in shared if name not in used])

    # -- inside -------------------------------------------------------------------------------------------------------

    def _fenced(self, write: Callable[[], None]) -> None:
        """One write, until its outcome is known. Raises Conflict, StoreUnavailable, RecordTooLarge, Stopped."""
        unknown = False
        while not self._tenure.over.is_set():
            try:
                write()
                return
            except Fenced as error:
                log.warning("ZooKeeper refuses a write: %s", error)
                self._tenure.step_down(str(error))
                raise Stopped(f"this coordinator no longer leads: {error}") from error
            except OutcomeUnknown as error:
                unknown = True
                log.warning("a write has an unknown outcome and is read back: %s", error)
            except StoreUnavailable:
                if not unknown:
                    raise
            self._tenure.over.wait(_RETRY_S)
        raise Stopped("this coordinator no longer leads")

    def _reading(self, read: Callable[[], _T]) -> _T:
        while not self._tenure.over.is_set():
            try:
                return read()
            except StoreUnavailable as error:
                log.warning("ZooKeeper does not answer, trying again: %s", error)
            self._tenure.over.wait(_RETRY_S)
        raise Stopped("this coordinator no longer leads")
