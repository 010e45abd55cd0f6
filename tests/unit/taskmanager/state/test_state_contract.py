"""What snapshots of keyed state promise: the same for each backend, on a local disk and on an S3 server.

Three layers: the files of a snapshot, the stores that are made of them, and checkpoints as a coordinator keeps them.
The random histories in tests/property/taskmanager/state draw orders of events of the last kind.
"""

from __future__ import annotations

import decimal
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_common import storage
from lockgate_common.masking import bare
from lockgate_proto.messages import (
    Aggregate,
    CheckpointKind,
    FilesystemBackend,
    KeyedAggregate,
    MemoryBackend,
    OperatorState,
    StateBackend,
    StateKind,
)
from lockgate_taskmanager.state.backend import download, load
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.task.program import DataError, SnapshotOrder, StateUnreadable

from tests.job_folder import JobFolder, content_of_file, put
from tests.property.taskmanager.state.store_world import BASE, StoreWorld, content_of, hash_of
from tests.property.taskmanager.state.store_world import GROUPS as WORLD_GROUPS
from tests.property.taskmanager.state.test_store_histories import perform
from tests.s3_server import server_for_tests
from tests.state_homes import AVG, BACKENDS, COUNT, GROUPS, MAX, MIN, SUM, SUMS, TestingBackend, counted, partial, sums

STORAGES = ["local disk", pytest.param("S3", marks=[pytest.mark.integration, pytest.mark.spark])]
MODES = BACKENDS | {
    "memory, incremental": StateBackend(MemoryBackend(), full_every=3),
    "memory, diffs": StateBackend(MemoryBackend(), full_every=3, binary_diff=True),
}
FILES = StateBackend(FilesystemBackend())
CHECKPOINT = ("checkpoint", True)  # stored, complete, and the subtask knows it


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], str]]:
    """Makes a URI in a new bucket."""
    with server_for_tests(str(tmp_path_factory.mktemp("s3") / "server.log")) as server:
        yield lambda: server.uri("base")


@pytest.fixture(params=STORAGES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage of this test alone."""
    found: str = request.getfixturevalue("s3")() if request.param == "S3" else str(tmp_path / "storage")
    return found


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, where: str, tmp_path: Path) -> Iterator[TestingBackend]:
    made = TestingBackend(BACKENDS[request.param], tmp_path, where)
    yield made
    made.close()


@pytest.fixture
def backends(where: str, tmp_path: Path) -> Iterator[Callable[[str], TestingBackend]]:
    made: list[TestingBackend] = []

    def make(name: str) -> TestingBackend:
        made.append(TestingBackend(BACKENDS[name], tmp_path / name.replace(", ", "-"), where))
        return made[-1]

    yield make
    for testing_backend in made:
        testing_backend.close()


@pytest.fixture
def folder(where: str) -> JobFolder:
    """Of a job that keeps its state in files."""
    return JobFolder(where)


@pytest.fixture(params=MODES)
def world(request: pytest.FixtureRequest, where: str) -> Iterator[StoreWorld]:
    """A subtask with some state, of which its coordinator keeps two checkpoints."""
    made = StoreWorld(MODES[request.param], 2, storage=where)
    made.merge(BASE)
    yield made
    made.close()


# -- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"state", b"x" * 3_000_000], ids=["empty", "small", "large"])
def test_what_was_stored_is_loaded(folder: JobFolder, tmp_path: Path, content: bytes) -> None:
    writer = folder.writer(FILES, 3)
    (tmp_path / "table").write_bytes(content)
    handles = [
        writer.store("op", pa.py_buffer(content)),
        writer.store_file("table", tmp_path / "table", is_shared=True),
    ]
    for handle in handles:
        assert load(handle).to_pybytes() == content_of_file(handle) == content
        download(handle, tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == content
    assert folder.names() == {"chk-3/a1-v-0-op.state", "shared/3-a1-v-0-table.state"}


def test_names_with_odd_characters_stay_apart(folder: JobFolder) -> None:
    writer = folder.writer(FILES, 3)
    names = ("a/b", "a_b", "a b", "../x", "ä?b#c%")
    handles = [writer.store(name, pa.py_buffer(name.encode())) for name in names]
    assert [load(handle).to_pybytes().decode() for handle in handles] == list(names)
    assert len(folder.names()) == len(names)


def test_checkpoints_subtasks_and_attempts_do_not_meet(folder: JobFolder) -> None:
    places = [(number, part, attempt) for number in (1, 2) for part in (0, 1) for attempt in (1, 2)]
    handles = [folder.writer(FILES, *place).store("op", pa.py_buffer(repr(place).encode())) for place in places]
    assert [load(handle).to_pybytes().decode() for handle in handles] == [repr(place) for place in places]


def test_a_snapshot_that_fails_leaves_no_file(folder: JobFolder) -> None:
    writer = folder.writer(FILES, 4)
    writer.store("op", pa.py_buffer(b"x"))
    writer.store("op", pa.py_buffer(b"x"), is_shared=True)
    writer.undo()
    assert folder.names() == set()


# -- stores -----------------------------------------------------------------------------------------------------------


def test_every_aggregate_of_every_type_folds_and_is_restored(backend: TestingBackend) -> None:
    types: dict[str, pa.DataType] = {
        "k": pa.string(), "j": pa.date32(),
        "__p1": pa.decimal128(10, 2), "__p2": pa.float64(), "__p3": pa.string(), "__p4": pa.float64(),
        "__p5": pa.int64(),
    }  # fmt: skip
    operator = KeyedAggregate(
        ("k", "j"),
        (
            Aggregate("n", COUNT), Aggregate("d", SUM, "d"), Aggregate("hi", MAX, "f"), Aggregate("lo", MIN, "t"),
            Aggregate("mean", AVG, "a"),
        ),
    )  # fmt: skip
    money = decimal.Decimal
    first = [("a", 5, 70, money("1.50"), 2.0, "x", 4.0, 1), ("b", None, 71, None, None, None, None, 0)]
    second = [("a", 5, 70, money("2.25"), math.nan, "w", 2.0, 1), (None, 6, 72, money("9.00"), 1.0, "q", None, 0)]
    store = backend.fresh(operator, partial(types, first, 2).schema)
    store.merge(partial(types, first, 2))
    changed = {row["k"]: row for row in store.merge(partial(types, second, 2)).changed.to_pylist()}
    assert changed.keys() == {"a", None}
    assert (changed["a"]["n"], changed["a"]["d"], changed["a"]["lo"], changed["a"]["mean"]) == (
        2,
        money("3.75"),
        "w",
        3.0,
    )
    assert math.isnan(changed["a"]["hi"])
    assert changed[None]["mean"] is None
    again = backend.restored(operator, backend.stored(store))
    assert (again.schema, again.partial_schema) == (store.schema, store.partial_schema)
    more = {row["k"]: row for row in again.merge(partial(types, first, 2)).changed.to_pylist()}
    assert (more["a"]["n"], more["a"]["d"], more["a"]["lo"]) == (3, money("5.25"), "w")
    assert (more["b"]["n"], more["b"]["d"], more["b"]["lo"], more["b"]["hi"]) == (2, None, None, None)


def test_no_key_columns_at_all(backend: TestingBackend) -> None:
    operator = KeyedAggregate((), (Aggregate("n", COUNT), Aggregate("total", SUM, "v")))
    rows = partial({"__p1": pa.int64()}, [(42, 1), (42, 2)], keys=0)
    store = backend.fresh(operator, rows.schema)
    assert store.merge(rows).changed.to_pylist() == [{"n": 2, "total": 3}]
    kept = backend.stored(store, 1, SnapshotOrder())
    store.merge(rows)
    assert backend.restored(operator, kept).merge(rows).changed.to_pylist() == [{"n": 4, "total": 6}]


def test_keys_of_one_hash_are_distinguished_and_a_key_may_come_twice_in_a_batch(backend: TestingBackend) -> None:
    store = backend.fresh(SUMS, sums().schema)
    merged = store.merge(sums(("a", 7, 1), ("b", 7, 10), ("a", 7, 2), (None, 7, 100)))
    assert merged.records == 4
    assert {row["k"]: (row["n"], row["total"]) for row in merged.changed.to_pylist()} == {
        "a": (2, 3), "b": (1, 10), None: (1, 100),
    }  # fmt: skip
    assert merged.changed.num_rows == 3
    again = backend.restored(SUMS, backend.stored(store))
    assert counted(again, ("a", 7), ("b", 7), (None, 7), ("c", 7)) == {
        "a": (2, 3), "b": (1, 10), None: (1, 100), "c": (0, None),
    }  # fmt: skip


def test_nan_is_one_key_and_zero_has_no_sign(backend: TestingBackend) -> None:
    operator = KeyedAggregate(("k",), (Aggregate("n", COUNT),))
    rows = partial({"k": pa.float64()}, [(math.nan, 1), (0.0, 2)])
    other = partial({"k": pa.float64()}, [(math.nan, 1), (-0.0, 2)])
    store = backend.fresh(operator, rows.schema)
    store.merge(rows)
    assert sorted(row["n"] for row in store.merge(other).changed.to_pylist()) == [2, 2]


def test_an_empty_batch_changes_nothing(backend: TestingBackend) -> None:
    store = backend.fresh(SUMS, sums().schema)
    merged = store.merge(sums())
    assert (merged.records, merged.changed.num_rows, merged.changed.schema) == (0, 0, store.schema)
    again = backend.restored(SUMS, backend.stored(store, 1, SnapshotOrder()))
    assert counted(again, ("a", 1)) == {"a": (0, None)}


def test_a_sum_that_leaves_its_range_is_a_fault_of_the_data(backend: TestingBackend) -> None:
    store = backend.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 2**62)))
    with pytest.raises(DataError, match=r"'total'.*64-bit"):
        store.merge(sums(("a", 1, 2**62)))


def test_a_snapshot_is_unaffected_by_later_changes(backend: TestingBackend) -> None:
    store = backend.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1), ("b", 2, 1)))
    frozen = store.snapshot(SnapshotOrder())
    store.merge(sums(("a", 1, 10), ("c", 3, 10)))
    state = frozen.persist(1, backend.snapshots.writer(backend.choice, 1))
    frozen.release()
    assert counted(backend.restored(SUMS, state), ("a", 1), ("b", 2), ("c", 3)) == {
        "a": (1, 1),
        "b": (1, 1),
        "c": (0, None),
    }


def test_a_snapshot_can_be_divided_and_put_together(backend: TestingBackend) -> None:
    """What another parallelism needs: 1 -> 2 -> 1, from checkpoints and not from savepoints."""
    rows = [(f"k{number}", number, number) for number in range(200)]
    whole = backend.fresh(SUMS, sums().schema)
    whole.merge(sums(*rows))
    kept = backend.stored(whole, 1, SnapshotOrder())
    halves = [range(7), range(7, GROUPS)]
    stores = [backend.restored(SUMS, kept, groups=half) for half in halves]
    states = []
    for part, (half, store) in enumerate(zip(halves, stores, strict=True)):
        mine = [row for row in rows if row[1] % GROUPS in half]
        assert counted(store, *((key, hash_) for key, hash_, _ in mine)) == {key: (1, value) for key, _, value in mine}
        store.merge(sums(*mine))
        states.append(backend.stored(store, 2, SnapshotOrder(1), part))
    again = backend.restored(SUMS, *states)
    assert counted(again, *((key, hash_) for key, hash_, _ in rows)) == {key: (3, 2 * value) for key, _, value in rows}


def test_another_operators_state_is_refused(backend: TestingBackend) -> None:
    store = backend.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    state = backend.stored(store, 1, SnapshotOrder())
    with pytest.raises(StateUnreadable, match="belongs to another aggregate"):
        backend.restored(KeyedAggregate(("k",), (Aggregate("n", COUNT),)), state)


@pytest.mark.parametrize("target", BACKENDS)
@pytest.mark.parametrize("source", BACKENDS)
def test_every_backend_reads_every_backends_savepoints(
    backends: Callable[[str], TestingBackend], source: str, target: str
) -> None:
    rows = [(f"k{number}", number, number) for number in range(100)]
    home = backends(source)
    store = home.fresh(SUMS, sums().schema)
    store.merge(sums(*rows))
    state = home.stored(store)
    assert (state.kind, state.increments, state.files) == (StateKind.KEYED_STATE, (), ())
    other = home if source == target else backends(target)
    again = other.restored(SUMS, state)
    assert counted(again, *((key, hash_) for key, hash_, _ in rows)) == {key: (1, value) for key, _, value in rows}


def test_merging_continues_while_a_snapshot_is_stored_on_another_thread(backend: TestingBackend) -> None:
    keys = [(f"k{number}", number) for number in range(1_000)]
    store = backend.fresh(SUMS, sums().schema)
    store.merge(sums(*((key, hash_, 1) for key, hash_ in keys)))
    states: list[OperatorState] = []
    for turn in range(1, 4):
        frozen = store.snapshot(SnapshotOrder(turn - 1))
        writer = backend.snapshots.writer(backend.choice, turn)
        thread = threading.Thread(target=lambda f=frozen, t=turn, w=writer: states.append(f.persist(t, w)))
        thread.start()
        for start in range(0, len(keys), 100):
            store.merge(sums(*((key, hash_, 1) for key, hash_ in keys[start : start + 100])))
        thread.join()
        frozen.release()
        if backend.choice.backend is None or not isinstance(backend.choice.backend, MemoryBackend):
            again = backend.restored(SUMS, states[-1])
            assert set(counted(again, *keys).values()) == {(turn, turn)}
            again.close()
    assert set(counted(store, *keys).values()) == {(4, 4)}


def test_a_damaged_or_missing_file_is_named_in_one_sentence(backend: TestingBackend) -> None:
    """And restored as before once it is whole again: a refused restore has changed nothing."""
    store = backend.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1), ("b", 2, 2)))
    state = backend.stored(store, 1, SnapshotOrder())
    files = [handle for handle in (*handles_of(state), *state.files) if handle.path]
    assert bool(files) is not isinstance(backend.choice.backend, MemoryBackend)
    for handle in files:
        whole = content_of_file(handle)
        for damage, problem in (
            (whole[:-1], "corrupt"), (whole[:-1] + bytes([whole[-1] ^ 1]), "corrupt"), (b"", "corrupt"),
            (whole + b"x", "corrupt"), (None, "missing"),
        ):  # fmt: skip
            put(handle, damage)
            with pytest.raises(StateUnreadable) as caught:
                backend.restored(SUMS, state)
            assert f"the state file {bare(handle.path)} is {problem}" in str(caught.value)
            assert "restore from another checkpoint" in str(caught.value)
            assert not {"\n", "?", "endpoint_override"} & {*str(caught.value), *str(caught.value).split("=")}
            put(handle, whole)
    assert counted(backend.restored(SUMS, state), ("a", 1), ("b", 2)) == {"a": (1, 1), "b": (1, 2)}


# -- checkpoints ------------------------------------------------------------------------------------------------------


def test_each_kept_checkpoint_of_a_chain_is_restored_and_no_other_file_is_left(world: StoreWorld) -> None:
    longest = 0
    for turn in range(7):
        world.merge([(f"base{turn}", turn, None), ("a", turn, "text")])
        perform(world, CHECKPOINT)
        world.check()
        assert world.snapshots.names() == world.named()
        (state,) = world.metadata[world.number].subtasks[0].operators
        longest = max(longest, len(state.increments))
    assert [checkpoint.checkpoint_id for checkpoint in world.completed.all()] == [7, 6]
    assert longest == (world.choice.full_every - 1 if world.choice.full_every else 0)


def test_a_savepoint_outlives_the_checkpoints_and_needs_none_of_their_files(world: StoreWorld) -> None:
    perform(world, CHECKPOINT)
    world.merge([("a", 1, None)])
    world.trigger(CheckpointKind.SAVEPOINT)
    world.upload(0)
    world.complete(0, is_heard=False)
    for turn in range(3):
        world.merge([("b", turn, None)])
        perform(world, CHECKPOINT)
    assert [checkpoint.checkpoint_id for checkpoint in world.completed.all()] == [5, 4, 2]
    assert not any(name.startswith("shared/") for name in world.snapshots.named(world.metadata[2]))
    world.check()


def test_an_aborted_checkpoint_leaves_no_file_and_its_content_is_in_the_next_one(world: StoreWorld) -> None:
    perform(world, CHECKPOINT)
    before = world.snapshots.names()
    world.merge([("a", 1, None)])
    world.trigger()
    world.upload(0)
    world.abort(0)
    assert world.snapshots.names() == before
    world.merge([("b", 1, None)])
    perform(world, CHECKPOINT)
    assert world.snapshots.names() == world.named()
    is_incremental = world.choice.full_every > 1
    assert [len(operator.increments) for operator in world.metadata[3].subtasks[0].operators] == [int(is_incremental)]
    world.restart()
    assert content_of(world.store) == world.content
    assert {"a", "b"} <= world.content.keys()
    world.merge([("c", 1, None)])
    perform(world, ("checkpoint", False))  # a restored state is a base, too
    assert [len(operator.increments) for operator in world.metadata[4].subtasks[0].operators] == [2 * is_incremental]
    world.check()


def test_checkpoints_in_flight_are_each_the_state_at_their_barrier(world: StoreWorld) -> None:
    """Stored in another order than they were taken in, while the state goes on."""
    for turn in range(3):
        world.trigger()
        world.merge([("a", turn, None), (f"base{turn}", turn, "text")])
    for which in (2, 0, 0):
        world.upload(which)
        world.merge([("b", which, None)])
    for _ in range(3):
        world.complete(0, is_heard=True)
    assert [checkpoint.checkpoint_id for checkpoint in world.completed.all()] == [3, 2]
    world.check()
    assert world.snapshots.names() == world.named()


def test_a_job_goes_on_from_an_older_checkpoint(world: StoreWorld) -> None:
    """As from a newer one, and the newer one stays what it was."""
    for turn in range(4):
        world.merge([("a", turn, None), (f"base{turn}", turn, "text")])
        perform(world, CHECKPOINT)
    world.restart(older=3)
    assert content_of(world.store) == world.content == world.contents[3] != world.contents[4]
    newer = world.restored(4)
    assert content_of(newer) == world.contents[4]
    newer.close()
    for turn in range(3):
        world.merge([("b", turn, None)])
        perform(world, CHECKPOINT)
    world.check()


def test_a_checkpoint_can_be_read_by_key_groups(world: StoreWorld) -> None:
    keys = [chr(97 + i % 26) * (1 + i // 26) + str(i) for i in range(200)]
    world.merge([(key, 1, key) for key in keys])
    for turn in range(6):
        world.merge([(key, turn, None) for key in keys[turn : turn + 5]])
        perform(world, CHECKPOINT)
    parts = [range(3), range(3, 4), range(4, WORLD_GROUPS)]
    stores = [world.restored(6, part) for part in parts]
    contents = [content_of(store) for store in stores]
    for part, content in zip(parts, contents, strict=True):
        assert {hash_of(key) % WORLD_GROUPS for key in content} <= set(part)
    assert {key: value for content in contents for key, value in content.items()} == world.content
    for store in stores:
        store.close()


def test_nothing_is_left_of_a_job_that_has_ended(world: StoreWorld) -> None:
    perform(world, CHECKPOINT)
    world.merge([("a", 1, None)])
    perform(world, CHECKPOINT)
    world.trigger()
    world.upload(0)
    run = storage.locate(world.snapshots.uri)
    assert storage.exists(run)
    world.snapshots.end()
    assert world.snapshots.names() == set()
    assert not storage.exists(run)
    assert not storage.exists(run.parent()), "the job's folder"
