"""The checkpoints of one job that are in progress, and whether another may begin beside them."""

from __future__ import annotations

from collections.abc import Iterator

from lockgate_proto.messages import CheckpointKind

from lockgate_coordinator.checkpoint.pending import PendingCheckpoint, PendingState

_MAY_EXPIRE = (PendingState.RESERVING, PendingState.COLLECTING)


class CheckpointsUnderWay:
    """Oldest first. They may be removed while they are iterated over."""

    def __init__(self) -> None:
        self._pending: list[PendingCheckpoint] = []

    def __iter__(self) -> Iterator[PendingCheckpoint]:
        return iter(tuple(self._pending))

    def add(self, pending: PendingCheckpoint) -> None:
        """It has begun."""
        self._pending.append(pending)

    def remove(self, pending: PendingCheckpoint) -> None:
        """It is completed or aborted."""
        self._pending.remove(pending)

    def find(self, checkpoint_id: int, state: PendingState | None = None) -> PendingCheckpoint | None:
        """The one with this id, if it is in this state."""
        for pending in self._pending:
            if pending.checkpoint_id == checkpoint_id:
                return pending if state in (None, pending.state) else None
        return None

    def first(self, state: PendingState) -> PendingCheckpoint | None:
        """The oldest in this state."""
        for pending in self._pending:
            if pending.state is state:
                return pending
        return None

    @property
    def has_request(self) -> bool:
        """A client, or the end of the job, waits for one of them."""
        return any(pending.request_id is not None or pending.terminal for pending in self._pending)

    @property
    def oldest_base(self) -> int | None:
        """The lowest id of a completed checkpoint that one of them may build on; 0: of none."""
        return min((pending.completed_id for pending in self._pending), default=None)

    def answers(self, request_id: str) -> bool:
        """One of them is taken for this request."""
        return any(pending.request_id == request_id for pending in self._pending)

    def leave_room(self, most: int) -> bool:
        """Another may begin, `most` in all: not beside a savepoint or the terminal one, nor while an id is written."""
        for pending in self._pending:
            is_exclusive = pending.terminal or pending.kind is CheckpointKind.SAVEPOINT
            if is_exclusive or pending.state is PendingState.RESERVING:
                return False
        return len(self._pending) < most

    def late(self, now_ms: int) -> list[PendingCheckpoint]:
        """Those that have expired."""
        return [
            pending
            for pending in self._pending
            if pending.deadline_ms is not None and now_ms >= pending.deadline_ms and pending.state in _MAY_EXPIRE
        ]

    def to_switch(self, now_ms: int) -> list[PendingCheckpoint]:
        """Aligned ones that have taken too long and are to become unaligned."""
        return [
            pending
            for pending in self._pending
            if pending.turn_at_ms is not None
            and now_ms >= pending.turn_at_ms
            and pending.state is PendingState.COLLECTING
        ]

    def next_wake_ms(self) -> int | None:
        """When `late` or `to_switch` will first have something."""
        times: list[int] = []
        for pending in self._pending:
            if pending.state in _MAY_EXPIRE:
                times += [at_ms for at_ms in (pending.deadline_ms, pending.turn_at_ms) if at_ms is not None]
        return min(times, default=None)
