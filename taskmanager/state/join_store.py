"""The state of an interval join as a store: who pairs with whom, and where the rows wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from lockgate_proto.messages import JoinSide, OperatorState, RocksdbBackend, StateBackend

from taskmanager.state import rocksdb
from taskmanager.state.interval_join import JoinState, Paired
from taskmanager.state.join_heap import JoinHeap
from taskmanager.state.join_home import JoinHome, JoinSpec
from taskmanager.state.scratch import ScratchFolder
from taskmanager.state.store import FrozenStore
from taskmanager.task.program import SnapshotOrder


@dataclass(frozen=True, slots=True)
class JoinStores:
    """Makes the stores of one program: the choice that a job graph makes. scratch: where databases are kept."""

    choice: StateBackend
    scratch: ScratchFolder

    def fresh(self, spec: JoinSpec) -> JoinStore:
        """An empty one. Raises UserError when the backend is not installed."""
        backend = self.choice.backend
        if isinstance(backend, RocksdbBackend):
            rocksdb.require()
            from taskmanager.state.join_rocks import JoinRocks

            return JoinStore(spec, JoinRocks(spec, self.scratch.new_path, rocksdb.memory_bytes(backend)))
        return JoinStore(spec, JoinHeap(spec, self.choice.full_every))


class JoinStore:
    """Home of a JoinState. Used from the subtask's own thread."""

    def __init__(self, spec: JoinSpec, home: JoinHome) -> None:
        self._operator = spec.operator
        self._home = home
        self._state = JoinState(spec.operator, spec.max_parallelism, spec.key_groups, home.fresh)

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

    def snapshot(self, order: SnapshotOrder) -> tuple[FrozenStore, ...]:
        """The sides that are known, as they are now; to be stored in this order. Raises OSError."""
        return self._home.snapshot(order, self._state.abouts())

    def restore(self, states: Sequence[OperatorState], checkpoint_id: int) -> None:
        """What one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        self._state.restore(self._home.restored(states, checkpoint_id))

    def close(self) -> None:
        """Lets go of memory and scratch files. Idempotent."""
        self._home.close()
