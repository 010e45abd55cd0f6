"""Where the rows of an interval join wait: what every home can do, whether it is in memory or in databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState, StateHandle

from taskmanager.state import stored
from taskmanager.state.interval_join import SIDES, signature
from taskmanager.state.store import FrozenStore
from taskmanager.state.waiting import RestoredSide, WaitingRows
from taskmanager.task.program import SnapshotOrder, StateUnreadable


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Whose state it is. key_groups: those of the subtask."""

    operator_id: str
    operator: IntervalJoin
    max_parallelism: int
    key_groups: range

    @property
    def span_ms(self) -> int:
        """How long the times are in which a row's partners lie, both ends included."""
        return self.operator.upper_ms - self.operator.lower_ms + 1

    def side_of(self, mark: str, where: str) -> JoinSide:
        """Which side stored that signature. where: names the file. Raises StateUnreadable where none of this join."""
        marks = {signature(self.operator, side): side for side in SIDES}
        if mark not in marks:
            raise StateUnreadable(
                f"the state file {where} belongs to another operator: it has {mark}, the job now joins with "
                f"{next(iter(marks))}; keep keys, times and bounds as they were, or give the join another id"
            )
        return marks[mark]

    def where(self, handle: StateHandle) -> str:
        """The name of a file in messages."""
        return handle.path or f"of operator {self.operator_id} inside the checkpoint"

    def read(self, data: pa.Buffer, side: JoinSide, where: str) -> stored.Stored:
        """A snapshot file of a side. Raises StateUnreadable."""
        mark = signature(self.operator, side)
        groups = self.key_groups
        return stored.read(data, where, signature=mark, max_parallelism=self.max_parallelism, wanted=groups)

    def other_columns(self) -> StateUnreadable:
        """The error for subtasks that have stored different columns."""
        return StateUnreadable(
            f"the state of operator {self.operator_id} has other columns in one subtask than another"
        )


class JoinHome(Protocol):
    """The rows of both sides."""

    def fresh(self, side: JoinSide, schema: pa.Schema) -> WaitingRows:
        """Room for a side. schema: of the rows. Raises UserError when a type cannot be kept, OSError."""
        ...

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> Sequence[RestoredSide]:
        """What one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        ...

    def snapshot(self, order: SnapshotOrder, sides: Mapping[JoinSide, stored.About]) -> tuple[FrozenStore, ...]:
        """These sides as they are now; to be stored in this order. Rows at or before `purged_until` are left out."""
        ...

    def close(self) -> None:
        """Lets go of memory and scratch files. Idempotent."""
        ...
