"""Deletes savepoints, and retained checkpoints of jobs that have ended. Actor thread only."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_proto.messages import CheckpointKind, CompletedCheckpoint, JobResult

from lockgate_coordinator.runtime.dispatcher import writable
from lockgate_coordinator.runtime.errors import Busy
from lockgate_coordinator.runtime.metadata_files import metadata_uri
from lockgate_coordinator.runtime.submissions import Submissions
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_coordinator.runtime.views import not_read


def dispose(
    submissions: Submissions, key: str, checkpoint_id: int, retained: Sequence[CompletedCheckpoint] | None
) -> Future[None] | None:
    """Begins the deletion; None when there is nothing to delete. retained: of an ended job, None for a running one.

    Raises Refused when the snapshot may not be deleted, Busy.
    """
    term = submissions.term
    writable(term)
    runner = term.jobs.get(key)
    if runner is None and retained is None:
        raise Busy(f"job {key} has just ended; dispose of its savepoint again")
    found = runner.checkpoints().all() if runner is not None else retained or ()
    savepoint = next((checkpoint for checkpoint in found if checkpoint.checkpoint_id == checkpoint_id), None)
    if savepoint is None:
        return None
    if runner is not None and savepoint.kind is not CheckpointKind.SAVEPOINT:
        text = f"{checkpoint_id} of job {key} is a checkpoint, which is deleted automatically while the job runs"
        raise Refused(StatusCode.INVALID_ARGUMENT, text)
    pointer = metadata_uri(savepoint.pointer)
    if starting := submissions.starting_from(pointer):
        raise Busy(f"job {starting}, which is being submitted, starts from this savepoint; try again later")
    _require_unused(term, pointer)
    if runner is not None and savepoint == found[0]:
        text = f"savepoint {checkpoint_id} is the newest snapshot of job {key}, which would be restored after a failure"
        raise Refused(StatusCode.FAILED_PRECONDITION, f"{text}; try again after its next checkpoint")
    done = _dispose_retained(term, key, savepoint) if runner is None else runner.dispose(savepoint)
    submissions.deleting(pointer, done)
    return done


def _require_unused(term: LeaderTerm, pointer: str) -> None:
    """Raises Refused if a job started from it and has no own snapshot, or Busy if that is not known yet."""
    for other in term.jobs.values():
        if not other.is_read:  # it may start from this savepoint
            raise not_read(other.key, other.trouble)
        start = other.record.restore_from
        if start and metadata_uri(start) == pointer and not other.checkpoints().all():
            text = f"job {other.key} starts from this savepoint and has no checkpoint of its own yet; try again later"
            raise Refused(StatusCode.FAILED_PRECONDITION, text)


def _dispose_retained(term: LeaderTerm, key: str, savepoint: CompletedCheckpoint) -> Future[None]:
    answer: Future[None] = Future()

    def done(work: Future[JobResult]) -> None:
        error = work.exception()
        if error is not None:
            answer.set_exception(error)
            return
        term.services.actor.tell(partial(term.results.__setitem__, key, work.result()))
        answer.set_result(None)

    work = term.deletions.submit(key, partial(term.removals.dispose_retained, key, savepoint))
    work.add_done_callback(done)
    return answer
