"""State files that are not what was stored: each kind is refused by its name before anything is made of it."""

from __future__ import annotations

import io
import pickle
import random
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_common.checksums import checksum
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    Aggregate,
    IntervalJoin,
    KeyedAggregate,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    SourceState,
    SplitState,
    StateHandle,
    TriggeredWindow,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.runtime.in_flight import decode_elements, encode_element
from lockgate_taskmanager.state.backend import FileBackend, download, inline_handle, load
from lockgate_taskmanager.state.format.split_files import splits_in
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.state.join.join_spec import SIDES
from lockgate_taskmanager.state.rows.row_store import NEVER
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

from tests.join_homes import HOMES, join_folder
from tests.property.taskmanager.state.rows.test_row_histories import SCHEMA, SPEC, put
from tests.state_homes import BACKENDS, SAVEPOINT, SUM, SUMS, TestingBackend, partial, sums

IN_FILES = [name for name in BACKENDS if name != "memory"]
PLACES = 12  # in each file, beside its ends


def files_of(states: Iterable[OperatorState]) -> list[StateHandle]:
    found = [handle for state in states for handle in (*handles_of(state), *state.files)]
    assert found
    assert all(handle.path and handle.checksum.startswith("sha256:") for handle in found)
    return found


def refuse_each(files: Iterable[StateHandle], restore: Callable[[], object]) -> None:
    """One bit after the other, at the ends of each file and in between, and files that are cut off or go on."""
    chosen = random.Random(5)
    for handle in files:
        file = Path(handle.path.removeprefix("file://"))
        whole = file.read_bytes()
        places = {0, len(whole) - 1, *(chosen.randrange(len(whole)) for _ in range(PLACES))}
        damaged = [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in sorted(places)]
        for content in (*damaged, whole[:-1], whole + b"x", b""):
            file.write_bytes(content)
            with pytest.raises(StateUnreadable, match=f"the state file {handle.path} is corrupt: "):
                restore()
        file.write_bytes(whole)
    restore()


@pytest.fixture(params=IN_FILES)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = TestingBackend(BACKENDS[request.param], tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("window", [None, Window(TumblingWindow(10), "at")], ids=["aggregate", "windows"])
def test_keyed_state(backend: TestingBackend, window: Window | None) -> None:
    """Full, with increments, a database and its tables, and savepoints."""
    operator = replace(SUMS, window=window)
    rows = sums(("a", 1, 5), ("b", 2, 6))
    if window is not None:
        rows = rows.add_column(2, "__pane", pa.array([0, 10], pa.int64()))
    store = backend.fresh(operator, rows.schema)
    store.merge(rows)
    backend.stored(store, 1, SnapshotOrder())
    store.merge(rows)
    for state in (backend.stored(store, 2, SnapshotOrder(1)), backend.stored(store, 3, SAVEPOINT)):
        refuse_each(files_of([state]), lambda state=state: backend.restored(operator, state, number=2))  # type: ignore[misc]


WINDOWS = {
    "no window": None,
    "tumbling": Window(TumblingWindow(10), "at"),
    "sliding": Window(SlidingWindow(20, 10), "at"),
    "sessions": Window(SessionWindow(10), "at"),
    "fires early": Window(TriggeredWindow(10, every_count=1), "at"),
}
WITHOUT_NULLS = ("__hash", "__pane", "__event", "__wall", "__expiry", "__first#min", "__last#max")
OTHER_TYPES = (pa.float64(), pa.int32(), pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.timestamp("ms"))


def retyped(data: pa.Buffer, column: int, kind: pa.DataType) -> bytes:
    """The file with the values of a column in another type, NULL where there are none."""
    file = pa.ipc.open_file(data)
    schema = file.schema.set(column, pa.field(file.schema.names[column], kind))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as written:
        for number in range(file.num_record_batches):
            columns = file.get_batch(number).columns
            try:
                columns[column] = columns[column].cast(kind)
            except pa.ArrowException:
                columns[column] = pa.nulls(len(columns[column]), kind)
            written.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return bytes(sink.getvalue().to_pybytes())


def refuse_other_types(state: OperatorState, restore: Callable[[OperatorState], Any]) -> None:
    """Each column in each other type, and those of whole numbers that have to be there without."""
    assert state.handle is not None
    data = load(state.handle)
    schema = pa.ipc.open_file(data).schema
    for number, field in enumerate(schema):
        for kind in OTHER_TYPES:
            if kind != field.type:
                with pytest.raises(StateUnreadable):
                    restore(replace(state, handle=inline_handle(retyped(data, number, kind))))
        if field.name in WITHOUT_NULLS or field.name.endswith("#count"):
            without = retyped(retyped(data, number, pa.null()), number, field.type)
            with pytest.raises(StateUnreadable):
                restore(replace(state, handle=inline_handle(without)))
    restore(state)


@pytest.mark.parametrize("backend_name", BACKENDS)
@pytest.mark.parametrize("window", WINDOWS.values(), ids=WINDOWS)
def test_keyed_state_with_columns_of_other_types(backend_name: str, window: Window | None, tmp_path: Path) -> None:
    operator = replace(SUMS, window=window)
    rows = sums(("a", 1, 5), ("b", 2, 6))
    if window is not None:
        rows = rows.add_column(2, "__pane", pa.array([0, 10], pa.int64()))
        more = ("__p2", "__p3") if isinstance(window.kind, SessionWindow) else ("__p2",)
        for name in more:
            rows = rows.append_column(name, pa.array([3, 13], pa.int64()))
    home = TestingBackend(BACKENDS[backend_name], tmp_path)
    store = home.fresh(operator, rows.schema)
    store.merge(rows)
    state = home.stored(store)
    refuse_other_types(state, lambda damaged: home.restored(operator, damaged))
    home.close()


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_columns_of_authors_that_are_called_as_those_of_files_are_restored(backend_name: str, tmp_path: Path) -> None:
    """A record may have a column `__deleted`, and a key may be called as a part."""
    home = TestingBackend(BACKENDS[backend_name], tmp_path)
    records = pa.schema(
        [("k", pa.string()), ("__deleted", pa.string()), ("__base", pa.string()), ("__hash", pa.int64())]
    )
    store = home.maker.fresh(SPEC, records)
    for number, order in enumerate((SnapshotOrder(), SnapshotOrder(1), SAVEPOINT), start=1):
        put(store, {f"k{number}": (b"payload", 5, NEVER, NEVER)})
        state = home.stored(store, number, order)  # type: ignore[arg-type]
        home.maker.restored(SPEC, [state], number).close()
    store.close()
    sums_by_it = KeyedAggregate(("n#sum",), (Aggregate("n", SUM, "v"),))
    kinds = {"n#sum": pa.string(), "__p0": pa.int64()}
    aggregates = home.fresh(sums_by_it, partial(kinds, []).schema)
    aggregates.merge(partial(kinds, [("a", 1, 5)]))
    again = home.restored(sums_by_it, home.stored(aggregates))
    assert again.merge(partial(kinds, [("a", 1, 2)])).changed.to_pylist() == [{"n#sum": "a", "n": 7}]
    home.close()


@pytest.mark.parametrize("name", ["__deleted", "__base"])
@pytest.mark.parametrize("backend_name", BACKENDS)
def test_a_record_of_a_join_has_no_column_called_as_one_of_increments(backend_name: str, name: str) -> None:
    operator = IntervalJoin(("k",), ("k",), "at", "at", -5, 10, left_prefix="l_")
    schema = pa.schema([(column, pa.int64()) for column in ("k", name, "__hash", "__event_time")])
    choice = BACKENDS[backend_name]
    with join_folder() as folder:
        store = folder.store(choice, operator, 8)
        if choice.full_every > 1:
            with pytest.raises(UserError, match=f"the column name '{name}' is reserved where records are stored by"):
                store.accept(SIDES[0], schema)
            return
        for side in SIDES:
            store.accept(side, schema)
            list(store.merge(side, pa.Table.from_pylist([dict.fromkeys(schema.names, 1)], schema)).pairs)
        state = folder.stored(choice, store, 1, SAVEPOINT)
        folder.store(choice, operator, 8).restore(state, 1)


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_rows_by_key_with_columns_of_other_types(backend_name: str, tmp_path: Path) -> None:
    home = TestingBackend(BACKENDS[backend_name], tmp_path)
    store = home.maker.fresh(SPEC, SCHEMA)
    put(store, {f"k{n}": (b"payload", 5, NEVER, NEVER) for n in range(20)})
    state = home.stored(store)  # type: ignore[arg-type]
    store.close()
    refuse_other_types(state, lambda damaged: home.maker.restored(SPEC, [damaged], 1).close())
    home.close()


def test_rows_of_process_functions_and_a_planted_pickle(backend: TestingBackend, tmp_path: Path) -> None:
    store = backend.maker.fresh(SPEC, SCHEMA)
    put(store, {f"k{n}": (pickle.dumps(n), NEVER, NEVER, NEVER) for n in range(20)})
    state = backend.stored(store)  # type: ignore[arg-type]
    store.close()
    marker = tmp_path / "marker"
    put(planted := backend.maker.fresh(SPEC, SCHEMA), {"k1": (pickle.dumps(Plant(marker)), NEVER, NEVER, NEVER)})
    other = backend.stored(planted, number=2)  # type: ignore[arg-type]
    planted.close()

    def run(state: OperatorState) -> None:
        """As a function that is called for the keys would, if it were careless with what it is given."""
        rows = backend.maker.restored(SPEC, [state], 1)
        again = backend.stored(rows, number=9)  # type: ignore[arg-type]
        rows.close()
        assert again.handle is not None
        for payload in SPEC.read(load(again.handle), "f").batches:
            for value in payload.column("__payload").to_pylist():
                pickle.loads(value)

    refuse_each(files_of([state]), lambda: run(state))
    (mine,), (theirs,) = files_of([state]), files_of([other])
    Path(mine.path.removeprefix("file://")).write_bytes(Path(theirs.path.removeprefix("file://")).read_bytes())
    with pytest.raises(StateUnreadable, match="is corrupt"):
        run(state)
    assert not marker.exists()
    run(other)
    assert marker.exists(), "the plant works"


class Plant:
    """Unpickling it writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.write_text, (self.marker, "the planted code ran")


@pytest.mark.parametrize("home", HOMES)
def test_both_sides_of_a_join(home: str) -> None:
    operator = IntervalJoin(("k",), ("k",), "at", "at", -5, 10, left_prefix="l_")
    schema = pa.schema([(name, pa.int64()) for name in ("k", "__hash", "__event_time")])
    with join_folder() as folder:
        store = folder.store(HOMES[home], operator, 8)
        for side in SIDES:
            store.accept(side, schema)
        for side in SIDES:
            list(store.merge(side, pa.Table.from_pylist([dict.fromkeys(schema.names, 1)], schema)).pairs)
        for order in (SnapshotOrder(), SAVEPOINT):
            states = folder.stored(HOMES[home], store, 1, order)

            def restore(states: tuple[OperatorState, ...] = states) -> None:
                again = folder.store(HOMES[home], operator, 8)
                again.restore(states, 1)
                again.close()

            refuse_each(files_of(states), restore)


def test_records_in_flight_splits_at_rest_and_rows_of_sinks(tmp_path: Path) -> None:
    writer = FileBackend(str(tmp_path), "a1-v-0").writer(1)
    table = pa.table({"k": [1, 2, 3]})
    channel = writer.store("in-v-0", pa.py_buffer(encode_element(table)))
    refuse_each([channel], lambda: list(decode_elements(load(channel))))
    splits = SourceState(splits=tuple(SplitState(f"file-{n}", n, n) for n in range(50)))
    shared = writer.store("source-splits", pa.py_buffer(encode(splits)), is_shared=True)
    refuse_each([shared], lambda: splits_in([shared]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    rows = writer.store("sink", pa.py_buffer(sink.getvalue()))
    refuse_each([rows], lambda: pa.ipc.open_stream(load(rows)).read_all())


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (2 << 20) + 5])
def test_the_hash_made_while_writing_is_that_of_the_file(tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    source = tmp_path / "source"
    source.write_bytes(data)
    writer = FileBackend(str(tmp_path / "storage"), "a").writer(1)
    for handle in (writer.store("buffer", pa.py_buffer(data)), writer.store_file("file", source)):
        assert Path(handle.path.removeprefix("file://")).read_bytes() == data
        assert (handle.size_bytes, handle.checksum) == (size, checksum(data))
        assert load(handle).to_pybytes() == data
        download(handle, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == data


def test_a_file_without_a_known_checksum_is_not_read(tmp_path: Path) -> None:
    handle = replace(FileBackend(str(tmp_path), "a").writer(1).store("op", pa.py_buffer(b"state")), checksum="")
    for read in (lambda: load(handle), lambda: download(handle, tmp_path / "copy")):
        with pytest.raises(
            StateUnreadable, match=r"is corrupt: 5 bytes with sha256:.* expected 5 bytes with a checksum"
        ):
            read()


@pytest.mark.parametrize("name", ["filesystem, incremental", "filesystem, diffs", "rocksdb"])
def test_a_checkpoint_of_an_older_version_is_restored_and_nothing_builds_on_its_files(
    tmp_path: Path, name: str
) -> None:
    """They have a CRC only, which can be met with other content: the next checkpoint is full."""
    testing = TestingBackend(BACKENDS[name], tmp_path)
    try:
        store = testing.fresh(SUMS, sums(("a", 1, 5)).schema)
        store.merge(sums(("a", 1, 5), ("b", 2, 6)))
        state = testing.stored(store, 1, SnapshotOrder())
        older = replace(state, handle=_as_older(state.handle), files=tuple(_as_older(file) for file in state.files))
        names = {handle.path for handle in files_of([state])}
        for known, is_built_on in ((state, True), (older, False)):
            again = testing.restored(SUMS, known)
            again.merge(sums(("a", 1, 1)))
            following = files_of([testing.stored(again, 2, SnapshotOrder(1), part=1 + is_built_on)])
            assert bool(names & {handle.path for handle in following}) is is_built_on
    finally:
        testing.close()


def _as_older(handle: StateHandle | None) -> Any:
    assert handle is not None
    crc = zlib.crc32(Path(handle.path.removeprefix("file://")).read_bytes())
    return replace(handle, checksum=f"crc32:{crc:08x}")
