"""The durable records of jobs and leaders in ZooKeeper, typed. Every write takes the LeadershipGrant it is made under.

Every method may be called again with the same arguments after any error: existing records are recognized. When the
connection breaks during a write, the method waits for ZooKeeper and reads the outcome back; only when ZooKeeper is
unreachable for `settle_ms` does it raise OutcomeUnknown, and the caller may call again later.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import (
    AttemptRecord,
    CompletedCheckpoint,
    JobOrders,
    JobRecord,
    JobResult,
    LeaderHistory,
    LeadershipRecord,
    RecoveryRecord,
)
from lockgate_proto.release import RECORD_FORMAT, is_newer, record_format

from lockgate_ha.errors import Conflict, CorruptRecord, NewerRecord, OutcomeUnknown, StoreUnavailable
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.paths import Paths, text_of
from lockgate_ha.store import CoordinationStore, Create, Delete, Operation, Put

logger = logging.getLogger(__name__)

Record = AttemptRecord | CompletedCheckpoint | JobOrders | JobRecord | JobResult | LeaderHistory | RecoveryRecord
M = TypeVar("M", AttemptRecord, CompletedCheckpoint, JobOrders, JobRecord, JobResult, LeaderHistory, RecoveryRecord)

_MISSING = "it is missing, although the job exists"
_TRIES = 3  # for one write whose outcome turned out to be "not written"
_DELETED_AT_ONCE = 1_000  # a transaction has to stay below a megabyte, including paths
_READ_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job as read by a new leader. deaths: see JobRecords.deaths."""

    record: JobRecord | None
    result: JobResult | None
    deaths: int = 0


@dataclass(frozen=True, slots=True)
class RestartPoint:
    """attempt: None when it is missing; checkpoints: newest first; checkpoint_id: the highest reserved."""

    attempt: AttemptRecord | None
    checkpoints: tuple[CompletedCheckpoint, ...]
    checkpoint_id: int
    orders: JobOrders


class JobRecords:
    """Reads and writes the records of all jobs of one cluster. Thread-safe; keeps nothing in memory.

    Writes raise Fenced, Conflict, StoreUnavailable (nothing written), OutcomeUnknown, RecordTooLarge; reads raise
    StoreUnavailable, CorruptRecord, and NewerRecord for what a newer version has written.
    """

    def __init__(
        self, store: CoordinationStore, cluster: str, *, settle_ms: int = 10_000, keep_results: int = 1_000
    ) -> None:
        self._store = store
        self._paths = Paths(cluster)
        self._settle_ms = settle_ms
        self._keep_results = keep_results

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def submit(self, grant: LeadershipGrant, record: JobRecord) -> None:
        """Creates the job: graph, attempt 0, checkpoint id 0. Submitting the same run again is accepted.

        Raises Conflict when another run of this key exists or has a result.
        """
        key, paths = record.job_key, self._paths
        writes: list[Operation] = [
            Create(paths.result(key)),  # fails when the job has a result already; undone by the next operation
            Delete(paths.result(key)),
            Create(paths.job(key)),
            Create(paths.graph(key), self._sealed(paths.graph(key), record)),
            Create(paths.attempt(key), self._sealed(paths.attempt(key), AttemptRecord(token=grant.token))),
            Create(paths.checkpoint_id(key), self._seal(paths.checkpoint_id(key), b"0")),
            Create(paths.checkpoints(key)),
        ]

        def is_there() -> bool:
            stored = self.job(key)
            return stored is not None and stored.run_id == record.run_id

        self._write(grant, writes, is_there)

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that is not cleaned up. One that cannot be read is logged and skipped."""
        names = self._store.children(self._paths.jobs)
        return tuple(self._readable(JobRecord, [self._paths.graph(text_of(name)) for name in names]))

    def job(self, key: str) -> JobRecord | None:
        """The job's record, None when there is none."""
        return self._read(JobRecord, self._paths.graph(key))

    def request_cancel(self, grant: LeadershipGrant, record: JobRecord) -> None:
        """Marks the job, whose stored record is `record`, for cancellation: every later leader sees it.

        Raises Conflict when the job does not exist (any more).
        """
        path = self._paths.graph(record.job_key)
        data = self._sealed(path, dataclasses.replace(record, cancel_requested=True))
        self._write(grant, [Put(path, data)], lambda: self._store.read(path) == data)

    # -- attempts and checkpoints -------------------------------------------------------------------------------------

    def write_attempt(self, grant: LeadershipGrant, key: str, record: AttemptRecord) -> None:
        """Replaces the attempt record. To be done before the attempt is deployed. Raises CorruptRecord."""
        path = self._paths.attempt(key)
        self._replace(grant, key, path, self._sealed(path, record))

    def attempt(self, key: str) -> AttemptRecord | None:
        """The newest attempt, number 0 before the first; None when the job does not exist."""
        return self._read(AttemptRecord, self._paths.attempt(key))

    def write_orders(self, grant: LeadershipGrant, key: str, orders: JobOrders) -> None:
        """Replaces the orders. To be done before they are carried out."""
        self._set(grant, self._paths.orders(key), orders)

    def orders(self, key: str) -> JobOrders:
        """The orders for the job; empty when there were none."""
        return self._read(JobOrders, self._paths.orders(key)) or JobOrders()

    def found(self, key: str) -> FoundJob:
        """The records of one job that a new leader reads first."""
        paths = (self._paths.graph(key), self._paths.result(key), self._paths.recovery(key))
        graph, result, recovery = self._store.read_all(paths)
        try:
            deaths = _deaths(self._decoded(RecoveryRecord, paths[2], recovery))
        except (CorruptRecord, NewerRecord) as error:  # a newer version may have left its mark and no other record
            logger.error("job %s: %s; it is recovered as if no earlier recovery had failed", key, error)
            deaths = 0
        return FoundJob(self._decoded(JobRecord, paths[0], graph), self._decoded(JobResult, paths[1], result), deaths)

    def deaths(self, key: str) -> int:
        """The number of consecutive recoveries of the job that were begun and not completed."""
        return _deaths(self._read(RecoveryRecord, self._paths.recovery(key)))

    def note_recovery(self, grant: LeadershipGrant, key: str, begun: int) -> None:
        """Another recovery begins. Call it before reading anything of the job.

        Raises Conflict when the job does not exist (any more).
        """
        path = self._paths.recovery(key)
        data = self._sealed(path, RecoveryRecord(begun, grant.token))
        likely, other = (Create(path, data), Put(path, data)) if begun == 1 else (Put(path, data), Create(path, data))

        def is_there() -> bool:
            return self._store.read(path) == data

        try:  # a takeover waits for this, so it does not read first
            self._write(grant, [likely], is_there)
        except Conflict:
            self._write(grant, [other], is_there)

    def clear_recovery_count(self, grant: LeadershipGrant, key: str) -> None:
        """A recovery completed, or an operator released the job. Does nothing when there is no record."""
        path = self._paths.recovery(key)
        self._write(grant, [Delete(path)], lambda: self._store.read(path) is None)

    def write_checkpoint_id(self, grant: LeadershipGrant, key: str, checkpoint_id: int) -> None:
        """Reserves every id up to `checkpoint_id`. To be done before the id is used. Raises CorruptRecord."""
        path = self._paths.checkpoint_id(key)
        self._replace(grant, key, path, self._seal(path, str(checkpoint_id).encode()))

    def checkpoint_id(self, key: str) -> int:
        """The highest id reserved, 0 when there was none or the job does not exist."""
        path = self._paths.checkpoint_id(key)
        return self._number(path, self._store.read(path))

    def add_checkpoint(self, grant: LeadershipGrant, key: str, checkpoint: CompletedCheckpoint) -> None:
        """Completes a checkpoint. Its files must be durable already.

        Raises Conflict when the id already names another content.
        """
        path = self._paths.checkpoint(key, checkpoint.checkpoint_id)

        def is_there() -> bool:
            stored = self._read(CompletedCheckpoint, path)
            return stored is not None and _content(stored) == _content(checkpoint)

        self._write(grant, [Create(path, self._sealed(path, checkpoint))], is_there)

    def remove_checkpoint(self, grant: LeadershipGrant, key: str, checkpoint_id: int) -> None:
        """Removes a completed checkpoint; its files may only be deleted after this.

        Does nothing when it does not exist.
        """
        path = self._paths.checkpoint(key, checkpoint_id)
        self._write(grant, [Delete(path)], lambda: self._store.read(path) is None)

    def checkpoints(self, key: str) -> tuple[CompletedCheckpoint, ...]:
        """Every completed checkpoint of the job, newest first. Raises CorruptRecord rather than skip one."""
        paths = self._checkpoint_paths(key)
        return self._completed(paths, self._store.read_all(paths))

    def restart_point(self, key: str) -> RestartPoint:
        """The records that a job restarts from.

        Raises CorruptRecord as `attempt`, `checkpoints`, `checkpoint_id` and `orders`.
        """
        own = (self._paths.attempt(key), self._paths.checkpoint_id(key), self._paths.orders(key))
        paths = self._checkpoint_paths(key)
        attempt, counter, orders, *checkpoints = self._store.read_all((*own, *paths))
        return RestartPoint(
            self._decoded(AttemptRecord, own[0], attempt),
            self._completed(paths, checkpoints),
            self._number(own[1], counter),
            self._decoded(JobOrders, own[2], orders) or JobOrders(),
        )

    def _checkpoint_paths(self, key: str) -> list[str]:
        """Of every completed checkpoint, newest first."""
        parent = self._paths.checkpoints(key)
        ids = sorted((_checkpoint_id(parent, name) for name in self._store.children(parent)), reverse=True)
        return [self._paths.checkpoint(key, number) for number in ids]

    def _completed(self, paths: Sequence[str], found: Sequence[bytes | None]) -> tuple[CompletedCheckpoint, ...]:
        checkpoints = (
            self._decoded(CompletedCheckpoint, *found_record) for found_record in zip(paths, found, strict=True)
        )
        return tuple(checkpoint for checkpoint in checkpoints if checkpoint is not None)

    def require_whole(self, key: str) -> None:
        """Raises CorruptRecord when the job lacks a record that it has had since its submission.

        If a lost attempt or counter were read as empty, numbers could name two contents, and with lost checkpoints the
        job would start empty.
        """
        for path in (self._paths.attempt(key), self._paths.checkpoint_id(key), self._paths.checkpoints(key)):
            if self._store.read(path) is None:
                raise CorruptRecord(path, _MISSING)

    # -- results ------------------------------------------------------------------------------------------------------

    def write_result(self, grant: LeadershipGrant, result: JobResult) -> None:
        """Records the job's result (the caller sets `dirty`). Replaces an earlier result of the same run.

        Raises Conflict when the key has a result of another run.
        """
        path = self._paths.result(result.job_key)
        data = self._sealed(path, result)
        stored = self.result(result.job_key)
        if stored is not None and stored.run_id != result.run_id:
            raise Conflict(path, f"has the result of run {stored.run_id}, not of {result.run_id}")
        write: Operation = Create(path, data) if stored is None else Put(path, data)
        self._write(grant, [write], lambda: self._store.read(path) == data)

    def results(self) -> tuple[JobResult, ...]:
        """Every retained result. One that cannot be read is logged and skipped."""
        names = self._store.children(self._paths.results)
        return tuple(self._readable(JobResult, [self._paths.result(text_of(name)) for name in names]))

    def result(self, key: str) -> JobResult | None:
        """The job's result, None while it has not ended."""
        return self._read(JobResult, self._paths.result(key))

    def clean(
        self, grant: LeadershipGrant, key: str, forgetting: Callable[[tuple[str, ...]], None] | None = None
    ) -> None:
        """Deletes the job's other records and marks its result clean; then removes old results.

        Uses one transaction, unless there are thousands of records; after a crash it can be repeated.

        The job's checkpoint records are deleted, too: to delete the files, read `checkpoints(key)` before and delete
        them after. Raises Conflict when the job has no result: an unfinished job is never deleted.
        forgetting: called with the keys whose results are about to be removed, before they are.
        """
        result = self.result(key)
        if result is None:
            raise Conflict(self._paths.result(key), f"job {key!r} has no result, so its records stay")
        tree = self._tree(self._paths.job(key))
        if len(tree) > _DELETED_AT_ONCE:
            for begin in range(0, len(tree), _DELETED_AT_ONCE):
                self._delete(grant, tree[begin : begin + _DELETED_AT_ONCE])
            tree = []
        writes: list[Operation] = [Delete(path) for path in tree]
        clean = dataclasses.replace(result, dirty=False)
        if writes or result.dirty:
            path = self._paths.result(key)
            ready = [*writes, Put(path, self._sealed(path, clean))]
            self._write(grant, ready, lambda: self.result(key) == clean and self.job(key) is None)
        self._forget_old_results(grant, forgetting)

    # -- leaders ------------------------------------------------------------------------------------------------------

    def leaders(self) -> tuple[LeadershipRecord, ...]:
        """The newest leaders, the newest last."""
        found = self._read(LeaderHistory, self._paths.leaders)
        return found.leaders if found is not None else ()

    def write_leaders(self, grant: LeadershipGrant, leaders: Sequence[LeadershipRecord]) -> None:
        """Replaces the history of leaders."""
        self._set(grant, self._paths.leaders, LeaderHistory(tuple(leaders)))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _set(self, grant: LeadershipGrant, path: str, record: Record) -> None:
        """Makes a record that need not exist, or replaces it."""
        data = self._sealed(path, record)
        write: Operation = Create(path, data) if self._store.read(path) is None else Put(path, data)
        self._write(grant, [write], lambda: self._store.read(path) == data)

    def _replace(self, grant: LeadershipGrant, key: str, path: str, data: bytes) -> None:
        """New content of a record that every job has. Retrying does not help if it was deleted."""
        try:
            self._write(grant, [Put(path, data)], lambda: self._store.read(path) == data)
        except Conflict:
            if self._store.read(path) is None and self._store.read(self._paths.graph(key)) is not None:
                raise CorruptRecord(path, _MISSING) from None
            raise

    def _write(self, grant: LeadershipGrant, writes: Sequence[Operation], is_done: Callable[[], bool]) -> None:
        """One transaction; an unknown outcome is read back, and a conflict is accepted when `is_done` already."""
        unknown: OutcomeUnknown | None = None
        for _ in range(_TRIES):
            try:
                self._store.commit(grant, writes)
                return
            except Conflict:
                if is_done():
                    return
                raise
            except OutcomeUnknown as error:
                unknown = error
                if self._read_back(error, is_done):
                    return
        raise StoreUnavailable(f"nothing was written in {_TRIES} tries; the connection broke each time") from unknown

    def _read_back(self, unknown: OutcomeUnknown, is_done: Callable[[], bool]) -> bool:
        try:
            self._store.settle(self._settle_ms)
            return is_done()
        except StoreUnavailable:
            raise unknown from None

    def _read(self, kind: type[M], path: str) -> M | None:
        return self._decoded(kind, path, self._store.read(path))

    def _decoded(self, kind: type[M], path: str, data: bytes | None) -> M | None:
        if data is None:
            return None
        try:
            found = decode(kind, self._store.protection.unseal(path, data))
        except MalformedMessage as error:
            raise CorruptRecord(path, str(error)) from error
        if is_newer(found.format_version):
            raise NewerRecord(path, found.format_version, RECORD_FORMAT)
        return dataclasses.replace(found, format_version=0)  # it says how it was stored, and nothing about the job

    def _number(self, path: str, stored: bytes | None) -> int:
        data = b"0" if stored is None else self._store.protection.unseal(path, stored)
        try:
            return int(data or b"0")
        except ValueError as error:
            raise CorruptRecord(path, f"{data[:40]!r} is not a number") from error

    def _sealed(self, path: str, record: Record) -> bytes:
        return self._seal(path, encode(dataclasses.replace(record, format_version=record_format(record))))

    def _seal(self, path: str, data: bytes) -> bytes:
        return self._store.protection.seal(path, data)

    def _readable(self, kind: type[M], paths: Sequence[str]) -> Iterable[M]:
        for begin in range(0, len(paths), _READ_AT_ONCE):
            some = paths[begin : begin + _READ_AT_ONCE]
            for path, data in zip(some, self._store.read_all(some), strict=True):
                try:
                    found = self._decoded(kind, path, data)
                except (CorruptRecord, NewerRecord) as error:
                    logger.error("%s; this job is skipped", error)
                    continue
                if found is not None:
                    yield found

    def _tree(self, path: str) -> list[str]:
        """The node and all nodes below it, children before parents; empty when it does not exist."""
        return [*self._below(path), path] if self._store.read(path) is not None else []

    def _below(self, path: str) -> list[str]:
        names = self._store.children(path)
        return [node for name in names for node in (*self._below(f"{path}/{name}"), f"{path}/{name}")]

    def _forget_old_results(self, grant: LeadershipGrant, forgetting: Callable[[tuple[str, ...]], None] | None) -> None:
        """Deletes the oldest clean results when there are too many; a tenth at a time, because it has to read them
        all.
        """
        if len(self._store.children(self._paths.results)) <= self._keep_results:
            return
        results = self.results()
        spare = len(results) - self._keep_results * 9 // 10
        oldest = sorted((result for result in results if not result.dirty), key=lambda result: result.ended_unix_ms)[
            :spare
        ]
        if forgetting is not None:
            forgetting(tuple(result.job_key for result in oldest))
        paths = [self._paths.result(result.job_key) for result in oldest]
        self._delete(grant, paths)
        logger.info("removed %s old job results", len(paths))

    def _delete(self, grant: LeadershipGrant, paths: Sequence[str]) -> None:
        def are_gone() -> bool:
            return not any(content is not None for content in self._store.read_all(paths))

        self._write(grant, [Delete(path) for path in paths], are_gone)


def _deaths(record: RecoveryRecord | None) -> int:
    return record.begun if record is not None else 0


def _checkpoint_id(parent: str, name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise CorruptRecord(
            f"{parent}/{name}", "its name is not the number of a checkpoint; delete it if it is not yours"
        )
    return int(name)


def _content(checkpoint: CompletedCheckpoint) -> tuple[object, ...]:
    return (checkpoint.checkpoint_id, checkpoint.pointer, checkpoint.checksum, checkpoint.kind)
