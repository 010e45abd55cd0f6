"""The identity of an interval join's state, and the side to which a stored piece belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import pyarrow as pa
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState, StateKind

from lockgate_taskmanager.state.backend import load
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.increments import only_added
from lockgate_taskmanager.state.layout import EVENT_TIME
from lockgate_taskmanager.state.rocksdb.frozen_database import mark
from lockgate_taskmanager.state.spec import StateSpec
from lockgate_taskmanager.task.program import StateUnreadable

SIDES = (JoinSide.LEFT, JoinSide.RIGHT)


class SpanSpec(StateSpec):
    """Of rows that are only added, are found by key and span of time, and are dropped as event time advances."""

    __slots__ = ()

    @property
    def span_ms(self) -> int:
        """Length of a span."""
        raise NotImplementedError

    @property
    def offset_ms(self) -> int:
        """A time at which a span begins."""
        return 0

    @property
    def piece(self) -> str:
        """Names the snapshots among the operator's, if it has several."""
        return ""

    def latest(self, chain: Sequence[state_file.Stored]) -> state_file.Stored:
        return replace(chain[-1], schema=chain[0].schema, batches=tuple(self.rows(chain)), is_increment=False)

    def rows(self, chain: Sequence[state_file.Stored]) -> Iterator[pa.RecordBatch]:
        return only_added(chain, EVENT_TIME)

    def require_like(self, first: pa.Schema, other: pa.Schema) -> None:
        if first != other:
            raise self.other_columns()


@dataclass(frozen=True, slots=True)
class JoinSpec:
    """Whose state it is. key_groups: those of the subtask."""

    operator_id: str
    operator: IntervalJoin
    max_parallelism: int
    key_groups: range

    @property
    def span_ms(self) -> int:
        """Length of the time range of a row's partners, both ends included."""
        return self.operator.upper_ms - self.operator.lower_ms + 1

    def side_of(self, mark: str, where: str) -> JoinSide:
        """The side with that signature. where: names the file. Raises StateUnreadable when neither side has it."""
        marks = {signature(self.operator, side): side for side in SIDES}
        if mark not in marks:
            raise StateUnreadable(
                f"the state file {where} belongs to another operator: it has {mark}, the job now joins with "
                f"{next(iter(marks))}; keep keys, times and bounds as they were, or give the join another id"
            )
        return marks[mark]

    def of(self, side: JoinSide) -> SideSpec:
        """Of one side alone."""
        return SideSpec(self.operator_id, self.max_parallelism, self.key_groups, self, side)

    def by_side(self, states: Sequence[OperatorState]) -> dict[JoinSide, list[OperatorState]]:
        """The stored states of each side. Raises StateUnreadable when one belongs to neither side, OSError."""
        found: dict[JoinSide, list[OperatorState]] = {}
        for state in states:
            found.setdefault(self._side(state), []).append(state)
        return found

    def _side(self, state: OperatorState) -> JoinSide:
        if state.handle is None:
            raise StateUnreadable(f"the state of operator {self.operator_id} is missing in the checkpoint")
        where = self.of(SIDES[0]).where(state.handle)
        if state.kind is StateKind.ROCKSDB_STATE:
            return self.side_of(mark(state), where)
        for side in SIDES:  # without reading a file that may be larger than memory
            if state.handle.name == side.name.lower():
                return side
        return self.side_of(state_file.mark(load(state.handle), where), where)


@dataclass(frozen=True, slots=True)
class SideSpec(SpanSpec):
    """Of one side of an interval join."""

    operator_id: str
    max_parallelism: int
    key_groups: range
    join: JoinSpec
    side: JoinSide
    databases: ClassVar[int] = 2

    @property
    def signature(self) -> str:
        return signature(self.join.operator, self.side)

    @property
    def span_ms(self) -> int:
        return self.join.span_ms

    @property
    def piece(self) -> str:
        """Names the side's snapshots among the operator's."""
        return self.side.name.lower()

    def read(self, data: pa.Buffer, where: str) -> state_file.Stored:
        if self.join.side_of(state_file.mark(data, where), where) is not self.side:
            raise StateUnreadable(f"the state file {where} is of the other side of the join; restore another one")
        return StateSpec.read(self, data, where)


def signature(operator: IntervalJoin, side: JoinSide) -> str:
    """Says what state belongs to; the prefixes may change."""
    return json.dumps({"join": side.name, **asdict(replace(operator, left_prefix="", right_prefix=""))})
