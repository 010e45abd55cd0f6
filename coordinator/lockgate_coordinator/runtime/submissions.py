"""Idempotent submission: one key names one job, however often and by any client it is submitted. Actor thread."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import JobGraph, JobRecord, JobResult, SubmitResponse

from lockgate_coordinator.graph.destinations import Destination, clashes, destinations
from lockgate_coordinator.runtime.errors import Busy
from lockgate_coordinator.runtime.metadata_files import metadata_uri
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_coordinator.runtime.views import not_read, other_job, other_start

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Open:
    """A submission that is being written: the request and the answer."""

    record: JobRecord
    answer: Future[SubmitResponse]
    writes: tuple[Destination, ...]


class Submissions:
    """The submissions of one term that are being written."""

    def __init__(self, term: LeaderTerm) -> None:
        self.term = term
        self._open: dict[str, _Open] = {}  # by key
        self._deleting: set[str] = set()  # metadata files of snapshots

    def known(self, wanted: JobRecord) -> SubmitResponse | None:
        """The answer for an existing key, None for a new one.

        Raises Refused when the key belongs to another graph, or to a job with another start; Busy when that is not
        known yet.
        """
        key = wanted.job_key
        runner = self.term.jobs.get(key) or self.term.ended.get(key)
        if runner is not None and not runner.is_read:
            raise not_read(key, runner.trouble)
        found: JobRecord | JobResult | None = runner.record if runner is not None else self.term.results.get(key)
        return None if found is None else _same(found, wanted)

    def submit(
        self,
        record: JobRecord,
        graph: bytes,
        check: Callable[[], str] | None = None,
        writes: tuple[Destination, ...] = (),
    ) -> Future[SubmitResponse]:
        """Writes a new job and answers when it is durable. The same submission meanwhile gets the same answer.

        check: called before that on a worker thread, because it may take long; returns the checksum of the snapshot
        that the job starts from, raises Refused. writes: destinations of its sinks. Fails with Refused, Busy,
        StoreError, StorageError, or Stopped (outcome unknown: submit again).
        """
        key = record.job_key
        answer: Future[SubmitResponse] = Future()
        try:
            known = self.known(record)
            running = self._open.get(key)
            if running is not None:
                _same(running.record, record)
                if running.record.allow_unmatched_state != record.allow_unmatched_state:
                    raise Busy(f"job {key} is being submitted with another choice for unmatched state; try again")
            elif known is None:
                self._check_room()
                if _start(record) in self._deleting:
                    raise Busy(f"the snapshot {record.restore_from} is being deleted; choose another one, or try again")
                if problems := clashes(writes, self._taken()):
                    raise Refused(StatusCode.INVALID_ARGUMENT, "\n".join(problems))
        except (Refused, Busy) as error:
            answer.set_exception(error)
            return answer
        if known is not None:
            answer.set_result(known)
            return answer
        if running is not None:
            _follow(running.answer, answer)
            return answer
        self._open[key] = _Open(record, answer, writes)
        record = dataclasses.replace(record, token=self.term.token)
        written = self.term.workers.submit(key, partial(self._write, record, graph, check))
        written.add_done_callback(partial(self._written, record, answer))
        return answer

    def starting_from(self, metadata_file: str) -> str:
        """The job that is being submitted and starts from this snapshot; "" for none."""
        return next((key for key, open_ in self._open.items() if _start(open_.record) == metadata_file), "")

    def deleting(self, metadata_file: str, done: Future[None]) -> None:
        """No job may start from this snapshot until `done`: then it is deleted, or stays."""
        self._deleting.add(metadata_file)
        tell = self.term.services.actor.tell
        done.add_done_callback(lambda _: tell(partial(self._deleting.discard, metadata_file)))

    def _check_room(self) -> None:
        most = self.term.services.settings.max_jobs
        if len(self.term.jobs.keys() | self._open.keys()) >= most:
            raise Refused(
                StatusCode.RESOURCE_EXHAUSTED,
                f"{most} jobs have not ended, as many as coordinator.max_jobs allows; cancel one, or raise the limit",
            )

    def _taken(self) -> dict[str, tuple[Destination, ...]]:
        """The destinations of jobs that have not ended, including those that are being submitted."""
        found = {key: open_.writes for key, open_ in self._open.items()}
        for key, runner in self.term.jobs.items():
            known = runner.destinations
            found[key] = known if known is not None else _inline_destinations(runner.record)
        return found

    def _write(self, record: JobRecord, graph: bytes, check: Callable[[], str] | None) -> JobRecord | JobResult:
        """Called on a worker thread."""
        if check is not None:
            record = dataclasses.replace(record, restore_checksum=check())
        return self.term.persistence.submit(record, graph)

    def _written(
        self, record: JobRecord, answer: Future[SubmitResponse], written: Future[JobRecord | JobResult]
    ) -> None:
        """Called on the worker's thread."""
        error = written.exception()
        if error is None and self.term.services.actor.tell(partial(self._take, record, answer, written.result())):
            return
        self.term.services.actor.tell(partial(self._forget, record.job_key))
        answer.set_exception(
            error or Refused(StatusCode.UNAVAILABLE, "this coordinator is shutting down; submit again")
        )

    def _forget(self, key: str) -> None:
        self._open.pop(key, None)

    def _take(self, record: JobRecord, answer: Future[SubmitResponse], found: JobRecord | JobResult) -> None:
        self._forget(record.job_key)
        if found.run_id != record.run_id:
            try:
                answer.set_result(_same(found, record))
            except Refused as error:
                answer.set_exception(error)
            return
        if isinstance(found, JobRecord) and not self.term.fence.over.is_set():
            self.term.add(found, recovered=False).load(fresh=True)
            if found.graph_pointer:
                self.term.deletions.submit(found.job_key, partial(self.term.persistence.delete_unsubmitted, found))
        log.info("job %s submitted as run %s", record.job_key, record.run_id)
        answer.set_result(SubmitResponse(record.job_key, record.run_id, created=True))


def _inline_destinations(record: JobRecord) -> tuple[Destination, ...]:
    """The destinations of a job that is not loaded, from its record; none if the graph is in the storage."""
    try:
        return destinations(decode(JobGraph, record.graph))
    except MalformedMessage:
        return ()


def _same(found: JobRecord | JobResult, wanted: JobRecord) -> SubmitResponse:
    """The answer for an existing job. A request without a start matches any start: it may follow the job, or retry."""
    if found.graph_checksum != wanted.graph_checksum:
        raise other_job(found.job_key)
    if wanted.restore_from and _start(found) != _start(wanted):
        raise other_start(found.job_key, found.restore_from)
    return SubmitResponse(found.job_key, found.run_id, created=False)


def _start(record: JobRecord | JobResult) -> str:
    """The start in a normalized form, because a file has several names: path or URI, of the file or its folder."""
    return metadata_uri(record.restore_from) if record.restore_from else ""


def _follow(first: Future[SubmitResponse], second: Future[SubmitResponse]) -> None:
    def done(answer: Future[SubmitResponse]) -> None:
        error = answer.exception()
        if error is not None:
            second.set_exception(error)
        else:
            second.set_result(dataclasses.replace(answer.result(), created=False))

    first.add_done_callback(done)
