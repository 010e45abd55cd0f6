"""Increments that hold differences, against plain dicts: checkpoints that complete or not, restores, rescaling."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import (
    CheckpointKind,
    FilesystemBackend,
    MemoryBackend,
    OperatorState,
    RocksdbBackend,
    StateBackend,
    StateHandle,
)
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.format.difference import LEAST_BYTES
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.state.rows.row_store import NEVER, RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable

from tests.property.taskmanager.state.rows.test_row_histories import Content, RowWorld, content_of, put
from tests.property.taskmanager.state.store_world import GROUPS, hash_of
from tests.property.taskmanager.state.test_store_histories import perform

BACKENDS = {
    "filesystem": StateBackend(FilesystemBackend(), full_every=6, binary_diff=True),
    "memory": StateBackend(MemoryBackend(1 << 20), full_every=4, binary_diff=True),
    "memory, little room": StateBackend(MemoryBackend(30_000), full_every=8, binary_diff=True),
}
NAMES = [None, "", "a", "aa", "b", "base1"]  # with collisions, see hash_of


def noise(seed: object, size: int = 3 * LEAST_BYTES) -> bytes:
    return random.Random(repr(seed)).randbytes(size)


BASE: Content = {name: (noise(name), NEVER, NEVER, NEVER) for name in NAMES}


class DiffWorld(RowWorld):
    """Rows whose payloads are worth a difference."""

    def edit(self, names: list[str | None], at: int, fresh: bytes) -> None:
        """A few bytes of some payloads become others; a key that is not there gets a payload."""
        changes: Any = {}
        for name in names:
            payload, *times = self.content.get(name) or BASE[name]
            at %= len(payload) + 1
            changes[name] = (payload[:at] + fresh + payload[at + len(fresh) :], *times)
        self.put(changes)

    def replace(self, name: str | None, size: int) -> None:
        """Another payload altogether."""
        self.put({name: (noise(size, size), NEVER, NEVER, NEVER)})

    def forget(self, name: str | None) -> None:
        self.put({name: None})

    def kinds(self, number: int) -> list[str]:
        """What the pieces of a kept checkpoint are."""
        return [kind_of(handle) for handle in handles_of(self.metadata[number].subtasks[0].operators[0])]


def kind_of(handle: StateHandle) -> str:
    if handle.diff_values:
        return f"{handle.diff_values} diffs"
    return "whole"


chosen = st.sampled_from(NAMES)
few = st.lists(chosen, min_size=1, max_size=len(NAMES), unique=True)
which = st.integers(0, 3)
edit = st.tuples(st.just("edit"), few, st.integers(0, 1 << 20), st.binary(min_size=1, max_size=30))
steps = st.one_of(
    edit,
    edit,
    st.tuples(st.just("replace"), chosen, st.integers(0, 4 * LEAST_BYTES)),
    st.tuples(st.just("forget"), chosen),
    st.tuples(st.just("trigger"), st.sampled_from([CheckpointKind.CHECKPOINT] * 4 + [CheckpointKind.SAVEPOINT])),
    st.tuples(st.just("upload"), which),
    st.tuples(st.just("complete"), which, st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("lost"), st.booleans()),
    st.tuples(st.just("abort"), which),
    st.tuples(st.just("restart")),
)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(st.lists(steps, max_size=30), st.integers(0, GROUPS))
def test_kept_checkpoints_restore_independently_of_others(
    backend: str, plan: list[tuple[Any, ...]], split: int
) -> None:
    world = DiffWorld(BACKENDS[backend], 2)
    try:
        world.put(dict(BASE))
        for step in plan:
            perform(world, step)
        assert content_of(world.store) == world.content
        world.check()
        perform(world, ("checkpoint", True))
        kept = world.metadata[world.completed.all()[0].checkpoint_id]
        found: Content = {}
        for groups in (range(split), range(split, GROUPS)):
            store: Any = world.restored(kept.checkpoint_id, groups)
            part = content_of(store)
            assert {hash_of(name) % GROUPS for name in part} <= set(groups)
            found |= part
            store.close()
        assert found == world.content
    finally:
        world.close()


@pytest.mark.parametrize("backend", ["filesystem", "memory"])
def test_few_changed_bytes_in_every_key_are_stored_as_differences(backend: str) -> None:
    world = DiffWorld(BACKENDS[backend])
    try:
        world.put(dict(BASE))
        perform(world, ("checkpoint", True))
        world.edit(list(NAMES), 500, b"first")
        perform(world, ("checkpoint", True))
        world.edit(["a", "b"], 900, b"second")
        world.replace("aa", 2 * LEAST_BYTES)
        world.replace("base1", 100)
        world.forget("")
        perform(world, ("checkpoint", True))
        assert world.kinds(3) == ["whole", f"{len(NAMES)} diffs", "2 diffs"]
        full, first, second = handles_of(world.metadata[3].subtasks[0].operators[0])
        assert first.size_bytes < full.size_bytes / 4
        assert first.diff_saved_bytes > 0.9 * len(NAMES) * 3 * LEAST_BYTES
        assert second.diff_saved_bytes > 0.9 * 2 * 3 * LEAST_BYTES
        world.check()
        world.restart()
        assert content_of(world.store) == world.content
        world.edit(["a", "base1"], 10, b"third")  # of what was restored; 100 bytes stay whole
        perform(world, ("checkpoint", True))
        assert world.kinds(4)[3:] == ["1 diffs"]
        world.check()
    finally:
        world.close()


def test_a_difference_builds_on_the_completed_checkpoint_and_not_on_a_later_one() -> None:
    """Between the two one was stored and given up, one was never stored, and one was acknowledged too late."""
    world = DiffWorld(BACKENDS["filesystem"])
    try:
        world.put(dict(BASE))
        perform(world, ("checkpoint", True))
        world.edit(list(NAMES), 100, b"given up")
        perform(world, ("lost", True))
        world.edit(["a", "aa"], 200, b"given up, too")
        perform(world, ("lost", False))
        world.edit(["a"], 300, b"late")
        world.trigger()
        world.edit(["a", "b"], 400, b"in time")
        world.trigger()
        world.upload(1)
        world.upload(0)
        world.complete(1, is_heard=True)
        assert world.kinds(5) == ["whole", f"{len(NAMES)} diffs"]
        world.check()
        world.trigger(CheckpointKind.SAVEPOINT)
        world.edit(["b"], 200, b"behind the savepoint")
        world.trigger()
        for _ in range(2):
            world.upload(0)
        world.complete(0, is_heard=True)
        world.complete(0, is_heard=True)
        assert world.kinds(6) == ["whole"], "savepoints are whole"
        assert world.kinds(7) == ["whole", f"{len(NAMES)} diffs", "1 diffs"]
        world.check()
    finally:
        world.close()


def test_when_the_base_was_kept_for_too_many_checkpoints_the_next_one_is_whole() -> None:
    world = DiffWorld(BACKENDS["filesystem"])
    try:
        world.put(dict(BASE))
        perform(world, ("checkpoint", True))
        for number in range(3):
            world.edit(list(NAMES), 100 * number, b"given up")
            perform(world, ("lost", True))
        perform(world, ("checkpoint", True))
        assert world.kinds(5) == ["whole"]
        world.edit(["a"], 1, b"again")
        perform(world, ("checkpoint", True))
        assert world.kinds(6) == ["whole", "1 diffs"]
        world.check()
    finally:
        world.close()


def test_differences_are_read_at_any_parallelism_and_made_there() -> None:
    """2 -> 1 and 1 -> 2 out of chains, and every other home of rows reads them."""
    world = DiffWorld(BACKENDS["filesystem"])
    stores: list[Any] = []
    try:
        world.put(dict(BASE))
        content: dict[Any, Any] = dict(BASE)
        perform(world, ("checkpoint", True))
        world.edit(list(NAMES), 7, b"one")
        perform(world, ("checkpoint", True))
        halves = (range(3), range(3, GROUPS))
        stores = [world.restored(2, half) for half in halves]
        states: dict[int, OperatorState] = {}
        for turn in (3, 4, 5):
            for number, store in enumerate(stores):
                part: Any = content_of(store)
                content |= part
                put(
                    store,
                    {name: (row[0][:turn] + b"more" + row[0][turn + 4 :], *row[1:]) for name, row in part.items()},
                )
                frozen = store.snapshot(SnapshotOrder(0 if turn == 3 else turn - 1))
                writer = make_backend(world.choice, str(world.folder), f"a1-rows-{number}").writer(turn)
                states[number] = frozen.persist(turn, writer)
                frozen.release()
        content = {name: row for store in stores for name, row in content_of(store).items()}
        assert content.keys() == BASE.keys()
        assert all(kind_of(increment).endswith("diffs") for state in states.values() for increment in state.increments)
        assert [len(state.increments) for state in states.values()] == [2, 2]
        spec = RowSpec("rows", "test", ("k",), GROUPS, range(GROUPS))
        for choice in (
            world.choice,
            StateBackend(MemoryBackend()),
            StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
        ):
            makers = StoreFactory(choice, ScratchFolder(world.folder / "other", "state-"))
            stores.append(makers.restored(spec, tuple(states.values()), 5))
            assert content_of(stores[-1]) == content
    finally:
        for store in stores:
            store.close()
        world.close()


def two_chains(world: DiffWorld) -> tuple[OperatorState, OperatorState]:
    """The same keys in other states: chains of a whole snapshot and one of differences."""
    found = []
    for turn in (1, 2):
        world.put({name: (noise((turn, name)), NEVER, NEVER, NEVER) for name in NAMES})
        world.trigger()
        world.upload(0)
        world.complete(0, is_heard=False)
        world.edit(list(NAMES), 50, b"%d" % turn)
        perform(world, ("checkpoint", True))
        found.append(world.metadata[2 * turn].subtasks[0].operators[0])
    return found[0], found[1]


def test_differences_on_another_base_are_refused_with_a_sentence() -> None:
    world = DiffWorld(BACKENDS["memory"], 4)
    try:
        first, second = two_chains(world)
        mixed = OperatorState(first.operator_id, first.kind, first.handle, second.increments)
        assert [kind_of(handle) for handle in handles_of(mixed)] == ["whole", f"{len(NAMES)} diffs"]
        with pytest.raises(
            StateUnreadable, match=r"differences .* do not fit: they were computed from a different state.*; res"
        ):
            world.make.restored(world.spec, (mixed,), 9)
        alone = OperatorState(first.operator_id, first.kind, second.increments[0])
        with pytest.raises(StateUnreadable, match=r"contains only the changes since another one"):
            world.make.restored(world.spec, (alone,), 9)
    finally:
        world.close()


def test_a_damaged_difference_names_its_file() -> None:
    world = DiffWorld(BACKENDS["filesystem"], 4)
    try:
        world.put(dict(BASE))
        perform(world, ("checkpoint", True))
        world.edit(list(NAMES), 50, b"once")
        perform(world, ("checkpoint", True))
        path = Path(world.metadata[2].subtasks[0].operators[0].increments[0].path.removeprefix("file://"))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(StateUnreadable, match=rf"{path.name} is corrupt"):
            world.restored(2)
    finally:
        world.close()


def test_a_version_that_knows_no_differences_would_refuse_them() -> None:
    """The format's number, which readers of before compare, is another one."""
    assert len({state_file.FORMAT, state_file.INCREMENT_FORMAT, state_file.DIFF_FORMAT}) == 3
