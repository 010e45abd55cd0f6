"""What every home of keyed state owes its subtask; tests/property/taskmanager/state has what becomes of snapshots."""

from __future__ import annotations

import decimal
import importlib.util
import math
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    FilesystemBackend,
    KeyedAggregate,
    MemoryBackend,
    OperatorState,
    RocksdbBackend,
    StateBackend,
    StateKind,
)
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.store import KeyedStore
from lockgate_taskmanager.task.program import DataError, SnapshotOrder, StateUnreadable, UserError

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
    """Makes stores of one backend in one folder."""

    def __init__(self, choice: StateBackend, folder: Path) -> None:
        self.choice, self.folder = choice, folder
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
        writer = make_backend(self.choice, str(self.folder / "storage"), f"a1-v-{part}").writer(number)
        state = frozen.persist(number, writer)
        frozen.release()
        return state

    def close(self) -> None:
        for store in self.made:
            store.close()
        self.scratch.close()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TestingBackend]:
    made = TestingBackend(BACKENDS[request.param], tmp_path)
    yield made
    made.close()


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Callable[[str], TestingBackend]]:
    made: list[TestingBackend] = []

    def make(name: str) -> TestingBackend:
        made.append(TestingBackend(BACKENDS[name], tmp_path / name.replace(", ", "-")))
        return made[-1]

    yield make
    for testing_backend in made:
        testing_backend.close()


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
    writer = make_backend(backend.choice, str(backend.folder / "storage"), "a1-v-0").writer(1)
    state = frozen.persist(1, writer)
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


# RocksDB alone


@pytest.fixture
def rocks(backends: Callable[[str], TestingBackend]) -> TestingBackend:
    return backends("rocksdb")


def test_a_checkpoint_stores_only_the_tables_that_its_base_has_not(rocks: TestingBackend) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(*((f"k{number}", number, 1) for number in range(5_000))))
    first = rocks.stored(store, 1, SnapshotOrder())
    store.merge(sums(("k1", 1, 1)))
    second = rocks.stored(store, 2, SnapshotOrder(1))
    assert set(first.files) < set(second.files)
    assert [file.checkpoint_id for file in second.files] == [1, 2]
    assert all(file.shared for file in second.files)
    again = rocks.restored(SUMS, second, number=2)
    again.merge(sums(("k2", 2, 1)))
    third = rocks.stored(again, 3, SnapshotOrder(2))
    assert set(second.files) < set(third.files), "a restored database goes on where it was"
    assert counted(rocks.restored(SUMS, third), ("k1", 1), ("k2", 2), ("k3", 3)) == {
        "k1": (2, 2),
        "k2": (2, 2),
        "k3": (1, 1),
    }


def test_a_damaged_table_is_named(rocks: TestingBackend) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    state = rocks.stored(store, 1, SnapshotOrder())
    path = Path(state.files[0].path.removeprefix("file://"))
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(StateUnreadable, match=rf"{path.name} is corrupt"):
        rocks.restored(SUMS, state)
    path.unlink()
    with pytest.raises(StateUnreadable, match=rf"{path.name} is missing"):
        rocks.restored(SUMS, state)
    assert list(rocks.scratch.path.glob("*/db")) == [next(rocks.scratch.path.glob("*/db"))], "only the first store's"


def test_other_backends_say_that_they_do_not_read_a_databases_checkpoints(
    backends: Callable[[str], TestingBackend],
) -> None:
    rocks = backends("rocksdb")
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    with pytest.raises(StateUnreadable, match="take a savepoint"):
        backends("filesystem").restored(SUMS, rocks.stored(store, 1, SnapshotOrder()))


def test_nothing_is_left_of_a_closed_store_and_of_a_killed_process(rocks: TestingBackend) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    rocks.stored(store, 1, SnapshotOrder())
    folder = rocks.scratch.path
    assert len(list(folder.iterdir())) == 2  # the lock and the store
    store.close()
    store.close()
    assert [path.name for path in folder.iterdir()] == ["lock"]
    abandoned = folder.parent / "state-of-a-killed-process"
    (abandoned / "0" / "db").mkdir(parents=True)
    (abandoned / "lock").touch()
    ScratchFolder(folder.parent, "state-")
    assert not abandoned.exists()
    assert folder.exists(), "its process lives"


def test_a_missing_package_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UserError, match=r"pip install 'lockgate\[rocksdb\]'"):
        StoreFactory(BACKENDS["rocksdb"], ScratchFolder(tmp_path, "state-"))
    StoreFactory(BACKENDS["filesystem"], ScratchFolder(tmp_path, "state-"))


def test_a_key_of_a_type_that_a_database_cannot_hold_is_the_authors_error(rocks: TestingBackend) -> None:
    schema = partial({"k": pa.dictionary(pa.int32(), pa.string())}, []).schema
    with pytest.raises(UserError, match="cannot be kept in rocksdb"):
        rocks.fresh(KeyedAggregate(("k",), (Aggregate("n", COUNT),)), schema)


def test_merging_continues_while_a_snapshot_is_stored_on_another_thread(backend: TestingBackend) -> None:
    keys = [(f"k{number}", number) for number in range(3_000)]
    store = backend.fresh(SUMS, sums().schema)
    store.merge(sums(*((key, hash_, 1) for key, hash_ in keys)))
    states: list[OperatorState] = []
    for turn in range(1, 6):
        frozen = store.snapshot(SnapshotOrder(turn - 1))
        writer = make_backend(backend.choice, str(backend.folder / "storage"), "a1-v-0").writer(turn)
        thread = threading.Thread(target=lambda f=frozen, t=turn, w=writer: states.append(f.persist(t, w)))
        thread.start()
        for start in range(0, len(keys), 500):
            store.merge(sums(*((key, hash_, 1) for key, hash_ in keys[start : start + 500])))
        thread.join()
        frozen.release()
        if backend.choice.backend is None or not isinstance(backend.choice.backend, MemoryBackend):
            again = backend.restored(SUMS, states[-1])
            assert set(counted(again, *keys).values()) == {(turn, turn)}
            again.close()
    assert set(counted(store, *keys).values()) == {(6, 6)}


def test_writes_buffered_until_the_copy_is_made_are_read_and_in_the_next_snapshot(rocks: TestingBackend) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    first = store.snapshot(SnapshotOrder())
    store.merge(sums(("a", 1, 10), ("b", 2, 10)))  # the copy is not made yet
    assert counted(store, ("a", 1), ("b", 2)) == {"a": (2, 11), "b": (1, 10)}
    second = store.snapshot(SnapshotOrder())  # makes it
    store.merge(sums(("b", 2, 100)))
    writer = make_backend(rocks.choice, str(rocks.folder / "storage"), "a1-v-0").writer
    states = [frozen.persist(number, writer(number)) for number, frozen in ((2, second), (1, first))]
    assert counted(rocks.restored(SUMS, states[1]), ("a", 1), ("b", 2)) == {"a": (1, 1), "b": (0, None)}
    assert counted(rocks.restored(SUMS, states[0]), ("a", 1), ("b", 2)) == {"a": (3, 11), "b": (2, 10)}
    assert counted(store, ("a", 1), ("b", 2)) == {"a": (3, 11), "b": (3, 110)}


def test_a_snapshot_that_is_given_up_before_its_copy_is_made_holds_nothing_back(rocks: TestingBackend) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    frozen = store.snapshot(SnapshotOrder())
    store.merge(sums(("a", 1, 1)))
    frozen.release()
    with pytest.raises(OSError, match="given up"):
        frozen.persist(1, make_backend(rocks.choice, str(rocks.folder / "storage"), "a1-v-0").writer(1))
    store.merge(sums(("b", 2, 5)))
    kept = rocks.stored(store, 2, SnapshotOrder())
    assert counted(rocks.restored(SUMS, kept), ("a", 1), ("b", 2)) == {"a": (2, 2), "b": (1, 5)}
