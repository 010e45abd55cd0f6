"""Who waits for a savepoint, or another snapshot of their own, that has not begun."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from lockgate_proto.messages import CheckpointKind

from coordinator.checkpoint.final import Purpose

MAX_QUEUED = 16


@dataclass(frozen=True, slots=True)
class Waiting:
    """One request. deadline_ms: for all of it, the time in the queue included. ends_for: see SavepointRequested."""

    request_id: str
    deadline_ms: int
    kind: CheckpointKind
    ends_for: Purpose | None = None


class SavepointQueue:
    """Of one job. First come, first served."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def is_full(self) -> bool:
        """No more may be added."""
        return len(self._waiting) >= MAX_QUEUED

    def holds(self, request_id: str) -> bool:
        """It waits already."""
        return any(waiting.request_id == request_id for waiting in self._waiting)

    def clients(self) -> tuple[str, ...]:
        """Ids of the requests that are not the JobMaster's own."""
        return tuple(waiting.request_id for waiting in self._waiting if waiting.ends_for is None)

    def add(self, waiting: Waiting) -> None:
        """Behind the others."""
        self._waiting.append(waiting)

    def put_back(self, waiting: Waiting) -> None:
        """Before the others: it was taken, and has not begun after all."""
        self._waiting.appendleft(waiting)

    def take(self) -> Waiting | None:
        """The next one, None when the queue is empty."""
        return self._waiting.popleft() if self._waiting else None

    def take_all(self) -> tuple[Waiting, ...]:
        """Everybody, in order."""
        return self._leave(())

    def take_late(self, now_ms: int) -> tuple[Waiting, ...]:
        """Those whose time is over."""
        return self._leave(waiting for waiting in self._waiting if now_ms < waiting.deadline_ms)

    def drop_final(self) -> None:
        """The snapshot after which an attempt was to end is not wanted any more."""
        self._leave(waiting for waiting in self._waiting if waiting.ends_for is None)

    def next_deadline_ms(self) -> int | None:
        """When take_late will first have something."""
        return min((waiting.deadline_ms for waiting in self._waiting), default=None)

    def _leave(self, staying: Iterable[Waiting]) -> tuple[Waiting, ...]:
        before, self._waiting = self._waiting, deque(staying)
        return tuple(waiting for waiting in before if waiting not in self._waiting)
