"""Stores of keyed state in every backend, with their snapshots on a local disk or in another storage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    FilesystemBackend,
    KeyedAggregate,
    MemoryBackend,
    OperatorState,
    RocksdbBackend,
    StateBackend,
)
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import KeyedStore
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.job_folder import JobFolder

BACKENDS = {
    "memory": StateBackend(MemoryBackend()),
    "filesystem": StateBackend(FilesystemBackend()),
    "filesystem, incremental": StateBackend(FilesystemBackend(), full_every=3),
    "filesystem, diffs": StateBackend(FilesystemBackend(), full_every=3, binary_diff=True),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}
COUNT, SUM, MIN, MAX, AVG = (AggregateFunction(number) for number in (1, 2, 3, 4, 5))
SAVEPOINT = SnapshotOrder(is_savepoint=True)
GROUPS = 16


class TestingBackend:
    """Makes stores of one backend."""

    def __init__(self, choice: StateBackend, folder: Path, storage: str = "") -> None:
        """folder: on this machine. storage: where snapshots go, in the folder unless given."""
        self.choice, self.folder = choice, folder
        self.snapshots = JobFolder(storage or str(folder / "storage"))
        self.scratch = ScratchFolder(folder / "work", "state-")
        self.maker = StoreFactory(choice, self.scratch)
        self.made: list[KeyedStore] = []

    def spec(self, operator: KeyedAggregate, groups: range = range(GROUPS)) -> StoreSpec:
        return StoreSpec("op", operator, GROUPS, groups)

    def fresh(self, operator: KeyedAggregate, schema: pa.Schema, groups: range = range(GROUPS)) -> KeyedStore:
        self.made.append(self.maker.fresh(self.spec(operator, groups), schema))
        return self.made[-1]

    def restored(
        self, operator: KeyedAggregate, *states: OperatorState, groups: range = range(GROUPS), number: int = 1
    ) -> KeyedStore:
        self.made.append(self.maker.restored(self.spec(operator, groups), states, number))
        return self.made[-1]

    def stored(
        self, store: KeyedStore, number: int = 1, order: SnapshotOrder = SAVEPOINT, part: int = 0
    ) -> OperatorState:
        frozen = store.snapshot(order)
        state = frozen.persist(number, self.snapshots.writer(self.choice, number, part))
        frozen.release()
        return state

    def close(self) -> None:
        for store in self.made:
            store.close()
        self.scratch.close()


def partial(types: dict[str, pa.DataType], rows: list[tuple[Any, ...]], keys: int = 1) -> pa.Table:
    """Rows of keys, hash and parts; each stands for one record."""
    names = list(types)
    schema = pa.schema(
        [*((name, types[name]) for name in names[:keys]), ("__hash", pa.int64()), ("__rows", pa.int64())]
        + [(name, types[name]) for name in names[keys:]]
    )
    arrays = [pa.array([row[i] for row in rows], types[names[i]]) for i in range(keys)]
    arrays += [pa.array([row[keys] for row in rows], pa.int64()), pa.array([1] * len(rows), pa.int64())]
    arrays += [pa.array([row[keys + 1 + i] for row in rows], types[name]) for i, name in enumerate(names[keys:])]
    return pa.Table.from_arrays(arrays, schema=schema)


SUMS = KeyedAggregate(("k",), (Aggregate("n", COUNT), Aggregate("total", SUM, "v")))
TYPES = {"k": pa.string(), "__p1": pa.int64()}


def sums(*rows: tuple[str | None, int, int | None]) -> pa.Table:
    return partial(TYPES, list(rows))


def counted(store: KeyedStore, *keys: tuple[str | None, int]) -> dict[str | None, tuple[int, int | None]]:
    """The values of keys, by way of a merge that adds one record without a value to each."""
    changed = store.merge(sums(*((key, hash_, None) for key, hash_ in keys))).changed
    return {row["k"]: (row["n"] - 1, row["total"]) for row in changed.to_pylist()}
