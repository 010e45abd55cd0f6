"""Interval joins on every home of their rows, and what waits in one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState, RocksdbBackend, StateBackend
from lockgate_taskmanager.state.backend import InlineBackend, load, make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.join.interval_join import JoinStore
from lockgate_taskmanager.state.join.join_spec import SIDES, JoinSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotOrder

ROCKSDB = StateBackend(RocksdbBackend(memory_bytes=16 << 20))
MEMORY = StateBackend()
HOMES = {"memory": MEMORY, "rocksdb": ROCKSDB}


class JoinFolder:
    """A folder of a test with the joins that work in it. `close` removes it all."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lockgate-joins-")
        self.path = Path(self._folder.name)
        self.scratch = ScratchFolder(self.path / "work", "state-")
        self._made: list[JoinStore] = []

    def store(
        self, choice: StateBackend, operator: IntervalJoin, max_parallelism: int, groups: range | None = None
    ) -> JoinStore:
        """An empty one."""
        groups = range(max_parallelism) if groups is None else groups
        spec = JoinSpec("join", operator, max_parallelism, groups)
        self._made.append(StoreFactory(choice, self.scratch).join(spec))
        return self._made[-1]

    def stored(
        self, choice: StateBackend, store: JoinStore, number: int, order: SnapshotOrder = BY_ITSELF
    ) -> tuple[OperatorState, ...]:
        """A snapshot of a store, where its backend puts it."""
        frozen = store.snapshot(order)
        writer = make_backend(choice, str(self.path / "storage"), f"a{id(store)}-join-0").writer(number)
        states = tuple(column.persist(number, writer) for column in frozen)
        for column in frozen:
            column.release()
        return states

    def close(self) -> None:
        """Closes every store and deletes the folder."""
        for join_store in self._made:
            join_store.close()
        self.scratch.close()
        self._folder.cleanup()


@contextmanager
def join_folder() -> Iterator[JoinFolder]:
    """Closed in the end."""
    made = JoinFolder()
    try:
        yield made
    finally:
        made.close()


def waiting(store: JoinStore) -> dict[JoinSide, pa.Table]:
    """The rows that wait, read through a savepoint, with `__hash` and `__event_time`; sides that are known."""
    found = {}
    frozen = store.snapshot(SnapshotOrder(is_savepoint=True))
    for column in frozen:
        state = column.persist(1, InlineBackend(1 << 30).writer(1))
        column.release()
        assert state.handle is not None
        assert not state.increments
        side = next(side for side in SIDES if side.name.lower() == state.handle.name)
        found[side] = pa.ipc.open_file(load(state.handle)).read_all().replace_schema_metadata(None)
    return found


def count_of(store: JoinStore) -> int:
    """How many rows wait."""
    return sum(table.num_rows for table in waiting(store).values())
