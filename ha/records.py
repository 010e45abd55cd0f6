"""The durable records of jobs in ZooKeeper, typed. Every write takes the LeadershipGrant it is made under.

Every method may be called again with the same arguments after any error: what is already there is recognised. When the
connection breaks during a write, the method waits for ZooKeeper and reads back what happened; only when ZooKeeper
stays away for `settle_ms` does the caller see OutcomeUnknown, and then may simply call again later.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import AttemptRecord, CompletedCheckpoint, JobOrders, JobRecord, JobResult, RecoveryRecord

from ha.errors import Conflict, CorruptRecord, OutcomeUnknown, StoreUnavailable
from ha.grant import LeadershipGrant
from ha.paths import Paths, text_of
from ha.store import CoordinationStore, Create, Delete, Operation, Put

logger = logging.getLogger(__name__)

M = TypeVar("M")

_MISSING = "it is missing, although the job exists"
_TRIES = 3  # of one write whose outcome turned out to be "not written"


class JobRecords:
    """Reads and writes the records of all jobs of one cluster. Thread-safe; keeps nothing in memory.

    Writes raise Fenced, Conflict, StoreUnavailable (nothing written), OutcomeUnknown, RecordTooLarge; reads raise
    StoreUnavailable and CorruptRecord.
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
        """Makes the job exist: graph, attempt 0, checkpoint id 0. The same run again is accepted.

        Raises Conflict when another run of this key exists or has a result.
        """
        key, paths = record.job_key, self._paths
        writes: list[Operation] = [
            Create(paths.result(key)),  # fails when the job has a result already; undone by the next line
            Delete(paths.result(key)),
            Create(paths.job(key)),
            Create(paths.graph(key), encode(record)),
            Create(paths.attempt(key), encode(AttemptRecord(token=grant.token))),
            Create(paths.checkpoint_id(key), b"0"),
            Create(paths.checkpoints(key)),
        ]

        def is_there() -> bool:
            stored = self.job(key)
            return stored is not None and stored.run_id == record.run_id

        self._write(grant, writes, is_there)

    def jobs(self) -> tuple[JobRecord, ...]:
        """Every job that is not cleaned up. One that cannot be decoded is logged and left out, never an obstacle."""
        names = self._store.children(self._paths.jobs)
        return tuple(self._readable(JobRecord, (self._paths.graph(text_of(name)) for name in names)))

    def job(self, key: str) -> JobRecord | None:
        """The job's record, None when there is none."""
        return self._read(JobRecord, self._paths.graph(key))

    def request_cancel(self, grant: LeadershipGrant, record: JobRecord) -> None:
        """Marks the job, whose record as stored is `record`, as to be cancelled: every later leader sees it.

        Raises Conflict when the job does not exist (any more).
        """
        path, data = self._paths.graph(record.job_key), encode(dataclasses.replace(record, cancel_requested=True))
        self._write(grant, [Put(path, data)], lambda: self._store.read(path) == data)

    # -- attempts and checkpoints -------------------------------------------------------------------------------------

    def write_attempt(self, grant: LeadershipGrant, key: str, record: AttemptRecord) -> None:
        """Replaces the attempt record. To be done before the attempt is deployed. Raises CorruptRecord."""
        self._replace(grant, key, self._paths.attempt(key), encode(record))

    def attempt(self, key: str) -> AttemptRecord | None:
        """The newest attempt, number 0 before the first; None when the job does not exist."""
        return self._read(AttemptRecord, self._paths.attempt(key))

    def write_orders(self, grant: LeadershipGrant, key: str, orders: JobOrders) -> None:
        """Replaces the orders. To be done before they are carried out."""
        data = encode(orders)
        path = self._paths.orders(key)
        write: Operation = Create(path, data) if self._store.read(path) is None else Put(path, data)
        self._write(grant, [write], lambda: self._store.read(path) == data)

    def orders(self, key: str) -> JobOrders:
        """What was ordered of the job; nothing when no order was ever given."""
        return self._read(JobOrders, self._paths.orders(key)) or JobOrders()

    def deaths(self, key: str) -> int:
        """Recoveries of the job in a row that were begun and not got through."""
        record = self._read(RecoveryRecord, self._paths.recovery(key))
        return record.begun if record is not None else 0

    def note_recovery(self, grant: LeadershipGrant, key: str, begun: int) -> None:
        """Another recovery begins. To be done before anything of the job is looked at.

        Raises Conflict when the job does not exist (any more).
        """
        path, data = self._paths.recovery(key), encode(RecoveryRecord(begun, grant.token))
        write: Operation = Create(path, data) if self._store.read(path) is None else Put(path, data)
        self._write(grant, [write], lambda: self._store.read(path) == data)

    def forget_deaths(self, grant: LeadershipGrant, key: str) -> None:
        """A recovery got through, or somebody takes the blame. Nothing to do is fine."""
        path = self._paths.recovery(key)
        self._write(grant, [Delete(path)], lambda: self._store.read(path) is None)

    def write_checkpoint_id(self, grant: LeadershipGrant, key: str, checkpoint_id: int) -> None:
        """Reserves every id up to `checkpoint_id`. To be done before the id is used. Raises CorruptRecord."""
        self._replace(grant, key, self._paths.checkpoint_id(key), str(checkpoint_id).encode())

    def checkpoint_id(self, key: str) -> int:
        """The highest id reserved, 0 when there was none or the job does not exist."""
        path = self._paths.checkpoint_id(key)
        data = self._store.read(path)
        try:
            return int(data or b"0")
        except ValueError as error:
            raise CorruptRecord(path, f"{data!r} is not a number") from error

    def add_checkpoint(self, grant: LeadershipGrant, key: str, checkpoint: CompletedCheckpoint) -> None:
        """Makes a checkpoint completed. Its files must be durable already.

        Raises Conflict when the id already names another content.
        """
        path = self._paths.checkpoint(key, checkpoint.checkpoint_id)

        def is_there() -> bool:
            stored = self._read(CompletedCheckpoint, path)
            return stored is not None and _content(stored) == _content(checkpoint)

        self._write(grant, [Create(path, encode(checkpoint))], is_there)

    def remove_checkpoint(self, grant: LeadershipGrant, key: str, checkpoint_id: int) -> None:
        """Forgets a completed checkpoint; its files may be deleted only after this. Nothing to do is fine."""
        path = self._paths.checkpoint(key, checkpoint_id)
        self._write(grant, [Delete(path)], lambda: self._store.read(path) is None)

    def checkpoints(self, key: str) -> tuple[CompletedCheckpoint, ...]:
        """Every completed checkpoint of the job, newest first. Raises CorruptRecord rather than leave one out."""
        parent = self._paths.checkpoints(key)
        ids = sorted((_checkpoint_id(parent, name) for name in self._store.children(parent)), reverse=True)
        found = (self._read(CompletedCheckpoint, self._paths.checkpoint(key, one)) for one in ids)
        return tuple(one for one in found if one is not None)

    def require_whole(self, key: str) -> None:
        """Raises CorruptRecord when the job lacks a record that it has had since its submission.

        Read as nothing, a lost attempt or counter would let numbers name two things, and lost checkpoints would start
        the job empty.
        """
        for path in (self._paths.attempt(key), self._paths.checkpoint_id(key), self._paths.checkpoints(key)):
            if self._store.read(path) is None:
                raise CorruptRecord(path, _MISSING)

    # -- results ------------------------------------------------------------------------------------------------------

    def write_result(self, grant: LeadershipGrant, result: JobResult) -> None:
        """Records how the job ended (the caller sets `dirty`). Replaces an earlier result of the same run.

        Raises Conflict when the key has a result of another run.
        """
        data = encode(result)
        path = self._paths.result(result.job_key)
        stored = self.result(result.job_key)
        if stored is not None and stored.run_id != result.run_id:
            raise Conflict(path, f"holds the result of run {stored.run_id}, not of {result.run_id}")
        write: Operation = Create(path, data) if stored is None else Put(path, data)
        self._write(grant, [write], lambda: self._store.read(path) == data)

    def results(self) -> tuple[JobResult, ...]:
        """Every result kept. One that cannot be decoded is logged and left out."""
        names = self._store.children(self._paths.results)
        return tuple(self._readable(JobResult, (self._paths.result(text_of(name)) for name in names)))

    def result(self, key: str) -> JobResult | None:
        """How the job ended, None while it has not."""
        return self._read(JobResult, self._paths.result(key))

    def clean(
        self, grant: LeadershipGrant, key: str, forgetting: Callable[[tuple[str, ...]], None] | None = None
    ) -> None:
        """Deletes the job's other records and marks its result clean, in one transaction; then forgets old results.

        The job's checkpoint records go too, so whoever wants to delete the files reads `checkpoints(key)` before and
        deletes them after. Raises Conflict when the job has no result: an unfinished job is never deleted.
        forgetting: told the keys whose results are about to be forgotten, before they are.
        """
        result = self.result(key)
        if result is None:
            raise Conflict(self._paths.result(key), f"job {key!r} has no result, so its records stay")
        writes: list[Operation] = [Delete(path) for path in self._tree(self._paths.job(key))]
        clean = dataclasses.replace(result, dirty=False)
        if writes or result.dirty:
            ready = [*writes, Put(self._paths.result(key), encode(clean))]
            self._write(grant, ready, lambda: self.result(key) == clean and self.job(key) is None)
        self._forget_old_results(grant, forgetting)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _replace(self, grant: LeadershipGrant, key: str, path: str, data: bytes) -> None:
        """New content of a record that every job has. To try again does not help where somebody has deleted it."""
        try:
            self._write(grant, [Put(path, data)], lambda: self._store.read(path) == data)
        except Conflict:
            if self._store.read(path) is None and self._store.read(self._paths.graph(key)) is not None:
                raise CorruptRecord(path, _MISSING) from None
            raise

    def _write(self, grant: LeadershipGrant, writes: Sequence[Operation], is_done: Callable[[], bool]) -> None:
        """One transaction, whose unknown outcome is read back and whose conflict is fine when it `is_done` already."""
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
        data = self._store.read(path)
        if data is None:
            return None
        try:
            return decode(kind, data)
        except MalformedMessage as error:
            raise CorruptRecord(path, str(error)) from error

    def _readable(self, kind: type[M], paths: Iterable[str]) -> Iterable[M]:
        for path in paths:
            try:
                found = self._read(kind, path)
            except CorruptRecord as error:
                logger.error("%s; this job is left alone", error)
                continue
            if found is not None:
                yield found

    def _tree(self, path: str) -> list[str]:
        """The node and all below it, children before parents; empty when it does not exist."""
        below = [one for name in self._store.children(path) for one in self._tree(f"{path}/{name}")]
        return [*below, path] if below or self._store.read(path) is not None else []

    def _forget_old_results(self, grant: LeadershipGrant, forgetting: Callable[[tuple[str, ...]], None] | None) -> None:
        """Deletes the oldest clean results when there are too many; a tenth at a time, as it has to read them all."""
        if len(self._store.children(self._paths.results)) <= self._keep_results:
            return
        results = self.results()
        spare = len(results) - self._keep_results * 9 // 10
        oldest = sorted((one for one in results if not one.dirty), key=lambda one: one.ended_unix_ms)[:spare]
        if forgetting is not None:
            forgetting(tuple(one.job_key for one in oldest))
        paths = [self._paths.result(one.job_key) for one in oldest]
        self._write(grant, [Delete(path) for path in paths], lambda: all(self._store.read(p) is None for p in paths))
        logger.info("forgot %s old job results", len(paths))


def _checkpoint_id(parent: str, name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        raise CorruptRecord(
            f"{parent}/{name}", "its name is not the number of a checkpoint; delete it if it is not yours"
        )
    return int(name)


def _content(checkpoint: CompletedCheckpoint) -> tuple[object, ...]:
    return (checkpoint.checkpoint_id, checkpoint.pointer, checkpoint.checksum, checkpoint.kind)
