"""The rows of an interval join in RocksDB: what a batch reads, what leaves the disk, and from where they come back."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState, StateBackend, StateKind
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.join.interval_join import JoinStore
from lockgate_taskmanager.state.join.join_database import JoinDatabase
from lockgate_taskmanager.state.join.join_spec import SIDES, JoinSpec
from lockgate_taskmanager.state.join.join_table import JoinTable
from lockgate_taskmanager.state.rocksdb.barrier_buffered_database import BarrierBufferedDatabase
from lockgate_taskmanager.state.rocksdb.engine import Database
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

from tests.join_homes import HOMES, MEMORY, ROCKSDB, JoinFolder, count_of, join_folder, waiting

LEFT, RIGHT = JoinSide.LEFT, JoinSide.RIGHT
JOIN = IntervalJoin(("k",), ("k",), "at", "at", -5, 10)
GROUPS = 8
SAVEPOINT = SnapshotOrder(is_savepoint=True)
SCHEMAS = {
    side: pa.schema([("k", pa.int64()), (value, pa.int64()), ("__hash", pa.int64()), ("__event_time", pa.int64())])
    for side, value in ((LEFT, "l"), (RIGHT, "r"))
}


def hash_of(key: int) -> int:
    return (key * 0x9E3779B97F4A7C15) % 2**64 - 2**63


def table(side: JoinSide, *records: tuple[int, int]) -> pa.Table:
    """(key, time) each."""
    columns = zip(*((key, time, hash_of(key), time) for key, time in records), strict=True)
    return pa.Table.from_arrays([pa.array(column, pa.int64()) for column in columns], schema=SCHEMAS[side])


def pairs(home: JoinStore, side: JoinSide, *records: tuple[int, int]) -> list[tuple[int, int]]:
    found = home.merge(side, table(side, *records)).pairs
    return sorted((row["l"], row["r"]) for pair in found for row in pair.to_pylist())


@pytest.fixture
def folder() -> Iterator[JoinFolder]:
    """Where the joins of a test work."""
    with join_folder() as made:
        yield made


def fresh(folder: JoinFolder, groups: range = range(GROUPS), home: str = "rocksdb") -> JoinStore:
    """With both sides known."""
    store = folder.store(HOMES[home], JOIN, GROUPS, groups)
    for side in SIDES:
        store.accept(side, SCHEMAS[side])
    return store


def restored(
    folder: JoinFolder, states: Sequence[OperatorState], groups: range = range(GROUPS), home: str = "rocksdb"
) -> JoinStore:
    store = folder.store(HOMES[home], JOIN, GROUPS, groups)
    store.restore(states, 1)
    return store


def rows_of(store: JoinStore, side: JoinSide) -> JoinDatabase:
    found = store.sides[side].rows
    assert isinstance(found, JoinDatabase)
    return found


def entries(rows: JoinDatabase) -> int:
    return len(list(rows.database.itself.rows(b"", b"\xff" * 32)))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many keys each read of a database has asked for."""
    found: list[int] = []
    before = BarrierBufferedDatabase.get

    def get(self: BarrierBufferedDatabase, names: Sequence[bytes]) -> list[bytes | None]:
        found.append(len(names))
        return before(self, names)

    monkeypatch.setattr(BarrierBufferedDatabase, "get", get)
    return found


def test_a_batch_reads_only_its_keys_and_not_waiting_rows(folder: JoinFolder, asked: list[int]) -> None:
    home = fresh(folder)
    for start in range(0, 20_000, 5_000):
        pairs(home, LEFT, *((key, 1000) for key in range(start, start + 5_000)))
    asked.clear()
    assert pairs(home, RIGHT, (7, 1000), (9, 1001)) == [(1000, 1000), (1000, 1001)]
    assert sum(asked) <= 2 + 2 * 2, "two heads to write to, and two spans for each row that asks"


@pytest.mark.parametrize("home", HOMES)
def test_pairs_of_a_batch_are_emitted_together(folder: JoinFolder, home: str) -> None:
    """Each portion is a Spark job."""
    store = fresh(folder, home=home)
    pairs(store, LEFT, *((key, 1000) for key in range(6000)))
    found = list(store.merge(RIGHT, table(RIGHT, *((key, 1000 + key % 2) for key in range(6000)))).pairs)
    assert [pair.num_rows for pair in found] == [6000]
    assert {column.num_chunks for column in found[0].columns} == {1}
    assert not list(store.merge(RIGHT, table(RIGHT, (7000, 1000))).pairs)


def test_pairs_are_emitted_before_they_are_too_many(folder: JoinFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate_taskmanager.state.join.interval_join._PAIRS_AT_ONCE", 2500)
    store = fresh(folder)
    pairs(store, LEFT, *((key, 1000) for key in range(6000)))
    found = list(store.merge(RIGHT, table(RIGHT, *((key, 1000) for key in range(6000)))).pairs)
    assert [pair.num_rows for pair in found] == [4096, 1904]


def test_another_row_of_a_key_costs_the_same_however_many_it_has(folder: JoinFolder, asked: list[int]) -> None:
    home = fresh(folder)
    rows = rows_of(home, LEFT)
    for _ in range(50):
        pairs(home, LEFT, *((1, 1000 + number % 3) for number in range(200)))
    before = entries(rows)
    asked.clear()
    pairs(home, LEFT, (1, 1000))
    assert asked == [1, 2], "its own head; and of the other side the heads of two spans, which are not there"
    assert entries(rows) - before <= 1
    assert before < 2 * 50 + 2, "rows of one batch lie together"
    assert len(pairs(home, RIGHT, (1, 1000))) == 10_001


def test_single_rows_of_a_key_are_put_together(folder: JoinFolder) -> None:
    home = fresh(folder)
    for number in range(300):
        pairs(home, LEFT, (1, 1000 + number % 2))
    assert entries(rows_of(home, LEFT)) < 40
    assert len(pairs(home, RIGHT, (1, 1000))) == 300


def test_rows_that_are_over_leave_the_disk_at_a_barrier(folder: JoinFolder) -> None:
    home = fresh(folder)
    pairs(home, LEFT, *((key, 1000) for key in range(500)), *((key, 5000) for key in range(20)))
    pairs(home, RIGHT, *((key, 1000) for key in range(500)))
    home.advance(4000)
    folder.stored(ROCKSDB, home, 1)
    assert (entries(rows_of(home, LEFT)), entries(rows_of(home, RIGHT))) == (20, 0)
    assert pairs(home, RIGHT, (3, 5001)) == [(5000, 5001)]


def test_rows_that_are_over_leave_the_disk_without_barriers(
    folder: JoinFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockgate_taskmanager.state.join.join_database._ROWS_A_CLEARING", 1000)
    home = fresh(folder)
    for turn in range(1, 20):
        pairs(home, LEFT, *((key, 100 * turn) for key in range(250)))
        home.advance(100 * turn)
    assert entries(rows_of(home, LEFT)) < 1500, "of 4,750"


def test_while_a_copy_is_made_rows_are_found_and_what_is_over_stays_in_it(folder: JoinFolder) -> None:
    home = fresh(folder)
    pairs(home, LEFT, (1, 1000), (2, 1000))
    frozen = home.snapshot(SnapshotOrder())
    pairs(home, LEFT, (1, 1001), (3, 5000))
    assert pairs(home, RIGHT, (1, 1000)) == [(1000, 1000), (1001, 1000)]
    home.advance(4000)
    rows_of(home, LEFT).clear()
    assert pairs(home, RIGHT, (3, 5000)) == [(5000, 5000)]
    writer = make_backend(ROCKSDB, str(folder.path / "storage"), "a").writer(1)
    states = [column.persist(1, writer) for column in frozen]
    assert pairs(restored(folder, states), RIGHT, (1, 1000), (2, 1000)) == [(1000, 1000)] * 2
    assert count_of(home) == 2, "the two of key 3"


def test_writes_buffered_for_a_copy_are_bounded_by_bytes(folder: JoinFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockgate_taskmanager.state.rocksdb.barrier_buffered_database._HELD_BYTES", 10_000)
    home = fresh(folder)
    pairs(home, LEFT, (1, 1000))
    left: Any = home.snapshot(SnapshotOrder())[0]
    settled = []
    for _ in range(3):
        pairs(home, LEFT, *((1, 1000) for _ in range(1000)))
        settled.append(left.copy.is_settled)
    assert settled == [False, True, True]


def test_a_checkpoint_stores_the_tables_that_are_new(folder: JoinFolder) -> None:
    home = fresh(folder)
    pairs(home, LEFT, *((key, 1000) for key in range(3000)))
    pairs(home, RIGHT, *((key, 2000) for key in range(3000)))
    first = folder.stored(ROCKSDB, home, 1)
    pairs(home, LEFT, (1, 1000))
    second = folder.stored(ROCKSDB, home, 2, SnapshotOrder(1))
    assert [row.kind for row in second] == [StateKind.ROCKSDB_STATE] * 2
    assert [row.handle.name for row in second if row.handle is not None] == ["left", "right"]
    for before, after in zip(first, second, strict=True):
        assert set(before.files) <= set(after.files)
    assert [len(row.files) for row in second] == [2, 1], "the right has nothing new"
    paths = [file.path for row in second for file in row.files]
    assert len(set(paths)) == len(paths), "tables of both sides have the same names, and files of their own"
    again = folder.store(ROCKSDB, JOIN, GROUPS)
    again.restore(second, 2)
    third = folder.stored(ROCKSDB, again, 3, SnapshotOrder(2))
    assert [row.files for row in third] == [row.files for row in second], "a restored state is a base"
    assert pairs(again, RIGHT, (1, 1000)) == [(1000, 1000)] * 2


def test_removed_files_are_not_removed_again(folder: JoinFolder) -> None:
    """Each removal is a table more to store."""
    home = fresh(folder)
    pairs(home, LEFT, *((key, 1000) for key in range(100)))
    home.advance(4000)
    first = folder.stored(ROCKSDB, home, 1)
    home.advance(4001)
    second = folder.stored(ROCKSDB, home, 2, SnapshotOrder(1))
    assert [row.files for row in second] == [item.files for item in first]


def test_a_database_that_was_shared_out_and_put_together_again_has_each_row_once(folder: JoinFolder) -> None:
    whole = fresh(folder)
    pairs(whole, LEFT, *((key, 1000) for key in range(100)))
    states = folder.stored(ROCKSDB, whole, 1)
    parts = (range(3), range(3, GROUPS))
    halves = [restored(folder, states, groups) for groups in parts]
    for half, groups in zip(halves, parts, strict=True):
        pairs(half, LEFT, *((key, 1000) for key in range(100) if hash_of(key) % GROUPS in groups))
    states = tuple(item for half in halves for item in folder.stored(ROCKSDB, half, 1))
    for order in (states, states[::-1]):
        assert count_of(restored(folder, order)) == 200


@pytest.mark.parametrize("order", [SnapshotOrder(), SAVEPOINT])
def test_merged_snapshots_are_not_held_in_memory_as_a_whole(
    folder: JoinFolder, monkeypatch: pytest.MonkeyPatch, order: SnapshotOrder
) -> None:
    """However large the rows are: what is written at once tells."""
    schema = SCHEMAS[LEFT].append(pa.field("large", pa.string()))
    states: list[OperatorState] = []
    for groups in (range(4), range(4, GROUPS)):
        store = folder.store(ROCKSDB, JOIN, GROUPS, groups)
        store.accept(LEFT, schema)
        key = next(key for key in range(100) if hash_of(key) % GROUPS in groups)
        for time in range(8):
            rows = table(LEFT, *((key, time) for _ in range(100)))
            list(store.merge(LEFT, rows.append_column("large", pa.array(["x" * 10_000] * 100))).pairs)
        states += folder.stored(ROCKSDB, store, 1, order)
    written: list[int] = []
    before = Database.put

    def put(self: Database, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        written.append(sum(map(len, values)))
        before(self, keys, values)

    monkeypatch.setattr(Database, "put", put)
    whole = restored(folder, states)
    assert sum(written) > 16_000_000
    assert max(written) < 5_000_000
    assert count_of(whole) == 1600


def test_blocks_are_turned_into_rows_a_few_at_a_time() -> None:
    """Which takes many times their size meanwhile."""
    schema = pa.schema([("k", pa.int64()), ("v", pa.string())])
    rows = pa.record_batch([pa.array(range(8000), pa.int64()), pa.array(["x" * 1000] * 8000)], schema=schema)
    form = JoinTable(schema, 16, GROUPS)
    ((_, blocks),) = form.blocks(rows, np.ones(8000, np.int64), np.full(8000, 5))
    size = sum(map(len, blocks))
    tracemalloc.start()
    try:
        back, times, counts = form.rows_in(blocks)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert back.equals(rows)
    assert (len(times), counts.sum()) == (8000, 8000)
    assert peak < 14 * size


@pytest.mark.parametrize("home", HOMES)
def test_rows_purged_before_a_snapshot_do_not_come_back(folder: JoinFolder, home: str) -> None:
    """One subtask had come further than another: the time of both together is the lesser one's."""
    halves = [fresh(folder, groups, home) for groups in (range(4), range(4, GROUPS))]
    keys = [next(key for key in range(100) if hash_of(key) % GROUPS in half) for half in (range(4), range(4, GROUPS))]
    for store, key in zip(halves, keys, strict=True):
        pairs(store, LEFT, *((key, time) for time in range(90, 130, 5)))
        pairs(store, RIGHT, (key, 300))
    halves[0].advance(118)
    halves[1].advance(60)
    states = [item for store in halves for item in folder.stored(HOMES[home], store, 1)]
    whole = restored(folder, states, home=home)
    assert pairs(whole, RIGHT, (keys[0], 112), (keys[1], 112)) == sorted(
        [(time, 112) for time in (110, 115)] + [(time, 112) for time in (105, 110, 115)]
    )
    assert sum(table.num_rows for table in waiting(restored(folder, states, range(4), home)).values()) == 4 + 1


@pytest.mark.parametrize("home", HOMES)
def test_a_side_of_which_one_subtask_knew_nothing(folder: JoinFolder, home: str) -> None:
    """Then the progress of time is unknown, and what had expired stays expired."""
    first, second = (folder.store(HOMES[home], JOIN, GROUPS, groups) for groups in (range(4), range(4, GROUPS)))
    key = next(key for key in range(100) if hash_of(key) % GROUPS < 4)
    for side in SIDES:
        first.accept(side, SCHEMAS[side])
    second.accept(LEFT, SCHEMAS[LEFT])
    pairs(first, RIGHT, (key, 97), (key, 107), (key, 120))
    first.advance(102)
    states = [item for store in (first, second) for item in folder.stored(HOMES[home], store, 1)]
    whole = restored(folder, states, home=home)
    assert pairs(whole, LEFT, (key, 98), (key, 102)) == [(98, 107), (102, 107)]


@pytest.mark.parametrize("full_every", [1, 10])
def test_checkpoints_of_joins_that_were_in_memory_are_taken_up(folder: JoinFolder, full_every: int) -> None:
    """As those that an earlier version has stored of a job with rocksdb."""
    spec = JoinSpec("join", JOIN, GROUPS, range(GROUPS))
    before = StoreFactory(StateBackend(full_every=full_every), folder.scratch).join(spec)
    for side in SIDES:
        before.accept(side, SCHEMAS[side])
    pairs(before, LEFT, *((key, 1000) for key in range(300)), (1, 20))
    pairs(before, RIGHT, *((key, 2000) for key in range(300)))
    folder.stored(MEMORY, before, 1)
    pairs(before, LEFT, (1, 50), (1, 60))
    before.advance(65)
    states = folder.stored(MEMORY, before, 2, SnapshotOrder(1))
    assert [len(state.increments) for state in states] == [full_every // 10] * 2
    for group in (range(GROUPS), range(3), range(3, GROUPS)):
        again = restored(folder, states, group)
        held = [key for key in range(300) if hash_of(key) % GROUPS in group]
        assert count_of(again) == 2 * len(held) + (1 in held), "50 and 20 are over"
        assert pairs(again, RIGHT, (1, 66)) == ([(60, 66)] if 1 in held else [])
        late = table(RIGHT, (held[0], 65), (held[0], 66))
        assert again.merge(RIGHT, late).dropped == 1, "time is where the last piece says"
        assert [item.kind for item in folder.stored(ROCKSDB, again, 3)] == [StateKind.ROCKSDB_STATE] * 2


def test_memory_does_not_read_a_database_and_names_the_remedy(folder: JoinFolder) -> None:
    home = fresh(folder)
    pairs(home, LEFT, (1, 100))
    states = folder.stored(ROCKSDB, home, 1)
    with pytest.raises(StateUnreadable, match="take a savepoint, which every backend reads"):
        restored(folder, states, home="memory")
    other = folder.store(ROCKSDB, replace(JOIN, upper_ms=11), GROUPS)
    with pytest.raises(StateUnreadable, match="keep keys, times and bounds as they were"):
        other.restore(states, 1)


@pytest.mark.parametrize("home", HOMES)
@pytest.mark.parametrize("order", [SnapshotOrder(), SAVEPOINT])
def test_other_columns_in_one_subtask_than_another_are_refused(
    folder: JoinFolder, home: str, order: SnapshotOrder
) -> None:
    states: list[OperatorState] = []
    for groups, name in ((range(4), "l"), (range(4, GROUPS), "other")):
        store = folder.store(HOMES[home], JOIN, GROUPS, groups)
        names = ["k", name, "__hash", "__event_time"]
        store.accept(LEFT, pa.schema([(name, pa.int64()) for name in names]))
        states += folder.stored(HOMES[home], store, 1, order)
    with pytest.raises(StateUnreadable, match="has other columns in one subtask than another"):
        restored(folder, states, home=home)


def test_nested_columns_wait_as_they_are_in_every_home(folder: JoinFolder) -> None:
    kinds = {
        "tags": pa.list_(pa.string()),
        "both": pa.struct([("a", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))]),
    }
    values: list[dict[str, Any]] = [
        {"tags": ["x", None], "both": {"a": 1, "m": [("one", 1)]}},
        {"tags": None, "both": None},
        {"tags": [], "both": {"a": None, "m": []}},
    ]
    schema = pa.schema([("k", pa.int64()), *kinds.items(), ("__hash", pa.int64()), ("__event_time", pa.int64())])
    records = [{"k": 1, **value, "__hash": hash_of(1), "__event_time": 100} for value in values]
    store = folder.store(ROCKSDB, JOIN, GROUPS)
    store.accept(LEFT, schema)
    store.accept(RIGHT, SCHEMAS[RIGHT])
    list(store.merge(LEFT, pa.Table.from_pylist(records, schema)).pairs)
    for order, home in ((SnapshotOrder(), "rocksdb"), (SAVEPOINT, "memory"), (SAVEPOINT, "rocksdb")):
        again = restored(folder, folder.stored(ROCKSDB, store, 1, order), home=home)
        (found,) = again.merge(RIGHT, table(RIGHT, (1, 100))).pairs
        assert [{name: row[name] for name in kinds} for row in found.to_pylist()] == values


def test_a_column_that_cannot_be_stored_is_reported(folder: JoinFolder) -> None:
    schema = SCHEMAS[LEFT].append(pa.field("d", pa.dictionary(pa.int8(), pa.string())))
    with pytest.raises(UserError, match="cannot be kept in rocksdb; cast them, or use another state backend"):
        folder.store(ROCKSDB, JOIN, GROUPS).accept(LEFT, schema)


def test_nothing_is_left_of_a_join_that_is_closed_or_cannot_be_restored(folder: JoinFolder) -> None:
    home = fresh(folder)
    pairs(home, LEFT, (1, 100))
    states = folder.stored(ROCKSDB, home, 1)
    home.close()
    broken = replace(states[0], files=(replace(states[0].files[0], checksum="crc32:00000000"),))
    with pytest.raises(StateUnreadable, match="is corrupt"):
        restored(folder, [broken])
    assert [path for path in folder.scratch.path.iterdir() if path.is_dir()] == []
