"""Rows by key against plain dicts: what is found and due at any time, and what snapshots restore, on every backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import OperatorState, StateBackend
from lockgate_taskmanager.state.backend import InlineBackend, load
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.rows import row_database, row_heap, row_store
from lockgate_taskmanager.state.rows.row_store import NEVER, Keys, Rows, RowSpec, RowStore, distinct
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder

from tests.property.taskmanager.state.store_world import GROUPS, StoreWorld, hash_of
from tests.property.taskmanager.state.test_store_histories import BACKENDS, perform

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), (HASH, pa.int64())])
SPEC = RowSpec("rows", "test", ("k",), GROUPS, range(GROUPS))
Row = tuple[bytes, int, int, int]  # payload, event, wall, expiry
Content = dict[str | None, Row]
BASE = {f"base{n}": (f"some text of some length {n}".encode(), NEVER, NEVER, NEVER) for n in range(400)}


def keys_of(names: list[str | None]) -> Keys:
    table = pa.table([names, [0] * len(names), [hash_of(name) for name in names]], schema=SCHEMA)
    keys, numbers = distinct(table, ("k",))
    assert sorted(numbers) == list(range(len(names)))
    return keys


def put(store: RowStore, changes: dict[str | None, Row | None]) -> None:
    keys = keys_of(list(changes))
    found = [changes[name] or (None, NEVER, NEVER, NEVER) for name in keys.columns.column("k").to_pylist()]
    payloads = pa.array([item[0] for item in found], pa.binary())
    store.put(keys, Rows(payloads, *(np.array([item[at] for item in found], np.int64) for at in (1, 2, 3))))


def content_of(store: RowStore) -> Content:
    """What a store holds, read through a savepoint."""
    frozen = store.snapshot(SnapshotOrder(is_savepoint=True))
    state = frozen.persist(1, InlineBackend(1 << 30).writer(1))
    frozen.release()
    assert state.handle is not None
    found: Content = {}
    for batch in SPEC.read(load(state.handle), "f").batches:
        keys, rows = row_heap.split(batch, 1)
        times = (part.tolist() for part in (rows.event, rows.wall, rows.expiry))
        for name, *row in zip(keys.columns.column("k").to_pylist(), rows.payloads.to_pylist(), *times, strict=True):
            assert name not in found
            found[name] = tuple(row)
    return found


class Maker:
    """StoreFactory as StoreWorld knows makers."""

    def __init__(self, choice: StateBackend, scratch: ScratchFolder) -> None:
        self.stores = StoreFactory(choice, scratch)

    def fresh(self, _spec: object, _schema: object) -> RowStore:
        return self.stores.fresh(SPEC, SCHEMA)

    def restored(self, spec: Any, states: tuple[OperatorState, ...], number: int) -> RowStore:
        mine = RowSpec("rows", "test", ("k",), GROUPS, spec.key_groups)
        return self.stores.restored(mine, states, number)


class RowWorld(StoreWorld):
    """Stores of rows with deadlines. now: the wall clock; event: the watermark; both only rise, also over restarts."""

    def __init__(self, choice: StateBackend, retained: int = 1) -> None:
        super().__init__(choice, retained, lambda scratch: Maker(choice, scratch))
        self.now = self.event = 0

    def put(self, changes: dict[str | None, Row | None]) -> None:
        """Visited keys."""
        put(self.store, changes)
        self.content = {name: row for name, row in {**self.content, **changes}.items() if row is not None}

    def pass_time(self, event: int, wall: int) -> None:
        """Both clocks go on: those that are due are visited, and lose what was due."""
        self.event, self.now = self.event + event, self.now + wall
        self.store.clock.advance(self.event)
        wanted = {
            name: row[0]
            for name, row in self.content.items()
            if (row[1] <= self.event or row[2] <= self.now) and row[3] > self.now
        }
        if wanted:
            assert self.store.next_due(self.event) <= self.now
        seen: dict[str | None, bytes] = {}
        for keys, payloads in self.store.due(self.event, self.now):
            found = dict(zip(keys.columns.column("k").to_pylist(), payloads.to_pylist(), strict=True))
            assert len(found) == len(keys) <= row_store.KEYS_AT_ONCE
            assert not found.keys() & seen.keys()
            seen |= found
            self.put({name: (row, self.later(name, 1, self.event), self.later(name, 2, self.now), NEVER)
                      for name, row in found.items()})  # fmt: skip
        assert seen == wanted

    def later(self, name: str | None, at: int, now: int) -> int:
        """The time of a row unless it has passed."""
        return NEVER if self.content[name][at] <= now else self.content[name][at]

    def expire(self) -> None:
        """What is over is forgotten."""
        self.store.expire(self.now)
        self.content = {name: row for name, row in self.content.items() if row[3] > self.now}

    def find(self, names: list[str | None]) -> None:
        """Nothing that is over is ever found."""
        if names:
            keys = keys_of(names)
            found = self.store.find(keys, self.now).to_pylist()
            for name, payload in zip(keys.columns.column("k").to_pylist(), found, strict=True):
                row = self.content.get(name)
                assert payload == (row[0] if row is not None and row[3] > self.now else None)

    def check(self) -> None:
        for checkpoint in self.completed.all():
            store: Any = self.restored(checkpoint.checkpoint_id)
            try:
                assert content_of(store) == self.contents[checkpoint.checkpoint_id]
            finally:
                store.close()


names = st.one_of(st.none(), st.text("abc", max_size=2))
times = st.one_of(st.just(NEVER), st.integers(-50, 2000))
changed = st.one_of(st.none(), st.tuples(st.binary(max_size=5), times, times, times))
which = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("put"), st.dictionaries(names, changed, min_size=1, max_size=4)),
    st.tuples(st.just("put"), st.dictionaries(names, changed, min_size=1, max_size=4)),
    st.tuples(st.just("pass_time"), st.integers(0, 300), st.integers(0, 300)),
    st.tuples(st.just("expire")),
    st.tuples(st.just("find"), st.lists(names, unique=True, max_size=4)),
    st.tuples(st.just("trigger")),
    st.tuples(st.just("upload"), which),
    st.tuples(st.just("complete"), which, st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("lost"), st.booleans()),
    st.tuples(st.just("restart")),
)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=25), st.sampled_from([1, 2, row_store.KEYS_AT_ONCE]))
def test_rows_are_returned_as_put_and_due_at_their_time(
    backend: str, plan: list[tuple[Any, ...]], keys_at_once: int
) -> None:
    world = RowWorld(BACKENDS[backend], 2)
    patch = pytest.MonkeyPatch()
    for module in (row_store, row_heap, row_database):
        patch.setattr(module, "KEYS_AT_ONCE", keys_at_once)
    try:
        world.put(dict(BASE))
        for step in plan:
            perform(world, step)
        assert content_of(world.store) == world.content
        world.check()
        world.restart()
        assert content_of(world.store) == world.content
        world.pass_time(1, 1)
    finally:
        patch.undo()
        world.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_timers_move_with_their_keys(backend: str) -> None:
    """A rescale 2 -> 3 -> 1: every timer is due in one subtask, at its time."""
    world = RowWorld(BACKENDS[backend])
    try:
        world.put({f"k{n}": (b"x", n, 1000 - n, NEVER) for n in range(200)})
        world.store.clock.advance(7)
        perform(world, ("checkpoint", True))
        due: list[str] = []
        stores = [world.restored(1, part) for part in (range(3), range(3, 4), range(4, GROUPS))]
        for part, store in zip((range(3), range(3, 4), range(4, GROUPS)), stores, strict=True):
            assert store.clock.now == 7
            mine = [name for keys, _ in store.due(9, 500) for name in keys.columns.column("k").to_pylist()]
            assert {hash_of(name) % GROUPS for name in mine} <= set(part)
            due += mine
            store.close()
        assert sorted(due) == sorted(f"k{n}" for n in range(200) if n <= 9 or 1000 - n <= 500)
    finally:
        world.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_forgotten_long_ago_are_neither_stored_nor_restored(backend: str) -> None:
    """Ten thousand rows come and go between checkpoints: places move together, increments stay right."""
    world = RowWorld(BACKENDS[backend])
    try:
        world.put(dict(BASE))
        perform(world, ("checkpoint", True))
        for turn in range(3):
            gone: dict[str | None, Row | None] = {f"base9{turn}{n}": (b"y", NEVER, NEVER, 5) for n in range(5000)}
            world.put(gone)
            world.put({f"base{turn}": None})
            world.now = 5
            world.expire()
            perform(world, ("checkpoint", True))
            world.check()
        world.restart()
        assert content_of(world.store) == world.content
        assert set(world.content) == set(BASE) - {"base0", "base1", "base2"}
    finally:
        world.close()
