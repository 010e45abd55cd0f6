"""A keyed store with everything around it that decides what becomes of its snapshots, beside a model in plain dicts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from lockgate_coordinator.checkpoint.completed import CompletedCheckpoints
from lockgate_coordinator.checkpoint.handles import completed_handles
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    KeyedAggregate,
    OperatorState,
    StateBackend,
    SubtaskState,
)
from lockgate_taskmanager.state.backend import InlineBackend, load
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import FrozenStore, KeyedStore
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.job_folder import JobFolder

OPERATOR = KeyedAggregate(
    ("k",),
    (
        Aggregate("n", AggregateFunction.COUNT, ""),
        Aggregate("s", AggregateFunction.SUM, "v"),
        Aggregate("lo", AggregateFunction.MIN, "t"),
    ),
)
SCHEMA = pa.schema(
    [("k", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64()), ("__p1", pa.int64()), ("__p2", pa.string())]
)
GROUPS = 8
Row = tuple[str | None, int | None, str | None]
Content = dict[str | None, tuple[int, int | None, str | None]]


def hash_of(key: str | None) -> int:
    """Mixed, and with collisions: "a" and "aa" share theirs, and so do NULL and the empty string."""
    number = int(key[4:]) + 1000 if key and key.startswith("base") else sum(map(ord, set(key or "")))
    return (number * 0x9E3779B97F4A7C15) % 2**64 - 2**63


BASE: list[Row] = [(f"base{number}", number, f"some text of some length {number}") for number in range(400)]
"""Enough for increments to be worth it."""


def table(batch: list[Row]) -> pa.Table:
    """Rows as a partial table."""
    keys, values, texts = ([row[i] for row in batch] for i in range(3))
    hashes = [hash_of(key) for key in keys]
    arrays = [pa.array(c, f.type) for c, f in zip([keys, hashes, [1] * len(batch), values, texts], SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def folded(content: Content, batch: list[Row]) -> Content:
    """The model of a merge."""
    found = dict(content)
    for key, value, text in batch:
        count, total, lowest = found.get(key, (0, None, None))
        total = total if value is None else value + (total or 0)
        texts = [item for item in (lowest, text) if item is not None]
        found[key] = (count + 1, total, min(texts, key=lambda text: text.encode()) if texts else None)
    return found


def content_of(store: KeyedStore) -> Content:
    """What a store holds, read through a savepoint."""
    frozen = store.snapshot(SnapshotOrder(is_savepoint=True))
    state = frozen.persist(1, InlineBackend(1 << 30).writer(1))
    frozen.release()
    assert not state.increments
    assert state.handle is not None
    found = read(state)
    assert found.column("k").to_pylist() == list(dict.fromkeys(found.column("k").to_pylist()))
    return {row["k"]: (row["n#count"], row["s#sum"], row["lo#min"]) for row in found.to_pylist()}


def read(state: OperatorState) -> pa.Table:
    """The rows of a full snapshot in the format that every backend reads."""
    assert state.handle is not None
    stored = state_file.read(
        load(state.handle),
        "f",
        signature=state_file.signature(OPERATOR),
        max_parallelism=GROUPS,
        wanted=range(GROUPS),
    )
    return pa.Table.from_batches(stored.batches, stored.schema)


@dataclass
class UnderWay:
    """A checkpoint that is not settled."""

    number: int
    kind: CheckpointKind
    completed_id: int
    frozen: tuple[FrozenStore, ...]
    content: Content
    states: tuple[OperatorState, ...] = ()

    def release(self) -> None:
        for column in self.frozen:
            column.release()


class StoreWorld:
    """One subtask with one store, attempt after attempt; its coordinator keeps `retained` checkpoints."""

    def __init__(
        self,
        choice: StateBackend,
        retained: int = 1,
        make: Callable[[ScratchFolder], Any] | None = None,
        storage: str = "",
    ) -> None:
        """make: what makes the stores, StoreFactory unless given. storage: a folder of this machine unless given."""
        self.folder = Path(tempfile.mkdtemp(prefix="lockgate-store-world-"))
        self.snapshots = JobFolder(storage or str(self.folder / "storage"))
        self.spec = StoreSpec("count", OPERATOR, GROUPS, range(GROUPS))
        self.choice = choice
        scratch = ScratchFolder(self.folder / "work", "state-")
        self.make: Any = StoreFactory(choice, scratch) if make is None else make(scratch)
        self.retained = retained
        self.completed = CompletedCheckpoints(retained, (), None)
        self.contents: dict[int, Content] = {}  # by checkpoint, as it has to be
        self.metadata: dict[int, CheckpointMetadata] = {}
        self.under_way: list[UnderWay] = []
        self.attempt = 1
        self.number = 0
        self.heard = 0  # the newest completed checkpoint that the subtask knows
        self.content: Any = {}
        self.store: Any = self.make.fresh(self.spec, SCHEMA)

    def close(self) -> None:
        """Removes everything."""
        self.store.close()
        shutil.rmtree(self.folder)

    def merge(self, batch: list[Row]) -> None:
        """A micro-batch."""
        changed = self.store.merge(table(batch)).changed
        self.content = folded(self.content, batch)
        shown = {row["k"]: (row["n"], row["s"], row["lo"]) for row in changed.to_pylist()}
        assert len(shown) == changed.num_rows
        assert shown == {row[0]: self.content[row[0]] for row in batch}

    def trigger(self, kind: CheckpointKind = CheckpointKind.CHECKPOINT) -> None:
        """A barrier comes by."""
        self.number += 1
        completed_id = self.completed.newest_checkpoint_id
        order = SnapshotOrder(max(self.heard, completed_id) if completed_id else 0, kind is CheckpointKind.SAVEPOINT)
        self.under_way.append(UnderWay(self.number, kind, completed_id, self.frozen(order), self.content))

    def frozen(self, order: SnapshotOrder) -> tuple[FrozenStore, ...]:
        """What a snapshot consists of."""
        return (self.store.snapshot(order),)

    def upload(self, which: int) -> None:
        """The background thread gets round to one of them."""
        waiting = [snapshot for snapshot in self.under_way if not snapshot.states]
        if waiting:
            under_way = waiting[which % len(waiting)]
            writer = self.snapshots.writer(self.choice, under_way.number, attempt=self.attempt)
            under_way.states = tuple(frozen.persist(under_way.number, writer) for frozen in under_way.frozen)
            under_way.release()

    def complete(self, which: int, *, is_heard: bool) -> None:
        """One that is stored becomes complete; older ones are given up. is_heard: the subtask is notified."""
        ready = [item for item in self.under_way if item.states]
        if not ready:
            return
        snapshot = ready[which % len(ready)]
        subtasks = completed_handles((SubtaskState("count", 0, snapshot.states),), self.completed.bases())
        metadata = CheckpointMetadata(1, checkpoint_id=snapshot.number, kind=snapshot.kind, subtasks=subtasks)
        for other in [other for other in self.under_way if other.number <= snapshot.number]:
            self.under_way.remove(other)
            other.release()
            if other is not snapshot:
                self.snapshots.abort(other.number)
        self.metadata[snapshot.number] = self.snapshots.publish(metadata)
        assert self.snapshots.named(metadata) <= self.snapshots.names()
        self.completed.add(CompletedCheckpoint(snapshot.number, kind=snapshot.kind), metadata)
        self.contents[snapshot.number] = snapshot.content
        needed_from = min((other.completed_id for other in self.under_way), default=None)
        for gone in self.completed.take_subsumed(needed_from):
            self.snapshots.discard(gone.checkpoint.checkpoint_id, gone.free)
        if is_heard and snapshot.kind is CheckpointKind.CHECKPOINT:
            self.heard = max(self.heard, snapshot.number)

    def abort(self, which: int) -> None:
        """One is given up; its upload may come later still."""
        if self.under_way:
            snapshot = self.under_way.pop(which % len(self.under_way))
            snapshot.release()
            self.snapshots.abort(snapshot.number)

    def restart(self, older: int = 0) -> None:
        """The next attempt starts from the newest completed one. older: or from this one, after which none came."""
        for snapshot in self.under_way:
            snapshot.release()
            self.snapshots.abort(snapshot.number)
        self.under_way = []
        self.store.close()
        self.attempt += 1
        self.heard = 0
        if older:
            retained = (CompletedCheckpoint(older),)
            self.completed = CompletedCheckpoints(self.retained, retained, self.metadata[older])
        newest = self.completed.newest
        if newest is None:
            self.store, self.content = self.make.fresh(self.spec, SCHEMA), {}
        else:
            self.store = self.restored(newest.checkpoint_id)
            self.content = self.contents[newest.checkpoint_id]

    def restored(self, number: int, groups: range | None = None) -> Any:
        """A new store out of a kept checkpoint. groups: its key groups, None for all."""
        spec = self.spec if groups is None else StoreSpec("count", OPERATOR, GROUPS, groups)
        return self.make.restored(spec, self.metadata[number].subtasks[0].operators, number)

    def check(self) -> None:
        """Every kept checkpoint can be restored and is what it was, and nothing else is left when all is settled."""
        for checkpoint in self.completed.all():
            store = self.restored(checkpoint.checkpoint_id)
            try:
                assert content_of(store) == self.contents[checkpoint.checkpoint_id]
            finally:
                store.close()

    def named(self) -> set[str]:
        """The files of all kept checkpoints."""
        found: set[str] = set()
        for checkpoint in self.completed.all():
            found |= self.snapshots.named(self.metadata[checkpoint.checkpoint_id])
        return found
