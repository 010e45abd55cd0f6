"""Large maps and lists of process functions: what a change of an element writes, and what becomes of the elements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import FilesystemBackend, OperatorState, RocksdbBackend, StateBackend, StateKind
from lockgate_taskmanager.state.format import key_payload
from lockgate_taskmanager.state.rocksdb import frozen_database
from lockgate_taskmanager.state.rocksdb.element_entries import bounds, prefix
from lockgate_taskmanager.state.rows import row_database, row_elements
from lockgate_taskmanager.state.rows.row_store import NEVER
from lockgate_taskmanager.task.program import StateUnreadable

from tests.large_states import LargeStates, States

ELEMENTS = 10_000
ROCKSDB = StateBackend(RocksdbBackend(memory_bytes=16 << 20))
BACKENDS = {"diffs": StateBackend(FilesystemBackend(), full_every=10, binary_diff=True), "rocksdb": ROCKSDB}
EDITS: dict[str, Callable[[States], Any]] = {
    "entry": lambda states: states.mapped.__setitem__("price 4321", -1),
    "removal": lambda states: states.mapped.__delitem__("price 4321"),
    "appended": lambda states: states.listed.append("name 4321"),
}


def fill(states: States) -> None:
    states.listed.set([f"name {number}" for number in range(ELEMENTS)])
    for number in range(ELEMENTS):
        states.mapped[f"price {number}"] = number


def written_by(number: int, state: OperatorState) -> int:
    """Bytes of the files that a snapshot has stored itself."""
    return sum(file.size_bytes for file in (*state.files, *state.increments) if file.checkpoint_id == number)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[str], LargeStates]]:
    made: list[LargeStates] = []

    def one(backend: str) -> LargeStates:
        made.append(LargeStates(BACKENDS[backend], tmp_path / str(len(made))))
        return made[-1]

    yield one
    for store in made:
        store.close()


@pytest.fixture
def rocks(make: Callable[[str], LargeStates]) -> LargeStates:
    return make("rocksdb")


def changes_of(store: LargeStates, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes | None]:
    """Everything that is written to the database from now on."""
    database, found = store.rows.database, {}  # type: ignore[attr-defined]
    write = database.write
    monkeypatch.setattr(database, "write", lambda changes: (found.update(changes), write(changes)))
    return found


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_changed_element_of_ten_thousand_stores_that_element(
    make: Callable[[str], LargeStates], backend: str, edit: str
) -> None:
    store = make(backend)
    store.visit("a", fill)
    store.snapshot(1)
    wanted = store.visit("a", EDITS[edit])
    second = store.snapshot(2, 1)
    assert 0 < written_by(2, second) < 5_000, "most of it describes the columns, or the table"
    store.restore([second], 2)
    assert store.view("a") == wanted


@pytest.mark.parametrize("edit", EDITS)
def test_only_the_row_of_the_element_is_written(rocks: LargeStates, monkeypatch: pytest.MonkeyPatch, edit: str) -> None:
    rocks.visit("a", fill)
    changes = changes_of(rocks, monkeypatch)
    rocks.visit("a", EDITS[edit])
    ((name, value),) = changes.items()
    assert len(name) + len(value or b"") < 100
    assert (value is None) == (edit == "removal")


def test_an_entry_that_is_put_in_again_is_the_last(rocks: LargeStates) -> None:
    def again(states: States) -> None:
        for key in ("price 3", "price 9999"):
            del states.mapped[key]
            states.mapped[key] = -1

    rocks.visit("a", fill)
    wanted = rocks.visit("a", again)
    assert wanted[0][-2:] == [("price 3", -1), ("price 9999", -1)]
    assert rocks.view("a") == wanted


def test_a_small_key_has_one_row_and_a_large_one_is_apart_from_the_next_change_on(
    rocks: LargeStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = changes_of(rocks, monkeypatch)
    rocks.visit("a", lambda states: states.mapped.__setitem__("x", "small"))
    assert len(changes) == 1
    rocks.visit("a", lambda states: states.mapped.__setitem__("y", "large" * 2_000))
    assert len(changes) == 3
    changes.clear()
    rocks.visit("a", lambda states: states.value.set("v"))
    assert [len(value or b"") < 200 for value in changes.values()] == [True]


@pytest.mark.parametrize("end", ["cleared", "expired", "expired and back", "small"])
def test_nothing_is_left_of_elements_whose_key_ends(rocks: LargeStates, end: str) -> None:
    def begin(states: States) -> None:
        fill(states)
        states.value.set("v")

    def finish(states: States) -> None:
        states.mapped.clear()
        states.listed.clear()
        if end != "small":
            states.value.clear()

    rocks.visit("a", begin, expiry=50)
    wanted: Any = ([], [], None)
    if end.startswith("expired"):
        rocks.now_ms = 50
        if end == "expired and back":  # its row is still there
            wanted = rocks.visit("a", lambda states: states.listed.set(["large" * 2_000, "x"]))
        rocks.rows.expire(50)
    else:
        wanted = rocks.visit("a", finish)
    assert rocks.view("a") == wanted
    left = rocks.rows.database.names(b"\x80", b"\xff" * 9, NEVER)  # type: ignore[attr-defined]
    assert len(left) == len(wanted[1])


def test_large_elements_that_are_due_come_in_portions(rocks: LargeStates, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [f"k{number}" for number in range(7)]
    for key in keys:
        rocks.visit(key, lambda states: states.listed.set(["large" * 2_000] * 3))
    rows = rocks.rows
    names = sorted(name for name, _ in rows.database.rows(b"", b"\x80", NEVER))  # type: ignore[attr-defined]
    monkeypatch.setattr(row_elements, "PORTION_BYTES", 70_000)
    given = list(rows._given(names, 0))  # type: ignore[attr-defined]
    assert [len(some) for some, _ in given] == [3, 3, 1]
    assert [payload for _, some in given for payload in some.to_pylist()] == [
        rows.find(some.take([at]), 0)[0].as_py() for some, _ in given for at in range(len(some))
    ]


def test_a_database_of_an_earlier_version_is_taken_over(
    rocks: LargeStates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(row_database, "PROCESS", "nothing is apart")
        earlier = LargeStates(ROCKSDB, tmp_path / "earlier")
        wanted = earlier.visit("a", fill)
        state = earlier.snapshot(1)
        earlier.close()
    assert (state.kind, _format_of(state)) == (StateKind.ROCKSDB_STATE, "1")
    rocks.restore([state], 1)
    assert rocks.view("a") == wanted
    changed = rocks.visit("a", EDITS["entry"])
    assert rocks.view("a") == changed != wanted
    changes = changes_of(rocks, monkeypatch)
    rocks.visit("a", EDITS["removal"])
    assert len(changes) == 1
    assert _format_of(rocks.snapshot(2, 1)) == "2"


def test_an_earlier_version_refuses_a_database_with_elements(
    rocks: LargeStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    rocks.visit("a", fill)
    state = rocks.snapshot(1)
    monkeypatch.setattr(frozen_database, "_WITH_ELEMENTS", "1")
    with pytest.raises(StateUnreadable, match=r"has format 2, and Lockgate \S+ reads 1 or 1 there: use the version"):
        rocks.restore([state], 1)


def _format_of(state: OperatorState) -> str:
    with frozen_database._opened(state) as archive:
        return frozen_database._metadata(archive)["lockgate.format"]


def test_a_savepoint_has_whole_keys(make: Callable[[str], LargeStates]) -> None:
    here, there = make("rocksdb"), make("diffs")
    wanted = here.visit("a", fill)
    here.visit("b", lambda states: states.listed.append("x"))
    savepoint = here.snapshot(1, is_savepoint=True)
    assert savepoint.kind is StateKind.KEYED_STATE
    there.restore([savepoint], 1)
    assert there.view("a") == wanted
    assert there.view("b") == ([], ["x"], None)


def test_elements_lie_apart_from_rows_and_times() -> None:
    name = b"\x00\x00" + b"\x00" * 8 + b"key"
    start, end = bounds(name)
    assert start < prefix(name) + key_payload.name_of(0, 0) < prefix(name) + key_payload.name_of(60_000, 1 << 47) < end
    assert start > b"\x80\x00\x03" + b"\xff" * 20
