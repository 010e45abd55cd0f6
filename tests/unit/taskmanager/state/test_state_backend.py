"""Where the bytes of snapshots go, and what is said when they cannot be read; see test_state_contract.py, too."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_common import storage as filesystem
from lockgate_proto.messages import FailureCause, MemoryBackend, StateBackend, StateHandle
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.state.backend import FileBackend, download, inline_handle, load, make_backend
from lockgate_taskmanager.task.program import SnapshotTooLarge, StateUnreadable, StorageUnavailable


def test_memory_says_what_was_stored_with_a_checksum() -> None:
    handle = make_backend(StateBackend(backend=MemoryBackend()), "", "").writer(3).store("op", pa.py_buffer(b"state"))
    assert load(handle).to_pybytes() == b"state"
    assert (handle.size_bytes, handle.checksum.partition(":")[0]) == (5, "crc32")


def test_memory_has_a_limit() -> None:
    writer = make_backend(StateBackend(backend=MemoryBackend(max_state_bytes=10)), "", "").writer(4)
    writer.store("a", pa.py_buffer(b"123456"))
    with pytest.raises(SnapshotTooLarge, match=r"checkpoint 4.*10 bytes.*filesystem"):
        writer.store("b", pa.py_buffer(b"123456"))


def test_filesystem_is_the_default(tmp_path: Path) -> None:
    assert isinstance(make_backend(None, str(tmp_path), "a"), FileBackend)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "i/o error"),
        OSError(errno.EMFILE, "too many open files"),
        TimeoutError(errno.ETIMEDOUT, "timed out"),
        ConnectionResetError(errno.ECONNRESET, "connection reset"),
        OSError("AWS Error NETWORK_CONNECTION"),
    ],
)
def test_a_storage_that_fails_is_away_and_no_fault_of_the_job_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    handle = FileBackend(str(tmp_path), "a").writer(1).store("op", pa.py_buffer(b"some state"))

    def read_all(_: filesystem.Location, _most_bytes: int) -> pa.Buffer:
        raise error

    monkeypatch.setattr(filesystem, "read_all", read_all)

    def pieces(_: filesystem.Location) -> Iterator[bytes]:
        yield b"some "
        raise error

    monkeypatch.setattr(filesystem, "pieces", pieces)
    reads: tuple[Callable[[], object], ...] = (lambda: load(handle), lambda: download(handle, tmp_path / "copy"))
    for read in reads:
        with pytest.raises(
            StorageUnavailable, match=f"{handle.path} cannot be read for now: .*{error.args[-1]}"
        ) as caught:
            read()
        assert cause_of(caught.value) == FailureCause.STORAGE_AWAY


def test_a_missing_file_is_unreadable_unless_the_whole_storage_is_missing(tmp_path: Path) -> None:
    run = tmp_path / "mounted" / "cluster" / "job" / "run"
    handle = FileBackend(str(run), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    (tmp_path / "mounted").rename(tmp_path / "away")
    with pytest.raises(StorageUnavailable, match="the storage is away or has just come back"):
        load(handle)
    (tmp_path / "away").rename(tmp_path / "mounted")
    assert load(handle).to_pybytes() == b"some state"
    shutil.rmtree(run.parent)  # whoever deletes a job's files has not unmounted the storage
    with pytest.raises(StateUnreadable, match="is missing; restore from another checkpoint"):
        load(handle)


@pytest.mark.parametrize("returns_at", [1, 2, 3])
def test_a_file_missed_while_the_storage_comes_back_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns_at: int
) -> None:
    """returns_at: before which look at the storage it is mounted again."""
    run = tmp_path / "mounted" / "cluster" / "job" / "run"
    handle = FileBackend(str(run), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    (tmp_path / "mounted").rename(tmp_path / "away")
    looks = []

    def exists(location: filesystem.Location) -> bool:
        looks.append(location)
        if len(looks) == returns_at:
            (tmp_path / "away").rename(tmp_path / "mounted")
        return Path(location.path).exists()

    monkeypatch.setattr(filesystem, "exists", exists)
    with pytest.raises(StorageUnavailable, match="the storage is away or has just come back"):
        load(handle)
    monkeypatch.undo()
    if returns_at > len(looks):
        (tmp_path / "away").rename(tmp_path / "mounted")
    assert load(handle).to_pybytes() == b"some state"


def test_a_full_disk_of_this_machine_is_not_the_storage_s(tmp_path: Path) -> None:
    handle = FileBackend(str(tmp_path), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    with pytest.raises(OSError, match="No space left") as caught:
        download(handle, Path("/dev/full"))
    assert cause_of(caught.value) == FailureCause.FAULT


def test_an_impossible_path_is_permanently_unreadable() -> None:
    with pytest.raises(StateUnreadable, match="nowhere://x cannot be read") as caught:
        load(StateHandle(path="nowhere://x", size_bytes=3, checksum=inline_handle(b"abc").checksum))
    assert cause_of(caught.value) == FailureCause.STATE_UNREADABLE


def test_damaged_inline_state_is_found_too() -> None:
    good = inline_handle(b"abc")
    with pytest.raises(StateUnreadable, match="inlined"):
        load(StateHandle(inline=b"abd", size_bytes=3, checksum=good.checksum))


def test_a_full_or_forbidden_disk_is_an_os_error_and_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "chk-1").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="chk-1"):
        FileBackend(str(tmp_path), "a").writer(1).store("op", pa.py_buffer(b"x"))


def test_no_more_is_read_than_was_stored(tmp_path: Path) -> None:
    """Whoever can write there could have put a file there that fills the memory or the disk."""
    handle = FileBackend(str(tmp_path / "storage"), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    (file,) = tmp_path.rglob("*.state")
    os.truncate(file, 10 << 30)
    with pytest.raises(StateUnreadable, match="is corrupt: 10737418240 bytes, expected 10 bytes with sha256"):
        load(handle)
    with pytest.raises(StateUnreadable, match=r"is corrupt: \d+ bytes with .*, expected 10 bytes with sha256"):
        download(handle, copy := tmp_path / "copy")
    assert copy.stat().st_size <= 10


def test_a_pipe_in_place_of_a_state_file_does_not_block(tmp_path: Path) -> None:
    handle = FileBackend(str(tmp_path / "storage"), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    (file,) = tmp_path.rglob("*.state")
    file.unlink()
    os.mkfifo(file)
    for read in (lambda: load(handle), lambda: download(handle, tmp_path / "copy")):
        with pytest.raises(StateUnreadable, match="cannot be read: it is neither a file nor a folder"):
            read()
