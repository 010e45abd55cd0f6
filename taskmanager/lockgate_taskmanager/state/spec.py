"""The identity of an operator's state: how a snapshot is matched to its operator, and how it is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from lockgate_proto.messages import EarlyFiringWindow, KeyedAggregate, SessionWindow, StateHandle, TriggeredWindow

from lockgate_taskmanager.state.about import About, Ahead
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.increments import latest
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.layout import PANE, SESSION_END, with_bounds, with_pending
from lockgate_taskmanager.task.program import StateUnreadable
from lockgate_taskmanager.task.watermarks import MIN_WATERMARK


class StateSpec:
    """State of one operator in one subtask. key_groups: those of the subtask.

    databases: how many such states share the memory that an operator's databases may use.
    """

    __slots__ = ()
    databases: ClassVar[int] = 1
    operator_id: str
    max_parallelism: int
    key_groups: range

    @property
    def signature(self) -> str:
        """Identifies the state: equal signatures mean equal columns."""
        raise NotImplementedError

    def about(
        self,
        schema: pa.Schema,
        watermark: int = MIN_WATERMARK,
        purged_until: int = MIN_WATERMARK,
        ahead: tuple[Ahead, ...] = (),
        gone: tuple[Ahead, ...] = (),
    ) -> About:
        """The header of a snapshot. schema: of the tables that the state folds."""
        mine = (self.signature, self.max_parallelism, self.key_groups)
        return About(schema, *mine, watermark, purged_until, ahead, gone)

    def clock(self, lateness_ms: int = 0) -> EventClock:
        """A new event clock. lateness_ms: as in EventClock."""
        return EventClock(self.max_parallelism, self.key_groups, lateness_ms)

    def latest(self, chain: Sequence[Stored]) -> Stored:
        """A full snapshot merged with its increments. Raises StateUnreadable."""
        raise NotImplementedError

    def rows(self, chain: Sequence[Stored]) -> Iterable[pa.RecordBatch]:
        """The rows of a full snapshot merged with its increments. Raises StateUnreadable."""
        return self.latest(chain).batches

    def require_like(self, first: pa.Schema, other: pa.Schema) -> None:
        """Raises StateUnreadable when the states of two subtasks cannot be combined."""

    def where(self, handle: StateHandle) -> str:
        """Names a stored piece in messages."""
        return handle.path or f"of operator {self.operator_id} inside the checkpoint"

    def read(self, data: pa.Buffer, where: str) -> Stored:
        """The rows of this subtask's key groups in a snapshot file. Raises StateUnreadable."""
        mine = self.signature
        return state_file.read(
            data, where, signature=mine, max_parallelism=self.max_parallelism, wanted=self.key_groups
        )

    def other_columns(self) -> StateUnreadable:
        """The error for subtasks that have stored different columns."""
        return StateUnreadable(
            f"the state of operator {self.operator_id} has other columns in one subtask than another"
        )


@dataclass(frozen=True, slots=True)
class StoreSpec(StateSpec):
    """Of aggregates by key."""

    operator_id: str
    aggregation: KeyedAggregate
    max_parallelism: int
    key_groups: range

    @property
    def is_session(self) -> bool:
        """Whether the windows are sessions."""
        window = self.aggregation.window
        return window is not None and isinstance(window.kind, SessionWindow)

    @property
    def trigger(self) -> TriggeredWindow | EarlyFiringWindow | None:
        """The windows, if they also fire early."""
        kind = None if self.aggregation.window is None else self.aggregation.window.kind
        return kind if isinstance(kind, TriggeredWindow | EarlyFiringWindow) else None

    @property
    def stored(self) -> KeyedAggregate:
        """With the aggregates of a row: those of the results, and behind them those that the windows need."""
        if self.is_session:
            return with_bounds(self.aggregation)
        return self.aggregation if self.trigger is None else with_pending(self.aggregation)

    @property
    def signature(self) -> str:
        return state_file.signature(self.aggregation)

    def latest(self, chain: Sequence[Stored]) -> Stored:
        keys = len(self.aggregation.keys)
        if self.aggregation.window is None:
            return latest(chain, keys)
        return latest(chain, keys, SESSION_END) if self.is_session else latest(chain, keys + 1, PANE)
