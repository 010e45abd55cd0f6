"""What clients read of checkpoints: the state of keys, the offsets of sources, and what became of the newest ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_proto import messages as m

from lockgate_coordinator.checkpoint.history import CheckpointHistory
from lockgate_coordinator.job.redistribute import SourceStateUnreadable, source_state
from lockgate_coordinator.runtime.dispatcher import Dispatcher
from lockgate_coordinator.runtime.errors import Busy, StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_coordinator.runtime.rpc_server import UnaryCall
from lockgate_coordinator.runtime.state_queries import is_file_missing
from lockgate_coordinator.runtime.term import LeaderTerm

MOST_KEYS = 1_000
MOST_KEY_BYTES = 256 << 10
_WAIT_S = 60.0
_TRIES = 5
_LATE = "the state was not read in time; try again"

_SMALL_BYTES = 16 << 10  # of an answer that is encoded on the loop

Retained = Callable[[str], Sequence[m.CompletedCheckpoint]]
_Asked = tuple[m.CompletedCheckpoint, m.CompletedCheckpoint, Future[m.StateAnswer]]
"""The checkpoint that the request means, the one that answers, and the answer."""


@dataclass(frozen=True, slots=True)
class CheckpointReads:
    """retained: a job's completed checkpoints, running or ended, newest first; raises Refused for an unknown job."""

    dispatcher: Dispatcher
    files: MetadataFiles
    retained: Retained

    async def query(self, request: m.QueryStateRequest, call: UnaryCall) -> m.QueryStateResponse:
        """The state of some keys, all as of one checkpoint. On the loop. Raises Refused, Busy.

        The newest checkpoint may be subsumed while it is read for the first time: then the next one is. So may an
        earlier one that has answered so far because it was open.
        """
        _check(request)
        for _ in range(_TRIES):
            named, checkpoint, asked = await self._asked(request, call)
            answer = await call.outcome(asked, _LATE, _WAIT_S)
            if answer.outcome is m.QueryOutcome.ANSWERED:
                call.is_large = sum(len(value.key) + len(value.value) for value in answer.values) > _SMALL_BYTES
                return m.QueryStateResponse(checkpoint.checkpoint_id, answer.values)
            if answer.outcome is m.QueryOutcome.TRY_AGAIN:
                raise Busy(answer.problem)
            if not is_file_missing(answer):
                is_wrong = answer.outcome is m.QueryOutcome.NOT_ANSWERABLE
                code = StatusCode.INVALID_ARGUMENT if is_wrong else StatusCode.FAILED_PRECONDITION
                raise Refused(code, answer.problem)
            kept = await call.work(lambda: self.retained(request.job_key))
            if checkpoint == named and _is_among(checkpoint, kept):
                raise Refused(StatusCode.FAILED_PRECONDITION, _missing(checkpoint, answer.problem))
            if request.checkpoint_id:
                raise _no_such(request, kept)
        raise Busy("each checkpoint was deleted before it was read; try again, or retain more of them")

    async def _asked(self, request: m.QueryStateRequest, call: UnaryCall) -> _Asked:
        """Asks a task manager. For a running job this is one visit to the actor. Raises Refused."""

        def ask(term: LeaderTerm, found: Sequence[m.CompletedCheckpoint]) -> _Asked:
            named, is_newest = _named(request, found), not request.checkpoint_id
            return named, *term.query(request.job_key, named, request.operators, is_newest=is_newest)

        def ask_running(term: LeaderTerm) -> _Asked | None:
            found = retained_by_running(term, request.job_key)
            return None if found is None else ask(term, found)

        asked = await self.dispatcher.called(ask_running, call.thread, here=True)
        if asked is None:
            ended = await call.work(lambda: self.retained(request.job_key))
            asked = await self.dispatcher.called(lambda term: ask(term, ended), call.thread, here=True)
        return asked

    def offsets(self, job_key: str) -> tuple[m.CheckpointOffsets, ...]:
        """Where the sources were at the barrier of each retained checkpoint. One deleted meanwhile is left out."""
        return tuple(self._offsets(job_key))

    def _offsets(self, job_key: str) -> Iterator[m.CheckpointOffsets]:
        for checkpoint in self.retained(job_key):
            try:
                metadata = self.files.read(checkpoint.pointer, checkpoint.checksum)
                yield m.CheckpointOffsets(checkpoint.checkpoint_id, tuple(_sources(metadata)))
            except StorageError as error:
                if error.retryable:
                    raise
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise Refused(StatusCode.FAILED_PRECONDITION, str(error)) from error
                if _is_among(checkpoint, self.retained(job_key)):
                    raise Refused(StatusCode.FAILED_PRECONDITION, _missing(checkpoint, str(error))) from error
            except SourceStateUnreadable as error:
                raise Refused(StatusCode.FAILED_PRECONDITION, str(error)) from error


def retained_by_running(term: LeaderTerm, job_key: str) -> tuple[m.CompletedCheckpoint, ...] | None:
    """The completed checkpoints of a job, newest first; None when it does not run."""
    runner = term.jobs.get(job_key)
    return None if runner is None else runner.checkpoints().all()


def outcomes(
    term: LeaderTerm, job_key: str, retained: Sequence[m.CompletedCheckpoint]
) -> tuple[m.CheckpointOutcome, ...]:
    """What became of a job's newest checkpoints, as far as this leader has seen it. retained: those that exist."""
    if (runner := term.jobs.get(job_key)) is not None:
        known = runner.checkpoints()
        return known.history.outcomes(known.all())
    ended = term.ended.get(job_key)
    return ended.outcomes(retained) if ended is not None else CheckpointHistory().outcomes(retained)


def _sources(metadata: m.CheckpointMetadata) -> Iterator[m.SourceOffsets]:
    for subtask in metadata.subtasks:
        for state in subtask.operators:
            if state.kind is m.StateKind.SOURCE_STATE:
                splits = source_state(state, f"{subtask.vertex_id}-{subtask.subtask}").splits
                files = tuple(handle.path for handle in state.files)
                yield m.SourceOffsets(state.operator_id, subtask.subtask, splits, files)


def _check(request: m.QueryStateRequest) -> None:
    """Raises Refused for a request that is none, or too large."""
    keys = [key for operator in request.operators for key in operator.keys]
    if not keys or not all(operator.operator_id and operator.keys for operator in request.operators):
        raise Refused(StatusCode.INVALID_ARGUMENT, "the request needs an operator and a key, or several of them")
    if len(keys) > MOST_KEYS or sum(len(key.encode()) for key in keys) > MOST_KEY_BYTES:
        text = f"a request may have {MOST_KEYS} keys of {MOST_KEY_BYTES >> 10} KiB in all; ask for fewer at a time"
        raise Refused(StatusCode.INVALID_ARGUMENT, text)


def _named(request: m.QueryStateRequest, found: Sequence[m.CompletedCheckpoint]) -> m.CompletedCheckpoint:
    """The checkpoint that is asked for. found: those of the job, newest first. Raises Refused."""
    if not found:
        raise Refused(
            StatusCode.FAILED_PRECONDITION,
            f"job {request.job_key} has no completed checkpoint: a running job may have one soon, and one that has"
            " ended keeps its savepoints, and its last checkpoint if the job asks for that",
        )
    if not request.checkpoint_id:
        return found[0]
    for checkpoint in found:
        if checkpoint.checkpoint_id == request.checkpoint_id:
            return checkpoint
    raise _no_such(request, found)


def _is_among(checkpoint: m.CompletedCheckpoint, kept: Sequence[m.CompletedCheckpoint]) -> bool:
    """Whether it is still retained: its files are deleted only afterwards."""
    return any(each.pointer == checkpoint.pointer for each in kept)


def _missing(checkpoint: m.CompletedCheckpoint, problem: str) -> str:
    return (
        f"checkpoint {checkpoint.checkpoint_id} is kept, but a file of it is missing: {problem}; check that the"
        " storage is there, and ask for another checkpoint if the file is lost"
    )


def _no_such(request: m.QueryStateRequest, found: Sequence[m.CompletedCheckpoint]) -> Refused:
    there = ", ".join(str(checkpoint.checkpoint_id) for checkpoint in found[:10]) or "none"
    text = (
        f"job {request.job_key} has no checkpoint {request.checkpoint_id}, or no longer: there are {there}; a savepoint"
        " stays until it is disposed of"
    )
    return Refused(StatusCode.FAILED_PRECONDITION, text)  # NOT_FOUND is an unknown job
