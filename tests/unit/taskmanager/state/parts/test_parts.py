"""State of named parts: only changed ones are written, a restore reads each once, outdated bytes stay few."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import ObjectState, OperatorState, StateHandle
from lockgate_taskmanager.spark.functions.object_restore import Owner
from lockgate_taskmanager.spark.functions.object_state import StateOfObject
from lockgate_taskmanager.state.backend import FileBackend, InlineBackend
from lockgate_taskmanager.state.parts import cleaning, pack_reader, pack_writer
from lockgate_taskmanager.state.parts.stored_part import StoredPart
from lockgate_taskmanager.task.program import SnapshotOrder, StateRefused, StateUnreadable

pytestmark = pytest.mark.spark  # objects are pickled with what comes with Spark

SPLIT = ObjectState.OBJECT_STATE_SPLIT


class Parts:
    """A dict of parts that reports its changes."""

    def __init__(self, parts: dict[str, Any] | None = None) -> None:
        self.parts: dict[str, Any] = parts or {}
        self.changed: set[str] = set()

    def put(self, name: str, value: Any) -> None:
        self.parts[name] = value
        self.changed.add(name)

    def drop(self, name: str) -> None:
        del self.parts[name]
        self.changed.add(name)

    def snapshot_state(self) -> dict[str, Any]:
        return self.parts

    def changes_since_last_checkpoint(self) -> dict[str, Any]:
        found = {name: self.parts.get(name) for name in self.changed}
        self.changed.clear()
        return found

    def restore_state(self, state: dict[str, Any]) -> None:
        self.parts = dict(state)


class Home:
    """One subtask with a folder for its checkpoints."""

    def __init__(self, folder: Path, function: Parts, attempt: int = 1) -> None:
        self.folder, self.function, self.attempt = folder, function, attempt
        self.state = StateOfObject(function, SPLIT, Owner("f", "operator 'f'", 0, 1), has_files=True)

    def checkpoint(self, number: int, base_id: int, *, is_savepoint: bool = False) -> OperatorState:
        frozen = self.state.snapshot(number, SnapshotOrder(base_id, is_savepoint))
        return frozen.persist(number, FileBackend(str(self.folder), f"a{self.attempt}-v-0").writer(number))

    def restarted(self, state: OperatorState, number: int) -> Home:
        made = Home(self.folder, Parts(), self.attempt + 1)
        made.state.restore([state], number)
        return made


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and steps of a size that a test can fill."""
    monkeypatch.setattr(pack_writer, "PACK_BYTES", 20_000)
    monkeypatch.setattr(cleaning, "_LEAST_BYTES", 2_000)
    monkeypatch.setattr(pack_reader, "_SMALL", 0)


def written(state: OperatorState, number: int) -> int:
    handles = [state.handle, *state.files]
    return sum(handle.size_bytes for handle in handles if handle is not None and handle.checkpoint_id in (0, number))


def value(number: int) -> bytes:
    return random.Random(number).randbytes(1_000)


def test_only_changed_parts_are_written_and_all_come_back(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({f"p{number}": value(number) for number in range(100)}))
    first = home.checkpoint(1, 0)
    home.function.put("p7", value(1_000))
    home.function.put("new", value(1_001))
    home.function.drop("p8")
    second = home.checkpoint(2, 1)
    assert written(first, 1) > 100_000
    assert 2_000 < written(second, 2) - (second.handle or StateHandle()).size_bytes < 2_200
    assert home.restarted(second, 2).function.parts == home.function.parts
    assert home.restarted(first, 1).function.parts["p8"] == value(8)


def test_changes_of_a_checkpoint_that_never_became_complete_are_in_the_next_one(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({"a": b"0", "b": b"0"}))
    home.checkpoint(1, 0)
    home.function.put("a", b"1")
    aborted = home.checkpoint(2, 1)
    for file in tmp_path.glob("shared/2-*"):
        file.unlink()  # as the leader does
    home.function.put("b", b"1")
    third = home.checkpoint(3, 1)
    assert home.restarted(third, 3).function.parts == {"a": b"1", "b": b"1"}
    with pytest.raises(StateUnreadable, match="missing"):
        home.restarted(aborted, 2)


def test_a_checkpoint_without_a_known_base_is_whole(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({"a": b"0", "b": b"0"}))
    home.checkpoint(1, 0)
    home.function.put("a", b"1")
    second = home.checkpoint(2, 0)  # the first was aborted
    assert {file.checkpoint_id for file in second.files} == {2}
    assert home.restarted(second, 2).function.parts == {"a": b"1", "b": b"0"}


def test_a_savepoint_is_whole_and_takes_no_changes_away(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({"a": b"0" * 2_000, "b": b"0"}))
    home.checkpoint(1, 0)
    home.function.put("b", b"1")
    savepoint = home.checkpoint(2, 1, is_savepoint=True)
    assert not any(file.shared for file in savepoint.files)
    third = home.checkpoint(3, 1)
    assert home.restarted(third, 3).function.parts == home.restarted(savepoint, 2).function.parts == home.function.parts


def test_the_next_attempt_builds_on_what_it_restored(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({f"p{number}": value(number) for number in range(50)}))
    again = home.restarted(home.checkpoint(1, 0), 1)
    again.function.put("p1", b"x")
    second = again.checkpoint(2, 1)
    assert {file.checkpoint_id for file in second.files} == {1, 2}
    assert again.restarted(second, 2).function.parts == again.function.parts


def test_changes_that_could_not_be_taken_make_the_next_checkpoint_whole(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({"a": b"0", "b": b"0"}))
    home.checkpoint(1, 0)
    home.function.put("a", lambda: 1 // 0)
    home.function.changed.add(3)  # type: ignore[arg-type]
    with pytest.raises(StateRefused, match="returned a dict; an object with changes_since_last_checkpoint"):
        home.checkpoint(2, 1)
    home.function.put("a", b"2")
    third = home.checkpoint(3, 1)
    assert {file.checkpoint_id for file in third.files} == {3}
    assert home.restarted(third, 3).function.parts == {"a": b"2", "b": b"0"}


@pytest.mark.usefixtures("small_files")
def test_changes_all_over_the_state_cost_little_and_outdated_bytes_stay_few(tmp_path: Path) -> None:
    count, rng = 400, random.Random(5)
    home = Home(tmp_path, Parts({f"p{number}": value(number) for number in range(count)}))
    state = home.checkpoint(1, 0)
    total = most = 0
    for number in range(2, 402):
        for _ in range(4):
            home.function.put(f"p{rng.randrange(count)}", value(1_000_000 + number))
        state = home.checkpoint(number, number - 1)
        total += sum(file.size_bytes for file in state.files if file.checkpoint_id == number)
        most = max(most, sum(file.size_bytes for file in state.files))
    changed = 400 * 4 * 1_000
    assert total < 2 * changed, "a changed part is written twice at most"
    assert most < 3 * count * 1_100
    assert len(state.files) <= cleaning.MOST_FILES
    assert home.restarted(state, 401).function.parts == home.function.parts


@pytest.mark.usefixtures("small_files")
def test_a_restore_reads_no_outdated_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count, rng, read = 200, random.Random(5), [0]
    home = Home(tmp_path, Parts({f"p{number}": value(number) for number in range(count)}))
    state = home.checkpoint(1, 0)
    for number in range(2, 60):
        for _ in range(2):
            home.function.put(f"p{rng.randrange(count)}", value(1_000_000 + number))
        state = home.checkpoint(number, number - 1)
    load, load_ranges = pack_reader.load, pack_reader.load_ranges

    def counted(handle: StateHandle) -> Any:
        read[0] += handle.size_bytes
        return load(handle)

    def counted_ranges(handle: StateHandle, ranges: Any) -> Any:
        read[0] += sum(size for _, size in ranges)
        return load_ranges(handle, ranges)

    monkeypatch.setattr(pack_reader, "load", counted)
    monkeypatch.setattr(pack_reader, "load_ranges", counted_ranges)
    assert home.restarted(state, 59).function.parts == home.function.parts
    size = count * 1_000
    assert size <= read[0] <= 1.1 * size
    assert sum(file.size_bytes for file in state.files) > 1.2 * size, "there were outdated ones"


@pytest.mark.usefixtures("small_files")
def test_a_damaged_part_of_a_file_that_is_read_in_pieces_is_found(tmp_path: Path) -> None:
    home = Home(tmp_path, Parts({f"p{number}": value(number) for number in range(15)}))
    home.checkpoint(1, 0)
    for number in range(5):
        home.function.put(f"p{number}", value(100 + number))
    second = home.checkpoint(2, 1)
    (file,) = tmp_path.glob("shared/1-*")
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(data)
    with pytest.raises(StateUnreadable, match="corrupt: its part 'p14' is not as it was stored"):
        home.restarted(second, 2)


def test_many_small_files_become_one() -> None:
    files = [StateHandle(path=f"f{number}", size_bytes=10 + number) for number in range(cleaning.MOST_FILES)]
    parts = {f"p{number}": StoredPart(file, 0, file.size_bytes, b"") for number, file in enumerate(files)}
    assert cleaning.to_move(parts, 0) == [f"p{number}" for number in range(16)]
    del parts["p0"]
    assert cleaning.to_move(parts, 0) == []


def test_many_large_files_stay_as_they_are_and_a_few_small_ones_wait_for_more() -> None:
    full, small = pack_writer.PACK_BYTES, 1_000
    for sizes, moved in (([full] * 300, 0), ([full] * 300 + [small] * 15, 0), ([full] * 300 + [small] * 20, 16)):
        files = [StateHandle(path=f"f{number}", size_bytes=size) for number, size in enumerate(sizes)]
        parts = {file.path: StoredPart(file, 0, file.size_bytes, b"") for file in files}
        found = cleaning.to_move(parts, 1 << 20)
        assert len(found) == moved
        assert all(parts[name].size_bytes == small for name in found)


@pytest.mark.usefixtures("small_files")
def test_a_damaged_file_is_replaced_by_what_the_object_holds(tmp_path: Path) -> None:
    """Its rest is to be moved, and cannot be read: the checkpoint completes, and the next one is whole."""
    home = Home(tmp_path, Parts({f"p{number}": value(number) for number in range(100)}))
    first = home.checkpoint(1, 0)
    damaged = Path(first.files[0].path.removeprefix("file://"))
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    state, number = first, 1
    while number == 1 or {file.checkpoint_id for file in state.files} != {number}:
        number += 1
        assert number < 10, "no checkpoint was whole"
        for part in range(15):
            home.function.put(f"p{part}", value(1_000 * number + part))
        state = home.checkpoint(number, number - 1)
    assert home.restarted(state, number).function.parts == home.function.parts


def test_without_files_every_checkpoint_is_whole_and_the_object_is_asked_for_its_changes_all_the_same() -> None:
    function = Parts({"a": b"0"})
    state = StateOfObject(function, SPLIT, Owner("f", "operator 'f'", 0, 1), has_files=False)
    for number in (1, 2):
        function.put("a", b"%d" % number)
        stored = state.snapshot(number, SnapshotOrder(number - 1)).persist(
            number, InlineBackend(1_000_000).writer(number)
        )
        assert function.changed == set()
    restored = Parts()
    StateOfObject(restored, SPLIT, Owner("f", "operator 'f'", 0, 1), has_files=False).restore([stored], 2)
    assert restored.parts == {"a": b"2"}


def test_parts_are_divided_among_other_subtasks_unless_two_have_the_same_name(tmp_path: Path) -> None:
    def stored(subtask: int, names: str) -> OperatorState:
        owner = Owner("f", "operator 'f'", subtask, 2)
        state = StateOfObject(Parts(dict.fromkeys(names, subtask)), SPLIT, owner, has_files=True)
        return state.snapshot(1, SnapshotOrder()).persist(1, FileBackend(str(tmp_path), f"a1-v-{subtask}").writer(1))

    def restored(states: list[OperatorState], subtask: int, parallelism: int) -> dict[str, Any]:
        function = Parts()
        StateOfObject(function, SPLIT, Owner("f", "operator 'f'", subtask, parallelism), True).restore(states, 1)
        return function.parts

    states = [stored(0, "abc"), stored(1, "de")]
    shares = [restored(states, subtask, 3) for subtask in range(3)]
    assert shares == [{"a": 0}, {"b": 0, "c": 0}, {"d": 1, "e": 1}]
    with pytest.raises(StateUnreadable, match="two subtasks have a part 'c' in the snapshot"):
        partial(restored, [stored(0, "abc"), stored(1, "cd")], 0, 1)()
