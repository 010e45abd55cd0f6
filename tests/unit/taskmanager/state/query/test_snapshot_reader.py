"""Reading single keys of snapshots, over every backend: what a store holds is what a query finds."""

from __future__ import annotations

import errno
import json
import pickle
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from lockgate_common import storage
from lockgate_common.checksums import checksum
from lockgate_proto import messages as m
from lockgate_proto.codec import decode, encode
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.factory import AggregateStores, StoreFactory
from lockgate_taskmanager.state.format.key_payload import written
from lockgate_taskmanager.state.layout import parts
from lockgate_taskmanager.state.query import opened, snapshot_reader
from lockgate_taskmanager.state.query.opened import OpenedFiles
from lockgate_taskmanager.state.query.snapshot_reader import SnapshotReader
from lockgate_taskmanager.state.query.spark_hash import hash_of
from lockgate_taskmanager.state.rows.row_store import NEVER, Keys, Rows, RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.task.program import SnapshotOrder

BACKENDS = {
    "memory": m.StateBackend(m.MemoryBackend()),
    "filesystem": m.StateBackend(m.FilesystemBackend()),
    "filesystem, incremental": m.StateBackend(m.FilesystemBackend(), full_every=9),
    "filesystem, diffs": m.StateBackend(m.FilesystemBackend(), full_every=9, binary_diff=True),
    "rocksdb": m.StateBackend(m.RocksdbBackend(memory_bytes=16 << 20)),
}
GROUPS, SUBTASKS, NOW = 16, 2, 5_000
COUNT = m.Aggregate("n", m.AggregateFunction.COUNT)
MEAN = m.Aggregate("mean", m.AggregateFunction.AVG, "x")
TOTALS = m.KeyedAggregate(("word",), (COUNT, MEAN))


@dataclass
class Snapshots:
    """Stores of each subtask, their snapshots, and a reader of these. at: the newest snapshot's id."""

    choice: m.StateBackend
    folder: Path
    at: int = 0
    stores: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scratch = ScratchFolder(self.folder / "work", "state-")
        self.reader = SnapshotReader(OpenedFiles(ScratchFolder(self.folder / "work", "query-")), lambda: NOW)

    def make(self, spec: Any, schema: pa.Schema) -> None:
        maker = StoreFactory(self.choice, self.scratch)
        for subtask in range(SUBTASKS):
            size = GROUPS // SUBTASKS
            self.stores.append(maker.fresh(spec(range(subtask * size, (subtask + 1) * size)), schema))

    def take(self) -> m.StateQuery:
        """A checkpoint; what to ask for it, without the keys."""
        before, self.at = self.at, self.at + 1
        parts = []
        for subtask, store in enumerate(self.stores):
            writer = make_backend(self.choice, str(self.folder / "storage"), f"a1-v-{subtask}").writer(self.at)
            frozen = store.snapshot(SnapshotOrder(base_id=before))
            parts.append(m.SubtaskState("v", subtask, (frozen.persist(self.at, writer),)))
            frozen.release()
        if isinstance(self.choice.backend, m.MemoryBackend):
            assert not any(increment.taken_over for part in parts for increment in part.operators[0].increments)
        shape = m.VertexShape("v", SUBTASKS, GROUPS, ("op", "sink"))
        data = encode(m.CheckpointMetadata(1, checkpoint_id=self.at, vertices=(shape,), subtasks=tuple(parts)))
        file = self.folder / "storage" / f"chk-{self.at}" / "_metadata"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return m.StateQuery(7, file.as_uri(), checksum(data))

    def ask(self, query: m.StateQuery, *keys: str, operator: str = "op") -> m.StateAnswer:
        wanted = (m.OperatorKeys(operator, keys),)
        return self.reader.answer(m.StateQuery(query.request, query.pointer, query.checksum, wanted))

    def values(self, query: m.StateQuery, *keys: str) -> list[Any]:
        answer = self.ask(query, *keys)
        assert answer.outcome is m.QueryOutcome.ANSWERED, answer.problem
        return [json.loads(value.value) if value.found else None for value in answer.values]

    def close(self) -> None:
        self.reader.close()
        for store in self.stores:
            store.close()
        self.scratch.close()


@pytest.fixture(params=BACKENDS)
def snapshots(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Snapshots]:
    if "rocksdb" in request.param:
        pytest.importorskip("rocksdict")
    made = Snapshots(BACKENDS[request.param], tmp_path)
    yield made
    made.close()


def hashed(words: Sequence[str | None]) -> Any:
    return np.array([hash_of([pa.scalar(word, pa.string())]) for word in words], np.int64)


def merge(snapshots: Snapshots, words: Sequence[str | None], **columns: Any) -> None:
    """Gives each record to the subtask of its key group."""
    table = pa.table({"word": pa.array(words, pa.string()), "__hash": hashed(words), **columns})
    owner = np.mod(table.column("__hash").to_numpy(), GROUPS) * SUBTASKS // GROUPS
    for subtask, store in enumerate(snapshots.stores):
        store.merge(table.filter(pa.array(owner == subtask)))


def counted(snapshots: Snapshots, words: Sequence[str | None]) -> None:
    ones = pa.array([1] * len(words), pa.int64())
    sums = pa.array([float(len(word or "")) for word in words])
    merge(snapshots, words, __rows=ones, __p1=sums, __p2=ones)


def totals(snapshots: Snapshots) -> None:
    ints = [(name, pa.int64()) for name in ("__hash", "__rows")]
    schema = pa.schema([("word", pa.string()), *ints, ("__p1", pa.float64()), ("__p2", pa.int64())])
    snapshots.make(lambda groups: StoreSpec("op", TOTALS, GROUPS, groups), schema)


def test_an_aggregate_is_read_as_of_each_checkpoint(snapshots: Snapshots) -> None:
    totals(snapshots)
    words = [f"word {number}" for number in range(300)]
    counted(snapshots, [*words, None])
    first = snapshots.take()
    counted(snapshots, ["word 7", "new"])
    second = snapshots.take()
    keys = ['["word 7"]', '["word 8"]', '["new"]', "[null]"]
    once = {"values": {"n": 1, "mean": 6.0}}
    assert snapshots.values(first, *keys) == [once, once, None, {"values": {"n": 1, "mean": 0.0}}]
    expected = [{"values": {"n": 2, "mean": 6.0}}, once, {"values": {"n": 1, "mean": 3.0}}]
    assert snapshots.values(second, *keys[:3]) == expected
    assert snapshots.values(first, *keys[:3]) == [once, once, None]
    found = snapshots.values(second, *(json.dumps([word]) for word in words))
    assert [item["values"]["n"] for item in found] == [2 if word == "word 7" else 1 for word in words]


def test_each_part_is_read_once_whatever_the_order_of_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    snapshots.reader = SnapshotReader(OpenedFiles(ScratchFolder(tmp_path / "work", "query-"), memory_bytes=1))
    totals(snapshots)
    words = [f"word {number}" for number in range(40)]
    counted(snapshots, words)
    query = snapshots.take()
    read: list[str] = []
    load = opened.load
    monkeypatch.setattr(opened, "load", lambda handle: read.append(handle.path) or load(handle))
    owner = [int(number) for number in np.mod(hashed(words), GROUPS) * SUBTASKS // GROUPS]
    assert owner != sorted(owner)
    assert owner != sorted(owner, reverse=True)
    answer = snapshots.ask(query, *(json.dumps([word]) for word in words), '["none"]')
    assert [json.loads(value.key)["word"] for value in answer.values] == [*words, "none"]
    assert [value.found for value in answer.values] == [True] * 40 + [False]
    assert len(read) == SUBTASKS
    snapshots.close()


def prepared(snapshots: Snapshots, query: m.StateQuery, *operators: str) -> m.StateAnswer:
    wanted = tuple(m.OperatorKeys(operator) for operator in operators or ("op",))
    return snapshots.reader.prepare(replace(query, operators=wanted, open_only=True))


def test_what_was_prepared_answers_without_its_storage(snapshots: Snapshots) -> None:
    totals(snapshots)
    words = [f"word {number}" for number in range(40)]
    counted(snapshots, words)
    query = replace(snapshots.take(), operators=(m.OperatorKeys("op", ('["word 7"]',)),))
    assert not snapshots.reader.is_ready(query)
    assert prepared(snapshots, query, "op", "unknown").outcome is m.QueryOutcome.ANSWERED
    assert snapshots.reader.is_ready(query)
    counted(snapshots, ["word 7"])
    later = snapshots.take()
    assert not snapshots.reader.is_ready(replace(later, operators=query.operators))
    assert prepared(snapshots, later).outcome is m.QueryOutcome.ANSWERED
    shutil.rmtree(snapshots.folder / "storage")
    for asked, n in [(query, 1), (later, 2)]:
        found = snapshots.values(asked, *(json.dumps([word]) for word in words))
        assert [item["values"]["n"] for item in found] == [n if word == "word 7" else 1 for word in words]


def test_what_cannot_be_prepared(snapshots: Snapshots) -> None:
    totals(snapshots)
    counted(snapshots, ["a", "b", "c", "d"])
    query = snapshots.take()
    few = OpenedFiles(ScratchFolder(snapshots.folder / "work", "query-"), memory_bytes=1, databases=2 * SUBTASKS - 1)
    snapshots.reader = SnapshotReader(few)
    refused = prepared(snapshots, query)
    assert (refused.outcome, "no room for two" in refused.problem) == (m.QueryOutcome.UNREADABLE_STATE, True)
    snapshots.reader = SnapshotReader(OpenedFiles(ScratchFolder(snapshots.folder / "work", "query-")))
    shutil.rmtree(snapshots.folder / "storage")
    assert prepared(snapshots, query).outcome is m.QueryOutcome.CHECKPOINT_GONE


def test_a_database_is_released_when_nobody_reads_it_any_more(tmp_path: Path) -> None:
    pytest.importorskip("rocksdict")
    snapshots = Snapshots(BACKENDS["rocksdb"], tmp_path)
    totals(snapshots)
    counted(snapshots, [f"word {number}" for number in range(40)])
    metadata = decode(m.CheckpointMetadata, Path(snapshots.take().pointer.removeprefix("file://")).read_bytes())
    first, second = (part.operators[0] for part in metadata.subtasks)
    folder = ScratchFolder(tmp_path / "work", "query-")
    few = OpenedFiles(folder, databases=1)
    _, read = few.open(first, "first", GROUPS)
    few.open(second, "second", GROUPS)
    assert [few.has(first, "first"), few.has(second, "second")] == [False, True]
    assert (folder.path / "0").exists()
    assert read.sample() is not None
    del read
    assert not (folder.path / "0").exists()
    few.close()
    snapshots.close()


def test_a_table_of_several_databases_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rocksdict")
    snapshots = Snapshots(BACKENDS["rocksdb"], tmp_path)
    few = OpenedFiles(ScratchFolder(tmp_path / "work", "query-"), databases=SUBTASKS)
    snapshots.reader = SnapshotReader(few)
    totals(snapshots)
    counted(snapshots, [f"word {number}" for number in range(40)])
    read: list[str] = []
    download = opened.download
    monkeypatch.setattr(
        opened, "download", lambda handle, target: read.append(handle.checksum) or download(handle, target)
    )
    for number in range(4):
        counted(snapshots, [f"new {number}"])
        snapshots.values(snapshots.take(), *(f'["word {word}"]' for word in range(40)))
    assert sorted(read) == sorted(set(read))
    snapshots.close()


def test_a_large_answer_is_refused_before_all_of_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    totals(snapshots)
    words = [f"word {number}" for number in range(40)]
    counted(snapshots, words)
    monkeypatch.setattr(snapshot_reader, "MOST_ANSWER_BYTES", 200)
    made: list[Any] = []
    value_of = snapshot_reader.value_of
    monkeypatch.setattr(snapshot_reader, "value_of", lambda *given: made.append(given) or value_of(*given))
    answer = snapshots.ask(snapshots.take(), *(json.dumps([word]) for word in words))
    assert answer.outcome is m.QueryOutcome.NOT_ANSWERABLE
    assert "more than 200 bytes; ask for fewer keys" in answer.problem
    assert 0 < len(made) < 10
    snapshots.close()


@pytest.mark.parametrize(
    ("key", "operator", "words"),
    [
        ("7", "op", "has 1 value"),
        ("[7]", "op", "is no value of the key column word, which is string"),
        ('["a", "b"]', "op", "has 2 values, and a key here has 1: word"),
        ("[", "op", "cannot be read"),
        ('["a"]', "other", "has no operator 'other'; of its operators with state by key, those that have it are op"),
        ('["a"]', "sink", "operator 'sink' has no state by key in this checkpoint"),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, key: str, operator: str, words: str) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    totals(snapshots)
    counted(snapshots, ["a"])
    answer = snapshots.ask(snapshots.take(), key, operator=operator)
    assert answer.outcome is m.QueryOutcome.NOT_ANSWERABLE
    assert words in answer.problem
    snapshots.close()


def test_a_deleted_checkpoint_is_distinguished_from_a_damaged_one(tmp_path: Path) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    totals(snapshots)
    counted(snapshots, ["a", "b", "c", "d"])
    query = snapshots.take()
    files = sorted((tmp_path / "storage" / "chk-1").glob("*.state"))
    for file in files:
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    assert snapshots.ask(query, '["a"]').outcome is m.QueryOutcome.UNREADABLE_STATE
    for file in files:
        file.unlink()
    answer = snapshots.ask(query, '["a"]')
    assert answer.outcome is m.QueryOutcome.CHECKPOINT_GONE
    assert any(file.name in answer.problem for file in files)
    snapshots.close()


@pytest.mark.parametrize("of_storage", [TimeoutError("timed out"), OSError(errno.EIO, "AWS Error NETWORK_CONNECTION")])
@pytest.mark.parametrize("reads", ["metadata", "state"])
def test_a_storage_that_does_not_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_storage: OSError, reads: str
) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    totals(snapshots)
    counted(snapshots, ["a"])
    query = snapshots.take()
    read_all = storage.read_all

    def fails(location: storage.Location, most_bytes: int) -> pa.Buffer:
        if location.name.endswith(".state") == (reads == "state"):
            raise of_storage
        return read_all(location, most_bytes)

    monkeypatch.setattr(storage, "read_all", fails)
    for answer in (snapshots.ask(query, '["a"]'), prepared(snapshots, query)):
        assert (answer.outcome, "; try again" in answer.problem) == (m.QueryOutcome.TRY_AGAIN, True)
    monkeypatch.setattr(storage, "read_all", read_all)
    assert snapshots.ask(query, '["a"]').outcome is m.QueryOutcome.ANSWERED
    snapshots.close()


def test_a_file_that_may_not_be_read_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    totals(snapshots)
    counted(snapshots, ["a"])
    query = snapshots.take()

    def refuses(_location: storage.Location, _most_bytes: int) -> pa.Buffer:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(storage, "read_all", refuses)
    assert snapshots.ask(query, '["a"]').outcome is m.QueryOutcome.UNREADABLE_STATE
    snapshots.close()


def test_other_hashes_than_ours_are_noticed(tmp_path: Path) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    totals(snapshots)
    ones = pa.array([1], pa.int64())
    columns = {"__rows": ones, "__p1": pa.array([1.0]), "__p2": ones}
    snapshots.stores[0].merge(pa.table({"word": ["a"], "__hash": pa.array([1 << 20], pa.int64()), **columns}))
    answer = snapshots.ask(snapshots.take(), '["a"]')
    assert (answer.outcome, "hashes them in another way" in answer.problem) == (m.QueryOutcome.NOT_ANSWERABLE, True)
    snapshots.close()


def test_a_hash_is_checked_where_it_proves_something(snapshots: Snapshots) -> None:
    totals(snapshots)
    for word, wrong in [(None, hash_of([pa.scalar(None, pa.string())])), ("a", 15)]:  # NULL's group comes first
        columns = {"__rows": pa.array([1]), "__p1": pa.array([1.0]), "__p2": pa.array([1])}
        table = pa.table({"word": pa.array([word], pa.string()), "__hash": pa.array([wrong], pa.int64()), **columns})
        snapshots.stores[1].merge(table)
    answer = snapshots.ask(snapshots.take(), "[null]")
    assert (answer.outcome, "hashes them in another way" in answer.problem) == (m.QueryOutcome.NOT_ANSWERABLE, True)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (m.TumblingWindow(1000), [(2000, 3000, 2), (3000, 4000, 1)]),
        (m.SlidingWindow(2000, 1000), [(1000, 3000, 3), (2000, 4000, 3), (3000, 5000, 1)]),
        (m.CumulatingWindow(2000, 1000), [(2000, 3000, 2), (2000, 4000, 3)]),
        (m.TriggeredWindow(1000, every_count=2), [(2000, 3000, 2), (3000, 4000, 1)]),
        (m.TriggeredWindow(1000, every_count=2, purge=True), [(2000, 3000, 0), (3000, 4000, 1)]),
        (m.SessionWindow(600), [(2100, 3700, 3)]),
    ],
)
def test_the_open_windows_of_a_key(snapshots: Snapshots, kind: Any, expected: list[tuple[int, int, int]]) -> None:
    operator = m.KeyedAggregate(("word",), (COUNT,), m.Window(kind, "t"))
    names = [("word", pa.string()), ("__hash", pa.int64()), ("__pane", pa.int64()), ("__rows", pa.int64())]
    is_session = isinstance(kind, m.SessionWindow)
    bounds = [("__p1", pa.int64()), ("__p2", pa.int64())] if is_session else []
    snapshots.make(lambda groups: StoreSpec("op", operator, GROUPS, groups), pa.schema([*names, *bounds]))
    times = [1100, 2100, 2600, 3100]
    for word in ("a", "b"):
        for time in times:
            pane = time // kind.gap_ms * kind.gap_ms if is_session else time // 1000 * 1000
            ends = {"__p1": pa.array([time]), "__p2": pa.array([time])} if is_session else {}
            merge(snapshots, [word], __pane=pa.array([pane]), __rows=pa.array([1]), **ends)
    for store in snapshots.stores:
        store.advance(2050)
        while store.has_more:
            store.go_on()
    (found,) = snapshots.values(snapshots.take(), '["a"]')
    assert [(window["window_start"], window["window_end"], window["n"]) for window in found["windows"]] == expected
    assert snapshots.values(snapshots.take(), '["c"]') == [None]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (m.TumblingWindow(1000), [(12_000, 13_000, 2)]),
        (m.SlidingWindow(2000, 1000), [(11_000, 13_000, 2), (12_000, 14_000, 2)]),
        (m.CumulatingWindow(3000, 1000), [(12_000, 13_000, 2), (12_000, 14_000, 2), (12_000, 15_000, 2)]),
        (m.SessionWindow(600), [(12_100, 13_200, 2)]),
    ],
)
def test_the_open_windows_of_processing_time(
    snapshots: Snapshots, kind: Any, expected: list[tuple[int, int, int]]
) -> None:
    operator = m.KeyedAggregate(("word",), (COUNT,), m.Window(kind, processing_time=True))
    schema = pa.schema([("word", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64())])
    maker = StoreFactory(snapshots.choice, snapshots.scratch)
    for groups in (range(8), range(8, 16)):
        snapshots.stores.append(AggregateStores(maker, StoreSpec("op", operator, GROUPS, groups)).fresh(schema))
    for now_ms in (10_100, 12_100, 12_600, 12_700):
        for store in snapshots.stores:
            store.tick(now_ms)
        if now_ms < 12_700:
            merge(snapshots, ["a"], __rows=pa.array([1], pa.int64()))
    found, none = snapshots.values(snapshots.take(), '["a"]', '["b"]')
    assert [(window["window_start"], window["window_end"], window["n"]) for window in found["windows"]] == expected
    assert none is None


def put(snapshots: Snapshots, words: list[str], payloads: list[Any], expiry: int = NEVER) -> None:
    hashes = hashed(words)
    owner = np.mod(hashes, GROUPS) * SUBTASKS // GROUPS
    for subtask, store in enumerate(snapshots.stores):
        mine = np.flatnonzero(owner == subtask)
        keys = Keys(pa.record_batch({"word": pa.array(words, pa.string())}), hashes)
        never, over = np.full(len(words), NEVER), np.full(len(words), expiry)
        raw = [None if item is None else pickle.dumps((item, [], []), 5) if item else b"" for item in payloads]
        store.put(keys.take(mine), Rows(pa.array(raw, pa.binary()), never, never, over).take(mine))


def put_large(snapshots: Snapshots, word: str, state: dict[str, Any]) -> None:
    """A new key, with its elements apart where the store keeps them so."""
    keys = Keys(pa.record_batch({"word": pa.array([word])}), hashed([word]))
    store = snapshots.stores[int(keys.hashes[0]) % GROUPS * SUBTASKS // GROUPS]
    payload, elements = written(state, [], [], {}, store.elements is not None)
    never = np.array([NEVER])
    store.put(keys, Rows(pa.array([payload]), never, never, never))
    if elements:
        names, values = (pa.array(column, pa.binary()) for column in zip(*elements, strict=True))
        store.elements.put(keys.take(np.zeros(len(elements), np.int64)), names, values)


def test_the_states_of_a_process_function(snapshots: Snapshots) -> None:
    schema = pa.schema([("Word", pa.string()), ("x", pa.int64()), ("__hash", pa.int64())])
    snapshots.make(lambda groups: RowSpec("op", "process", ("Word",), GROUPS, groups), schema)
    state = {"last": (3, 0), "all": [(1, 0), (2, NOW), (3, NOW + 1)], "by": {"x": (1.5, 0), "y": (2.5, 1)}}
    words = [f"k{number}" for number in range(50)]
    long = {"text": ("the same long text again and again " * 20, 0)}
    put(snapshots, [*words, "long"], [state] * 50 + [long])
    first = snapshots.take()
    long["text"] = long["text"][0] + "!", 0
    put(snapshots, ["k1", "k2", "long"], [{"last": (4, 0)}, None, long])
    by = {f"entry {number}": (number, NOW if number % 2 else 0) for number in range(1_000)}
    put_large(snapshots, "large", {"last": (5, 0), "all": [(number, 0) for number in range(9)], "by": by})
    second = snapshots.take()
    whole = {"states": {"last": 3, "all": [1, 3], "by": [["x", 1.5]]}}
    assert snapshots.values(first, '["k1"]', '["k2"]', '["none"]') == [whole, whole, None]
    assert snapshots.values(second, '["k1"]', '["k2"]', '["k3"]') == [{"states": {"last": 4}}, None, whole]
    assert snapshots.values(second, '["long"]') == [{"states": {"text": long["text"][0]}}]
    pairs = [[f"entry {number}", number] for number in range(0, 1_000, 2)]
    assert snapshots.values(second, '["large"]') == [{"states": {"last": 5, "all": [*range(9)], "by": pairs}}]


def test_a_state_of_another_class_is_not_made(tmp_path: Path) -> None:
    snapshots = Snapshots(BACKENDS["filesystem"], tmp_path)
    schema = pa.schema([("word", pa.string()), ("__hash", pa.int64())])
    snapshots.make(lambda groups: RowSpec("op", "process", ("word",), GROUPS, groups), schema)
    put(snapshots, ["a"], [{"last": (Path("x"), 0)}])
    answer = snapshots.ask(snapshots.take(), '["a"]')
    assert (answer.outcome, "pathlib" in answer.problem) == (m.QueryOutcome.UNREADABLE_STATE, True)
    snapshots.close()


def test_a_deduplication_knows_a_key_until_it_expires(snapshots: Snapshots) -> None:
    schema = pa.schema([("word", pa.string()), ("__hash", pa.int64())])
    snapshots.make(lambda groups: RowSpec("op", "deduplicate", ("word",), GROUPS, groups), schema)
    put(snapshots, ["a"], [{}])
    put(snapshots, ["b"], [{}], expiry=NOW)
    put(snapshots, ["c"], [{}], expiry=NOW + 1)
    query = snapshots.take()
    known = {"known": True}
    assert snapshots.values(query, '["a"]', '["b"]', '["c"]', '["d"]') == [known, None, known, None]


def test_a_time_that_python_cannot_hold_is_text_and_hides_no_other_key(snapshots: Snapshots) -> None:
    latest = m.Aggregate("latest", m.AggregateFunction.MAX, "at")
    operator, kind = m.KeyedAggregate(("word",), (COUNT, latest)), pa.timestamp("us", "UTC")
    column = parts(operator)[1].column
    schema = pa.schema([("word", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64()), (column, kind)])
    snapshots.make(lambda groups: StoreSpec("op", operator, GROUPS, groups), schema)
    times = pa.array([0, 10**18], kind)
    merge(snapshots, ["good", "far"], __rows=pa.array([1, 1], pa.int64()), **{column: times})
    good, far = snapshots.values(snapshots.take(), '["good"]', '["far"]')
    assert good == {"values": {"n": 1, "latest": "1970-01-01T00:00:00+00:00"}}
    assert far == {"values": {"n": 1, "latest": "1000000000000000000 us since 1970"}}


@pytest.mark.parametrize("bound", ["", "_METADATA_BYTES", "_MOST_METADATA"])
def test_the_metadata_of_many_jobs_is_kept_as_far_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    is_large = bool(bound)
    if bound:
        monkeypatch.setattr(snapshot_reader, bound, 1)
    reader = SnapshotReader(OpenedFiles(ScratchFolder(tmp_path / "work", "query-")), lambda: NOW)
    jobs = [Snapshots(BACKENDS["filesystem"], tmp_path / f"job {number}") for number in range(6)]
    queries = []
    for job in jobs:
        totals(job)
        counted(job, ["a", "b"])
        queries.append(replace(job.take(), operators=(m.OperatorKeys("op", ('["a"]',)),)))
        assert reader.prepare(queries[-1]).outcome is m.QueryOutcome.ANSWERED
    assert [reader.is_ready(query) for query in queries] == [not is_large, not is_large, True, True, True, True]
    shutil.rmtree(tmp_path / "job 0" / "storage")  # its checkpoint was subsumed
    wanted = m.QueryOutcome.CHECKPOINT_GONE if is_large else m.QueryOutcome.ANSWERED
    assert reader.answer(queries[0]).outcome is wanted
    reader.close()
    for job in jobs:
        job.close()
