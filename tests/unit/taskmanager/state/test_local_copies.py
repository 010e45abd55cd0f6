"""LocalCopies: what is read from the local disk, when, and what becomes of it."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_common import storage as filesystem
from lockgate_common.checksums import checksum_of_pieces
from lockgate_common.storage import Location
from lockgate_proto.messages import AttemptId, CopiesKept, KeepCopies, StateHandle
from lockgate_taskmanager.runtime.copy_keeper import CopyKeeper
from lockgate_taskmanager.state import local_copies
from lockgate_taskmanager.state.backend import FileBackend, download, fetch_table, load, load_ranges, use_copies
from lockgate_taskmanager.state.local_copies import COPIES_PREFIX, LocalCopies
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import StateUnreadable, StorageUnavailable

RUN = "run-1"
Gone = (StateUnreadable, StorageUnavailable)


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[LocalCopies]:
    made = LocalCopies(ScratchFolder(tmp_path / "work", COPIES_PREFIX))
    use_copies(made)
    yield made
    use_copies(None)
    made.close()


@pytest.fixture
def storage(tmp_path: Path) -> Path:
    return tmp_path / "storage"


def store(storage: Path, number: int, text: bytes, run: str = RUN) -> StateHandle:
    return FileBackend(str(storage), "a", run).writer(number).store("op", pa.py_buffer(text))


def files(tmp_path: Path) -> list[bytes]:
    """The content of each copy. One may be deleted between the listing and the reading."""
    found = []
    for path in tmp_path.glob(f"work/{COPIES_PREFIX}*/*"):
        with contextlib.suppress(FileNotFoundError):
            found += [path.read_bytes()] if path.name != "lock" else []
    return sorted(found)


def poll(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.usefixtures("copies")
def test_what_was_stored_here_is_read_without_the_storage(storage: Path, tmp_path: Path) -> None:
    handle = store(storage, 1, b"some state")
    shutil.rmtree(storage)
    assert load(handle).to_pybytes() == b"some state"
    assert list(load_ranges(handle, [(5, 5)])) == [b"state"]
    download(handle, tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"some state"


@pytest.mark.usefixtures("copies")
def test_a_job_that_asks_for_no_copies_gets_none(storage: Path, tmp_path: Path) -> None:
    handle = store(storage, 1, b"some state", run="")
    assert files(tmp_path) == []
    shutil.rmtree(storage)
    with pytest.raises(Gone):
        load(handle)


def test_copies_of_the_newest_checkpoint_and_of_later_ones_stay(
    copies: LocalCopies, storage: Path, tmp_path: Path
) -> None:
    shared, old, new, next_one = (
        store(storage, number, text) for number, text in ((1, b"base"), (1, b"1"), (2, b"2"), (3, b"3"))
    )
    assert copies.keep(RUN, 2, [shared, new]) == []
    assert files(tmp_path) == [b"2", b"3", b"base"]
    assert copies.verified(old) is None
    assert copies.keep("another", 9, []) == []
    assert copies.verified(next_one) is not None, "another run's checkpoints say nothing about this one's"


@pytest.mark.parametrize("damage", [b"some stat", b"some stale", b"some stale state", b""])
@pytest.mark.usefixtures("copies")
def test_a_damaged_copy_is_dropped_and_the_storage_is_read(damage: bytes, storage: Path, tmp_path: Path) -> None:
    handle = store(storage, 1, b"some state")
    (copy,) = (path for path in tmp_path.glob(f"work/{COPIES_PREFIX}*/*") if path.name != "lock")
    copy.write_bytes(damage)
    assert load(handle).to_pybytes() == b"some state"
    assert not copy.exists()


@pytest.mark.usefixtures("copies")
def test_a_copy_that_vanishes_while_it_is_read_is_replaced_by_the_storage(
    storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = store(storage, 1, b"some state")
    of_storage = filesystem.read_ranges

    def vanishing(location: Location, ranges: list[tuple[int, int]]) -> Iterator[bytes]:
        if location.uri == handle.path:
            yield from of_storage(location, ranges)
            return
        yield b"some"
        raise OSError("the disk is broken")

    monkeypatch.setattr(filesystem, "read_ranges", vanishing)
    assert list(load_ranges(handle, [(0, 4), (5, 3), (8, 2)])) == [b"some", b"sta", b"te"]


def test_checkpoints_that_fail_leave_few_copies(copies: LocalCopies, storage: Path, tmp_path: Path) -> None:
    store(storage, 1, b"complete")
    assert copies.keep(RUN, 1, []) == []
    for number in range(2, 20):
        store(storage, number, b"%02d" % number)
    assert files(tmp_path) == [b"15", b"16", b"17", b"18", b"19", b"complete"][-6:]


def test_nothing_of_a_run_that_has_ended_is_kept_even_if_it_comes_late(
    copies: LocalCopies, storage: Path, tmp_path: Path
) -> None:
    handle = store(storage, 1, b"some state")
    copies.forget_run(RUN)
    assert files(tmp_path) == []
    store(storage, 2, b"late")
    assert copies.keep(RUN, 1, [handle]) == []
    assert files(tmp_path) == []


def test_a_process_that_stops_keeps_no_copy_and_makes_none(copies: LocalCopies, storage: Path, tmp_path: Path) -> None:
    copies.close()
    assert load(store(storage, 1, b"some state")).to_pybytes() == b"some state"
    assert list(tmp_path.glob(f"work/{COPIES_PREFIX}*")) == []


@pytest.mark.usefixtures("copies")
def test_a_full_disk_costs_the_copy_and_not_the_snapshot(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_copies, "LEAST_FREE", 1.0)
    assert load(store(storage, 1, b"some state")).to_pybytes() == b"some state"
    assert files(tmp_path) == []


def test_a_standby_fetches_what_it_lacks_and_drops_what_is_outdated(
    copies: LocalCopies, storage: Path, tmp_path: Path
) -> None:
    first, second = store(storage, 1, b"first", run=""), store(storage, 2, b"second", run="")
    reports = list[CopiesKept]()
    keeper, attempt = CopyKeeper(copies, reports.append), AttemptId("job", RUN, 1)
    keeper.start()
    try:
        keeper.keep(KeepCopies(attempt, 1, (first,)))
        poll(lambda: files(tmp_path) == [b"first"])
        keeper.keep(KeepCopies(attempt, 2, (first, second)))
        poll(lambda: files(tmp_path) == [b"first", b"second"])
        keeper.keep(KeepCopies(attempt, 3, (second,)))
        poll(lambda: files(tmp_path) == [b"second"])
        shutil.rmtree(storage)
        assert load(second).to_pybytes() == b"second"
        keeper.keep(KeepCopies(attempt, 4, (first,)))  # not there any more: the next order counts
        keeper.keep(KeepCopies(attempt))
        poll(lambda: files(tmp_path) == [])
    finally:
        keeper.stop()
    assert reports[:3] == [CopiesKept(attempt, 1, 1), CopiesKept(attempt, 2, 2), CopiesKept(attempt, 3, 1)]


def test_a_standby_says_what_it_lacks_and_why(copies: LocalCopies, storage: Path) -> None:
    there, gone = store(storage, 1, b"there", run=""), store(storage, 2, b"gone", run="")
    reports = list[CopiesKept]()
    keeper, attempt = CopyKeeper(copies, reports.append), AttemptId("job", RUN, 1)
    keeper.keep(KeepCopies(attempt, 1, (there, replace(gone, path=f"{gone.path}-never"))))
    assert len(list(keeper.steps())) == 1
    (report,) = reports
    assert (report.checkpoint_id, report.files) == (1, 1)
    assert "never" in report.problem
    keeper.keep(KeepCopies(attempt))
    assert list(keeper.steps()) == []
    assert reports == [report], "nothing is said about a job that has ended"


def test_an_order_that_a_newer_one_replaces_ends_after_the_file_at_hand(copies: LocalCopies, storage: Path) -> None:
    first, second = store(storage, 1, b"first", run=""), store(storage, 2, b"second", run="")
    reports = list[CopiesKept]()
    keeper, attempt = CopyKeeper(copies, reports.append), AttemptId("job", RUN, 1)
    keeper.keep(KeepCopies(attempt, 1, (first, second)))
    steps = keeper.steps()
    next(steps)
    keeper.keep(KeepCopies(attempt, 2, (second,)))
    assert len(list(steps)) == 1
    assert reports == [CopiesKept(attempt, 1, 1), CopiesKept(attempt, 2, 1)]


@pytest.mark.usefixtures("copies")
def test_a_write_that_fails_leaves_no_half_copy(storage: Path, tmp_path: Path) -> None:
    storage.write_text("not a folder")
    with pytest.raises(NotADirectoryError):
        store(storage, 1, b"some state")
    assert files(tmp_path) == []


def test_a_table_is_linked_and_is_read_whenever_it_is_wanted_again(
    copies: LocalCopies, storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[int]()

    def counted(pieces: Iterable[bytes], like: str = "") -> str:
        read.append(1)
        return checksum_of_pieces(pieces, like)

    monkeypatch.setattr(local_copies, "checksum_of_pieces", counted)
    handle = store(storage, 1, b"a table")
    shutil.rmtree(storage)
    for number, times in ((1, 0), (2, 1), (3, 2)):
        target = tmp_path / str(number)
        fetch_table(handle, target)
        assert target.read_bytes() == b"a table"
        assert len(read) == times
    target.unlink()
    copy = copies.verified(handle)
    assert copy is not None
    assert copy.stat().st_nlink == 3, "the same bytes on the disk; one of them was deleted"


@pytest.mark.usefixtures("copies")
def test_a_table_whose_copy_has_changed_comes_from_the_storage(storage: Path, tmp_path: Path) -> None:
    handle = store(storage, 1, b"a table")
    (copy,) = (path for path in tmp_path.glob(f"work/{COPIES_PREFIX}*/*") if path.name != "lock")
    copy.write_bytes(b"another table")
    fetch_table(handle, tmp_path / "table")
    assert (tmp_path / "table").read_bytes() == b"a table"
    assert not copy.exists()


@pytest.mark.usefixtures("copies")
def test_a_table_that_cannot_be_linked_is_copied(
    storage: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_source: Path, _target: Path) -> None:
        raise OSError("another file system")

    handle = store(storage, 1, b"a table")
    shutil.rmtree(storage)
    monkeypatch.setattr("os.link", refuse)
    fetch_table(handle, tmp_path / "table")
    assert (tmp_path / "table").read_bytes() == b"a table"
