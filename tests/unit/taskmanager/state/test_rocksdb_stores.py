"""Keyed state in RocksDB: what it promises beside test_state_contract.py."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_proto.messages import Aggregate, KeyedAggregate, OperatorState
from lockgate_taskmanager.state.backend import make_backend, use_copies
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.local_copies import COPIES_PREFIX, LocalCopies
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

from tests.state_homes import BACKENDS, COUNT, SUMS, TestingBackend, counted, partial, sums


@pytest.fixture
def rocks(tmp_path: Path) -> Iterator[TestingBackend]:
    made = TestingBackend(BACKENDS["rocksdb"], tmp_path / "rocksdb")
    yield made
    made.close()


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
    rocks: TestingBackend, tmp_path: Path
) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    with pytest.raises(StateUnreadable, match="take a savepoint"):
        TestingBackend(BACKENDS["filesystem"], tmp_path / "files").restored(
            SUMS, rocks.stored(store, 1, SnapshotOrder())
        )


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


def test_writes_buffered_until_the_copy_is_made_are_read_and_in_the_next_snapshot(rocks: TestingBackend) -> None:
    store = rocks.fresh(SUMS, sums().schema)
    store.merge(sums(("a", 1, 1)))
    first = store.snapshot(SnapshotOrder())
    store.merge(sums(("a", 1, 10), ("b", 2, 10)))  # the copy is not made yet
    assert counted(store, ("a", 1), ("b", 2)) == {"a": (2, 11), "b": (1, 10)}
    second = store.snapshot(SnapshotOrder())  # makes it
    store.merge(sums(("b", 2, 100)))
    writer = rocks.snapshots.writer
    states = [frozen.persist(number, writer(rocks.choice, number)) for number, frozen in ((2, second), (1, first))]
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
        frozen.persist(1, rocks.snapshots.writer(rocks.choice, 1))
    store.merge(sums(("b", 2, 5)))
    kept = rocks.stored(store, 2, SnapshotOrder())
    assert counted(rocks.restored(SUMS, kept), ("a", 1), ("b", 2)) == {"a": (2, 2), "b": (1, 5)}


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[tuple[LocalCopies, OperatorState, TestingBackend]]:
    """Copies, the state of 5,000 keys whose files are among them, and who restores it; the copies are on its disk."""
    copies = LocalCopies(ScratchFolder(tmp_path / "rocksdb", COPIES_PREFIX))
    use_copies(copies)
    made = TestingBackend(BACKENDS["rocksdb"], tmp_path / "rocksdb")
    store = made.fresh(SUMS, sums().schema)
    store.merge(sums(*((f"k{number}", number, 1) for number in range(5_000))))
    writer = make_backend(made.choice, str(tmp_path / "storage"), "a1-v-0", "run").writer(1)
    yield copies, store.snapshot(SnapshotOrder()).persist(1, writer), made
    made.close()
    use_copies(None)
    copies.close()


def test_a_database_is_restored_from_copies_without_copying_them(
    copied: tuple[LocalCopies, OperatorState, TestingBackend], tmp_path: Path
) -> None:
    copies, state, rocks = copied
    shutil.rmtree(tmp_path / "storage")
    for _ in range(2):
        again = rocks.restored(SUMS, state)
        assert counted(again, ("k1", 1), ("new", 1)) == {"k1": (1, 1), "new": (0, None)}, "as it was stored"
        again.merge(sums(("k1", 1, 1), ("new", 1, 1)))
        tables = [copies.verified(file) for file in state.files]
        assert all(table is not None and table.stat().st_nlink > 1 for table in tables)
        again.close()


@pytest.mark.parametrize("used", [0, 1, 2])
def test_a_table_that_was_damaged_unnoticed_comes_from_the_storage(
    copied: tuple[LocalCopies, OperatorState, TestingBackend], tmp_path: Path, used: int
) -> None:
    """used: how often before."""
    _, state, rocks = copied
    for _ in range(used):
        rocks.restored(SUMS, state).close()
    (table,) = state.files
    (copy,) = tmp_path.glob(f"rocksdb/{COPIES_PREFIX}*/*{table.checksum.removeprefix('sha256:')}")
    found, content = copy.stat(), bytearray(copy.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))  # as if the disk had done it
    assert counted(rocks.restored(SUMS, state), ("k1", 1)) == {"k1": (1, 1)}
    assert not copy.exists()
