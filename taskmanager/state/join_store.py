"""The state of an interval join as a store: in memory, with snapshots like keyed state, a chain for each side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState

from taskmanager.state import stored
from taskmanager.state.backend import load
from taskmanager.state.buffered import FrozenRows
from taskmanager.state.chains import Chains
from taskmanager.state.heap import FrozenHeap, frozen_heap, handles_of, require_like, take_up
from taskmanager.state.increments import latest_in_time
from taskmanager.state.interval_join import SIDES, JoinState, Paired, signature
from taskmanager.state.layout import EVENT_TIME
from taskmanager.task.program import SnapshotOrder, StateUnreadable


class JoinStore:
    """Home of a JoinState. Used from the subtask's own thread."""

    def __init__(
        self, operator_id: str, operator: IntervalJoin, max_parallelism: int, key_groups: range, full_every: int = 1
    ) -> None:
        """key_groups: those of the subtask; full_every: see Chains."""
        self._operator_id = operator_id
        self._operator = operator
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self._chains = {side: Chains(full_every) for side in SIDES}
        is_tracked = self._chains[JoinSide.LEFT].is_incremental
        self._state = JoinState(operator, max_parallelism, key_groups, is_tracked=is_tracked)

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

    def snapshot(self, order: SnapshotOrder) -> tuple[FrozenHeap, ...]:
        """The sides that are known, as they are now; to be stored in this order. Microseconds."""
        frozen = self._state.freeze()
        sides = list(frozen)
        return tuple(
            replace(
                frozen_heap(self._operator_id, frozen[side], self._chains[side], order),
                piece=side.name.lower(),
                besides=partial(_full_bytes, [frozen[one] for one in sides[number + 1 :]]),
            )
            for number, side in enumerate(sides)
        )

    def restore(self, states: Sequence[OperatorState], checkpoint_id: int) -> None:
        """What one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        found: dict[JoinSide, list[tuple[OperatorState, list[stored.Stored]]]] = {}
        for state in states:
            side, chain = self._read(state)
            found.setdefault(side, []).append((state, chain))
        for side, mine in found.items():
            chains = [chain for _, chain in mine]
            require_like(self._operator_id, chains)
            self._state.restore(side, [latest_in_time(chain, None, EVENT_TIME) for chain in chains])
            take_up(self._chains[side], checkpoint_id, [state for state, _ in mine], chains, self._key_groups)

    def _read(self, state: OperatorState) -> tuple[JoinSide, list[stored.Stored]]:
        """The pieces of one side."""
        if state.handle is None:
            raise StateUnreadable(f"the state of operator {self._operator_id} is missing in the checkpoint")
        pieces = [
            (load(handle), handle.path or f"of operator {self._operator_id} inside the checkpoint")
            for handle in handles_of(state)
        ]
        side = self._side_of(*pieces[0])
        mark, wanted = signature(self._operator, side), self._key_groups
        read = partial(stored.read, signature=mark, max_parallelism=self._max_parallelism, wanted=wanted)
        return side, [read(data, where) for data, where in pieces]

    def _side_of(self, data: pa.Buffer, where: str) -> JoinSide:
        marks = {signature(self._operator, side): side for side in SIDES}
        mark = stored.mark(data, where)
        if mark not in marks:
            raise StateUnreadable(
                f"the state file {where} belongs to another operator: it has {mark}, the job now joins with "
                f"{next(iter(marks))}; keep keys, times and bounds as they were, or give the join another id"
            )
        return marks[mark]


def _full_bytes(sides: Sequence[FrozenRows]) -> int:
    return sum(one.to_buffer().size for one in sides)
