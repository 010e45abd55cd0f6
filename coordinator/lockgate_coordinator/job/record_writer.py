"""Writes one record at a time, with retries after failures and pauses while ZooKeeper is suspended.

idle --want--> WANTED --due--> WRITING --written--> idle
                 ^                |
                 +-----failed-----+      drop: from anywhere to idle
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from lockgate_common.story import Story
from lockgate_proto.messages import AttemptRecord

from lockgate_coordinator.job.effects import PersistAttempt, PersistOrders, PersistResult
from lockgate_coordinator.job.events import AttemptPersisted, PersistFailed, PersistKind

RETRY_MS = 1_000
Record = PersistAttempt | PersistResult | PersistOrders
_RECORDS: Mapping[PersistKind, type[Record]] = {
    PersistKind.ATTEMPT: PersistAttempt,
    PersistKind.RESULT: PersistResult,
    PersistKind.ORDERS: PersistOrders,
}


class WriterState(Enum):
    """The states in the drawing above."""

    IDLE = "IDLE"
    WANTED = "WANTED"
    WRITING = "WRITING"


ALLOWED: Mapping[WriterState, frozenset[WriterState]] = {
    WriterState.IDLE: frozenset({WriterState.WANTED, WriterState.IDLE}),
    WriterState.WANTED: frozenset({WriterState.WRITING, WriterState.IDLE}),
    WriterState.WRITING: frozenset({WriterState.WANTED, WriterState.IDLE}),
}


class RecordWriter:
    """Writes attempt records and results, or (another instance) orders. Starts no write while suspended."""

    def __init__(self, job_key: str) -> None:
        self._story = Story(f"records of job {job_key}")
        self._state = WriterState.IDLE
        self._wanted: Record | None = None
        self._not_before_ms = 0
        self._suspended = False
        self.trouble = ""  # why the record is not written yet

    @property
    def wanted(self) -> Record | None:
        """The record that is not known to be written."""
        return self._wanted

    def want(self, effect: Record, now_ms: int) -> None:
        """Sets the next record to write; the writer must be idle."""
        self._wanted = effect
        self._not_before_ms = now_ms
        self._move(WriterState.WANTED, now_ms)

    def due(self, now_ms: int) -> list[Record]:
        """The effect to carry out now, if any."""
        if self._state is not WriterState.WANTED or self._wanted is None:
            return []
        if self._suspended or now_ms < self._not_before_ms:
            return []
        self._move(WriterState.WRITING, now_ms)
        return [self._wanted]

    def failed(self, event: PersistFailed, now_ms: int) -> None:
        """The record was certainly not written: tries again after a pause, if it is still wanted."""
        if self._state is WriterState.WRITING and isinstance(self._wanted, _RECORDS[event.kind]):
            self.trouble = f"the {event.kind.value} record could not be written, next try soon: {event.reason}"
            self._not_before_ms = now_ms + RETRY_MS
            self._move(WriterState.WANTED, now_ms)

    def written(self, event: AttemptPersisted) -> AttemptRecord | None:
        """The record that was written, if it is still wanted."""
        wanted = self._wanted
        return wanted.record if isinstance(wanted, PersistAttempt) and wanted.record.attempt == event.attempt else None

    def drop(self, now_ms: int) -> None:
        """The record is written, or not wanted any more."""
        self._wanted, self.trouble = None, ""
        self._move(WriterState.IDLE, now_ms)

    def suspend(self, suspended: bool, now_ms: int) -> None:
        """ZooKeeper has become unreachable, or reachable again; then the wanted record is due at once."""
        self._suspended = suspended
        if not suspended:
            self._not_before_ms = min(self._not_before_ms, now_ms)

    def next_wake_ms(self) -> int | None:
        """When something will be due."""
        return self._not_before_ms if self._state is WriterState.WANTED and not self._suspended else None

    def _move(self, state: WriterState, now_ms: int) -> None:
        self._state = self._story.move(ALLOWED, self._state, state, now_ms)
