"""Deletions of jobs: the pointer first, and the files only when it is certainly deleted. On workers only."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence

from lockgate_ha.errors import CorruptRecord, StoreError
from lockgate_ha.records import JobRecords
from lockgate_ha.store import CoordinationStore
from lockgate_proto.messages import CompletedCheckpoint, JobResult

from lockgate_coordinator.checkpoint.handles import shared_files, writer_of
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run, content_of, run_of
from lockgate_coordinator.runtime.term_fence import SETTLE_MS, TermFence

log = logging.getLogger(__name__)


class Removals:
    """Deletions for all jobs of one term. Methods raise Stopped once the term is over."""

    def __init__(
        self,
        fence: TermFence,
        store: CoordinationStore,
        cluster: str,
        files: MetadataFiles,
        forgetting: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        """forgetting: called on a worker's thread with the keys of results that are about to be deleted."""
        self._fence = fence
        self._records = JobRecords(store, cluster, settle_ms=SETTLE_MS)
        self._files = files
        self._forgetting = forgetting

    def forget_checkpoint(self, key: str, number: int) -> None:
        """Deletes the record of a checkpoint; its files may be deleted after that. Raises StoreError, Stopped."""
        self._fence.write(lambda: self._records.remove_checkpoint(self._fence.grant, key, number))

    def delete_files(self, run: Run, checkpoint: CompletedCheckpoint, free: Sequence[str]) -> None:
        """Deletes the files of a checkpoint without a record. free: shared files to which no other one refers."""
        try:
            self._files.delete_pointed(checkpoint.pointer)
            self._files.delete_shared(run, free)
        except StorageError as error:
            text = "job %s: files of the subsumed checkpoint %s are not deleted: %s"
            self._warn(run.job_key, text, run.job_key, checkpoint.checkpoint_id, error)

    def delete_pointed(self, pointer: str) -> None:
        """Deletes the files of a savepoint without a record. Raises StorageError."""
        self._files.delete_pointed(pointer)

    def dispose_retained(self, key: str, checkpoint: CompletedCheckpoint) -> JobResult:
        """Deletes a snapshot of a job that has ended, with the files that no other kept one shares.

        Returns the job's new result. Raises as `dispose`, CorruptRecord.
        """
        result = self._fence.read(lambda: self._records.result(key))
        if result is None:
            raise StorageError(f"the result of job {key} is no longer kept")
        kept = tuple(item for item in result.retained if item.checkpoint_id != checkpoint.checkpoint_id)
        result = dataclasses.replace(result, retained=kept)
        self._fence.write(lambda: self._records.write_result(self._fence.grant, result))
        self._files.delete_pointed(checkpoint.pointer)
        run = run_of(result)
        listed = {checkpoint.checkpoint_id for checkpoint in kept}
        if run.run_id and listed.issuperset(self._files.checkpoint_ids(run)):  # else there may be another one
            if kept or result.keep_files:
                self._delete_unshared(run, kept)
            else:
                self._files.delete_run(run)
        return result

    def discard_pending(self, run: Run, number: int) -> None:
        """Carries out DiscardPending."""
        try:
            self._files.delete_checkpoint(run, number)
            shared = self._files.shared_files(run)
            self._files.delete_shared(run, [name for name in shared if writer_of(name) == number])
        except StorageError as error:
            self._warn(run.job_key, "job %s: aborted checkpoint %s is not deleted: %s", run.job_key, number, error)

    def delete_orphans(self, run: Run, below: int) -> None:
        """Deletes files of checkpoints with ids below `below` to which no record refers.

        These are folders of checkpoints that never completed, and shared files of no completed checkpoint: left by a
        failed leader, or uploaded late. below: the newest completed one; those in progress are newer.
        """
        try:
            self._delete_orphans(run, below)
        except (StoreError, StorageError) as error:
            self._warn(run.job_key, "job %s: could not search for orphaned files: %s", run.job_key, error)

    def _warn(self, key: str, text: str, *arguments: object) -> None:
        """A storage that is away fails every checkpoint's deletion."""
        self._fence.trouble.warning(log, f"deletions of {key}", text, *arguments)

    def _delete_orphans(self, run: Run, below: int) -> None:
        key = run.job_key
        known = self._records.checkpoints(key)
        numbers = {checkpoint.checkpoint_id for checkpoint in known}
        for number in self._files.checkpoint_ids(run):
            if number < below and number not in numbers and not self._fence.over.is_set():
                self._files.delete_checkpoint(run, number)
                log.info("job %s: deleted chk-%s, which has no record", key, number)
        old = [name for name in self._files.shared_files(run) if (writer_of(name) or below) < below]
        if old:  # only then are the files of each checkpoint needed
            used = frozenset[str]().union(*(shared_files(content_of(checkpoint, self._files)) for checkpoint in known))
            abandoned = [name for name in old if name not in used]
            if abandoned and not self._fence.over.is_set():
                self._files.delete_shared(run, abandoned)
                log.info("job %s: deleted %s shared files that no checkpoint refers to", key, len(abandoned))

    def clean_up(self, key: str, run_id: str) -> None:
        """Carries out CleanUp from the stored result, which lists the retained checkpoints and the place of the files.

        Raises StoreError, StorageError, Stopped: the result is still dirty then, and the call can be repeated.
        """
        grant = self._fence.grant
        result = self._fence.read(lambda: self._records.result(key))
        if result is None or result.run_id != run_id:
            log.error("job %s has no result of run %s in ZooKeeper, so nothing of it is deleted", key, run_id)
            return
        if not result.keep_files:
            self._delete_files(result)
        self._fence.write(lambda: self._records.clean(grant, key, self._forgetting))

    def _delete_files(self, result: JobResult) -> None:
        key, kept = result.job_key, {checkpoint.checkpoint_id for checkpoint in result.retained}
        if not result.run_id:
            log.error("the result of job %s names no run, so its files stay", key)
            return
        try:
            stored = self._fence.read(lambda: self._records.checkpoints(key))
        except CorruptRecord as error:
            log.warning("job %s: its files stay, because a record is corrupt: %s", key, error)
            return
        for checkpoint in stored:
            if checkpoint.checkpoint_id not in kept:
                self.forget_checkpoint(key, checkpoint.checkpoint_id)
        self._delete_run(run_of(result), result.retained)

    def _delete_run(self, run: Run, kept: Sequence[CompletedCheckpoint]) -> None:
        if not kept:
            self._files.delete_run(run)
            return
        numbers = {checkpoint.checkpoint_id for checkpoint in kept}
        for number in self._files.checkpoint_ids(run):
            if number not in numbers:
                self._files.delete_checkpoint(run, number)
        self._files.delete_graph(run)
        self._delete_unshared(run, kept)

    def _delete_unshared(self, run: Run, kept: Sequence[CompletedCheckpoint]) -> None:
        """Deletes the shared files of an ended run to which no kept checkpoint refers."""
        shared = self._files.shared_files(run)
        if not shared:
            return
        try:
            used = frozenset[str]().union(*(shared_files(content_of(checkpoint, self._files)) for checkpoint in kept))
        except StorageError as error:
            if error.retryable:
                raise
            log.warning("job %s: its shared files stay, because a checkpoint cannot be read: %s", run.job_key, error)
            return
        self._files.delete_shared(run, [name for name in shared if name not in used])
