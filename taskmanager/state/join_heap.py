"""The rows of an interval join in memory, with snapshots like keyed state, a chain for each side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from lockgate_proto.messages import JoinSide, OperatorState

from taskmanager.state import rocksdb, stored
from taskmanager.state.arrays import numpy_of
from taskmanager.state.backend import load
from taskmanager.state.buffered import BufferedRows, FrozenRows
from taskmanager.state.chains import Chains
from taskmanager.state.heap import FrozenHeap, frozen_heap, handles_of, require_like, take_up
from taskmanager.state.increments import only_added
from taskmanager.state.interval_join import SIDES
from taskmanager.state.join_home import JoinSpec
from taskmanager.state.layout import EVENT_TIME, HASH
from taskmanager.state.waiting import RestoredSide, columns_of
from taskmanager.task.program import SnapshotOrder, StateUnreadable


class JoinHeap:
    """See JoinHome."""

    def __init__(self, spec: JoinSpec, full_every: int = 1) -> None:
        """full_every: see Chains."""
        self.sides: dict[JoinSide, BufferedRows] = {}
        self._spec = spec
        self._chains = {side: Chains(full_every) for side in SIDES}

    def fresh(self, side: JoinSide, schema: pa.Schema) -> BufferedRows:
        """See JoinHome."""
        is_tracked = self._chains[side].is_incremental
        self.sides[side] = BufferedRows(schema, self._spec.span_ms, is_tracked=is_tracked)
        return self.sides[side]

    def snapshot(self, order: SnapshotOrder, sides: Mapping[JoinSide, stored.About]) -> tuple[FrozenHeap, ...]:
        """See JoinHome. Microseconds."""
        frozen = [(side, self.sides[side].freeze(about)) for side, about in sides.items()]
        return tuple(
            replace(
                frozen_heap(self._spec.operator_id, one, self._chains[side], order),
                piece=side.name.lower(),
                besides=partial(_full_bytes, [later for _, later in frozen[number + 1 :]]),
            )
            for number, (side, one) in enumerate(frozen)
        )

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> Sequence[RestoredSide]:
        """See JoinHome."""
        rocksdb.refuse(self._spec.operator_id, states)
        found: dict[JoinSide, list[tuple[OperatorState, list[stored.Stored]]]] = {}
        for state in states:
            side, chain = self._read(state)
            found.setdefault(side, []).append((state, chain))
        return [self._restored(side, mine, checkpoint_id) for side, mine in found.items()]

    def close(self) -> None:
        """See JoinHome. There is nothing but memory."""

    def _restored(
        self, side: JoinSide, mine: Sequence[tuple[OperatorState, list[stored.Stored]]], checkpoint_id: int
    ) -> RestoredSide:
        chains = [chain for _, chain in mine]
        require_like(self._spec.operator_id, chains)
        incoming = chains[0][0].partial_schema
        schema = columns_of(incoming)
        rows = self.fresh(side, schema)
        for chain in chains:
            table = pa.Table.from_batches(only_added(chain, EVENT_TIME), chain[0].schema)
            for batch in table.combine_chunks().to_batches():
                hashes, times = (numpy_of(batch, name) for name in (HASH, EVENT_TIME))
                rows.add(batch.select(schema.names), hashes, times)
        rows.restored()
        take_up(self._chains[side], checkpoint_id, [state for state, _ in mine], chains, self._spec.key_groups)
        return RestoredSide(side, incoming, rows, [chain[-1] for chain in chains])

    def _read(self, state: OperatorState) -> tuple[JoinSide, list[stored.Stored]]:
        """The pieces of one side."""
        if state.handle is None:
            raise StateUnreadable(f"the state of operator {self._spec.operator_id} is missing in the checkpoint")
        pieces = [(load(handle), self._spec.where(handle)) for handle in handles_of(state)]
        data, where = pieces[0]
        side = self._spec.side_of(stored.mark(data, where), where)
        return side, [self._spec.read(data, side, where) for data, where in pieces]


def _full_bytes(sides: Sequence[FrozenRows]) -> int:
    return sum(one.to_buffer().size for one in sides)
