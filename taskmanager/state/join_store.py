"""The state of an interval join as a store: in memory, with snapshots that are always whole, a file for each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState, StateKind

from taskmanager.state import stored
from taskmanager.state.backend import SnapshotWriter, load
from taskmanager.state.buffered import FrozenRows
from taskmanager.state.interval_join import SIDES, JoinState, Paired, signature
from taskmanager.task.program import StateUnreadable


class JoinStore:
    """Home of a JoinState. Used from the subtask's own thread."""

    def __init__(self, operator_id: str, operator: IntervalJoin, max_parallelism: int, key_groups: range) -> None:
        """key_groups: those of the subtask."""
        self._operator_id = operator_id
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self._state = JoinState(operator, max_parallelism, key_groups)

    def __len__(self) -> int:
        return len(self._state)

    @property
    def held_back_ms(self) -> int:
        """How much older than the watermark the times of a pair may be."""
        return max(0, self._operator.upper_ms, -self._operator.lower_ms)

    def columns_of(self, side: JoinSide) -> pa.Schema | None:
        """What the rows of a side have, as they come; None while that is not known."""
        known = self._state.sides.get(side)
        return None if known is None else known.incoming

    def schema(self) -> pa.Schema | None:
        """See JoinState."""
        return self._state.schema()

    def accept(self, side: JoinSide, schema: pa.Schema) -> None:
        """See JoinState. Once for each side."""
        self._state.accept(side, schema)

    def merge(self, side: JoinSide, table: pa.Table) -> Paired:
        """See JoinState."""
        return self._state.merge(side, table)

    def advance(self, watermark_ms: int) -> None:
        """See JoinState."""
        self._state.advance(watermark_ms)

    def snapshot(self) -> tuple[FrozenJoinSide, ...]:
        """The sides that are known, as they are now. Microseconds."""
        frozen = self._state.freeze()
        return tuple(FrozenJoinSide(self._operator_id, side, rows) for side, rows in frozen.items())

    def restore(self, states: Sequence[OperatorState]) -> None:
        """What one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        found: dict[JoinSide, list[stored.Stored]] = {}
        for state in states:
            side, one = self._read(state)
            found.setdefault(side, []).append(one)
        for side, pieces in found.items():
            if any(one.schema != pieces[0].schema for one in pieces):
                raise StateUnreadable(
                    f"the state of operator {self._operator_id} has other columns in one subtask than another"
                )
            self._state.restore(side, pieces)

    def _read(self, state: OperatorState) -> tuple[JoinSide, stored.Stored]:
        handle = state.handle
        if handle is None:
            raise StateUnreadable(f"the state of operator {self._operator_id} is missing in the checkpoint")
        data, where = load(handle), handle.path or f"of operator {self._operator_id} inside the checkpoint"
        marks = {signature(self._operator, side): side for side in SIDES}
        mark = stored.mark(data, where)
        if mark not in marks:
            raise StateUnreadable(
                f"the state file {where} belongs to another operator: it has {mark}, the job now joins with "
                f"{next(iter(marks))}; keep keys, times and bounds as they were, or give the join another id"
            )
        wanted = self._key_groups
        read = stored.read(data, where, signature=mark, max_parallelism=self._max_parallelism, wanted=wanted)
        return marks[mark], read


@dataclass(frozen=True, slots=True)
class FrozenJoinSide:
    """See FrozenStore."""

    operator_id: str
    side: JoinSide
    rows: FrozenRows

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:  # noqa: ARG002
        """See FrozenStore."""
        handle = writer.store(f"{self.operator_id}-{self.side.name.lower()}", self.rows.to_buffer())
        return OperatorState(self.operator_id, StateKind.KEYED_STATE, handle)

    def release(self) -> None:
        """See FrozenStore. Nothing is kept for it: rows are only added, and never changed."""
