"""The queue of requests for savepoints and other snapshots that have not begun; also between two attempts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lockgate_proto.messages import CheckpointKind

from lockgate_coordinator.checkpoint.effects import AnswerSavepoint, CheckpointEffect
from lockgate_coordinator.checkpoint.final import Purpose

MAX_QUEUED = 16
MAX_SAVEPOINTS = 1_000
"""Of one job: each is a record that every new leader reads, and a part of the job's result."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request. deadline_ms: for all of it, the time in the queue included.

    ends_for, may_overtake: see SavepointRequested.
    """

    request_id: str
    deadline_ms: int
    kind: CheckpointKind
    ends_for: Purpose | None = None
    may_overtake: bool = False


class SavepointQueue:
    """Of one job. First come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether as many wait as may; there is room again once one of them is taken."""
        return len(self._waiting) >= MAX_QUEUED

    def refusal(self, kept: int) -> str:
        """Why no more may be added, a sentence; "" when it may. kept: number of the job's savepoints."""
        if self.is_full:
            return f"{MAX_QUEUED} savepoints of this job are waiting already; try again later."
        if kept >= MAX_SAVEPOINTS:
            return (
                f"The job has {kept} savepoints, the limit is {MAX_SAVEPOINTS}: dispose of some with "
                f"`lockgate savepoint dispose`."
            )
        return ""

    def holds(self, request_id: str) -> bool:
        """Whether the request is already queued."""
        return any(waiting.request_id == request_id for waiting in self._waiting)

    def clients(self) -> tuple[str, ...]:
        """Ids of the requests that are not the JobMaster's own."""
        return tuple(waiting.request_id for waiting in self._waiting if waiting.ends_for is None)

    def add(self, waiting: Waiting) -> None:
        """Adds a request at the end."""
        self._waiting.append(waiting)

    def put_back(self, waiting: Waiting) -> None:
        """Returns a request to the front: it was taken, but has not begun."""
        self._waiting.appendleft(waiting)

    def take(self) -> Waiting | None:
        """Takes the next request, None when the queue is empty."""
        return self._waiting.popleft() if self._waiting else None

    def take_all(self) -> tuple[Waiting, ...]:
        """Takes all requests, in order."""
        return self._leave(())

    def take_late(self, now_ms: int) -> tuple[Waiting, ...]:
        """Takes the requests that have expired."""
        return self._leave(waiting for waiting in self._waiting if now_ms < waiting.deadline_ms)

    def take_final(self) -> tuple[Waiting, ...]:
        """Takes the requests that were to end an attempt. The others wait for the next attempt."""
        return self._leave([waiting for waiting in self._waiting if waiting.ends_for is None])

    def next_deadline_ms(self) -> int | None:
        """The earliest deadline."""
        return min((waiting.deadline_ms for waiting in self._waiting), default=None)

    def _leave(self, staying: Iterable[Waiting]) -> tuple[Waiting, ...]:
        before, self._waiting = self._waiting, deque(staying)
        return tuple(waiting for waiting in before if waiting not in self._waiting)


def refused(requests: Iterable[Waiting], reason: str) -> list[CheckpointEffect]:
    """The answers to accepted requests for which no savepoint will be taken."""
    return [AnswerSavepoint(waiting.request_id, error=f"No savepoint: {reason}") for waiting in requests]
