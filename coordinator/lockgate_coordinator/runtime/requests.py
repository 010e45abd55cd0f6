"""Pending requests of clients that a JobMaster answers later. Actor thread only."""

from __future__ import annotations

import dataclasses
import uuid
from concurrent.futures import Future
from typing import Any, TypeVar

from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_proto.messages import JobState, RescaleResponse

from lockgate_coordinator.job.effects import AnswerRescale, AnswerSavepoint
from lockgate_coordinator.runtime.errors import Busy

T = TypeVar("T")


class Requests:
    """The requests of one job. A future fails with Refused, Busy, or the error passed to `fail_all`."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Future[Any]]] = {}

    def add(self, answer: Future[Any], request_id: str = "") -> str:
        """Adds a request and returns its id: the client's own, if it has chosen one."""
        name = request_id or uuid.uuid4().hex
        self._waiting.setdefault(name, []).append(answer)
        return name

    def savepoint(self, effect: AnswerSavepoint) -> None:
        """Answers a savepoint request, if a client still waits for it."""
        for answer in self._waiting.pop(effect.request_id, ()):
            if effect.savepoint is not None:
                answer.set_result(dataclasses.replace(effect.savepoint, metadata=b""))
            elif effect.busy:
                answer.set_exception(Busy(effect.error))
            else:  # for a client this is final: a repeat would take another savepoint, or order the stop again
                answer.set_exception(Refused(StatusCode.ABORTED, effect.error or "the savepoint failed"))

    def rescale(self, effect: AnswerRescale) -> None:
        """The new parallelism is durable, or it was refused."""
        for answer in self._waiting.pop(effect.request_id, ()):
            if effect.busy:
                answer.set_exception(Busy(effect.error))
            elif effect.error:
                answer.set_exception(Refused(StatusCode.FAILED_PRECONDITION, effect.error))
            else:
                answer.set_result(RescaleResponse(effect.parallelism, effect.after))

    def fail_all(self, error: Exception) -> None:
        """Fails all requests."""
        waiting, self._waiting = self._waiting, {}
        for answers in waiting.values():
            for answer in answers:
                answer.set_exception(error)


def settle(answer: Future[JobState], written: Future[T], state: JobState) -> None:
    """Passes the outcome of a write on to a client: the state, or why it is not certain."""
    error = written.exception()
    if error is not None:
        answer.set_exception(error)
    else:
        answer.set_result(state)
