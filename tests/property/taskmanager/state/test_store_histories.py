"""Whatever becomes of snapshots (late, lost, aborted), each kept one is the state that it was taken of."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import CheckpointKind, FilesystemBackend, MemoryBackend, RocksdbBackend, StateBackend

from tests.property.taskmanager.state.store_world import BASE, StoreWorld, content_of

BACKENDS = {
    "memory": StateBackend(MemoryBackend(1 << 20)),
    "filesystem": StateBackend(FilesystemBackend()),
    "memory, incremental": StateBackend(MemoryBackend(1 << 20), full_every=3),
    "memory, incremental, little room": StateBackend(MemoryBackend(40_000), full_every=5),
    "filesystem, incremental": StateBackend(FilesystemBackend(), full_every=4),
    "memory, incremental, diffs": StateBackend(MemoryBackend(1 << 20), full_every=4, binary_diff=True),
    "filesystem, incremental, diffs": StateBackend(FilesystemBackend(), full_every=6, binary_diff=True),
    "rocksdb": StateBackend(RocksdbBackend(memory_bytes=16 << 20)),
}
rows = st.tuples(
    st.one_of(st.none(), st.text("abc", max_size=2)),
    st.one_of(st.none(), st.integers(-(2**40), 2**40)),
    st.one_of(st.none(), st.text(max_size=3)),
)
which = st.integers(0, 3)
steps = st.one_of(
    st.tuples(st.just("merge"), st.lists(rows, min_size=1, max_size=4)),
    st.tuples(st.just("merge"), st.lists(rows, min_size=1, max_size=4)),
    st.tuples(st.just("trigger"), st.sampled_from([CheckpointKind.CHECKPOINT] * 4 + [CheckpointKind.SAVEPOINT])),
    st.tuples(st.just("upload"), which),
    st.tuples(st.just("complete"), which, st.booleans()),
    st.tuples(st.just("checkpoint"), st.booleans()),
    st.tuples(st.just("lost"), st.booleans()),
    st.tuples(st.just("abort"), which),
    st.tuples(st.just("restart")),
)


def perform(world: StoreWorld, step: tuple[Any, ...]) -> None:
    name, *given_ = step
    if name == "complete":
        world.complete(given_[0], is_heard=given_[1])
    elif name == "checkpoint":  # the usual course, which a random one seldom takes
        world.trigger()
        for number in range(len(world.under_way)):
            world.upload(number)
        world.complete(len(world.under_way) - 1, is_heard=given_[0])
    elif name == "lost":  # given up, with or without having been stored
        world.trigger()
        if given_[0]:
            for number in range(len(world.under_way)):
                world.upload(number)
        world.abort(len(world.under_way) - 1)
    else:
        getattr(world, name)(*given_)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.lists(steps, max_size=20))
def test_every_kept_checkpoint_restores_its_state(backend: str, retained: int, plan: list[tuple[Any, ...]]) -> None:
    world = StoreWorld(BACKENDS[backend], retained)
    try:
        world.merge(BASE)
        for step in plan:
            perform(world, step)
        world.check()
        assert content_of(world.store) == world.content
        world.restart()
        world.check()
        assert world.named() <= world.snapshots.names()
    finally:
        world.close()
