"""The contract of state backends, over both."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_common import storage as filesystem
from lockgate_proto.messages import FailureCause, FilesystemBackend, MemoryBackend, StateBackend, StateHandle
from lockgate_taskmanager.runtime.failures import cause_of
from lockgate_taskmanager.state.backend import Backend, FileBackend, download, inline_handle, load, make_backend
from lockgate_taskmanager.task.program import SnapshotTooLarge, StateUnreadable, StorageUnavailable


@pytest.fixture(params=["filesystem", "memory"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    choice = FilesystemBackend() if request.param == "filesystem" else MemoryBackend(max_state_bytes=1000)
    return make_backend(StateBackend(backend=choice), str(tmp_path), "a1-v-0")


def test_stored_state_is_loaded(backend: Backend) -> None:
    handle = backend.writer(3).store("op", pa.py_buffer(b"state"))
    assert load(handle).to_pybytes() == b"state"
    assert handle.size_bytes == 5
    assert handle.checksum.startswith("sha256:" if handle.path else "crc32:")


def test_empty_state_is_state(backend: Backend) -> None:
    assert load(backend.writer(3).store("op", pa.py_buffer(b""))).size == 0


def test_names_with_odd_characters_stay_apart(backend: Backend) -> None:
    writer = backend.writer(3)
    handles = [writer.store(name, pa.py_buffer(name.encode())) for name in ("a/b", "a_b", "a b", "../x")]
    assert [load(handle).to_pybytes() for handle in handles] == [b"a/b", b"a_b", b"a b", b"../x"]


def test_two_snapshots_and_two_attempts_do_not_meet(tmp_path: Path) -> None:
    handles = [
        FileBackend(str(tmp_path), prefix)
        .writer(checkpoint)
        .store("op", pa.py_buffer(f"{prefix}{checkpoint}".encode()))
        for prefix in ("a1-v-0", "a2-v-0", "a2-v-1")
        for checkpoint in (1, 2)
    ]
    assert len({handle.path for handle in handles}) == 6
    assert load(handles[0]).to_pybytes() == b"a1-v-01"


def test_file_names(tmp_path: Path) -> None:
    FileBackend(tmp_path.as_uri(), "a1-v-0").writer(7).store("op", pa.py_buffer(b"x"))
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.*")] == ["chk-7/a1-v-0-op.state"]


def test_undo_leaves_nothing(tmp_path: Path) -> None:
    writer = FileBackend(str(tmp_path), "a").writer(1)
    writer.store("op", pa.py_buffer(b"x"))
    writer.undo()
    assert not list(tmp_path.rglob("*.state"))


def test_memory_has_a_limit() -> None:
    writer = make_backend(StateBackend(backend=MemoryBackend(max_state_bytes=10)), "", "").writer(4)
    writer.store("a", pa.py_buffer(b"123456"))
    with pytest.raises(SnapshotTooLarge, match=r"checkpoint 4.*10 bytes.*filesystem"):
        writer.store("b", pa.py_buffer(b"123456"))


def test_filesystem_is_the_default(tmp_path: Path) -> None:
    assert isinstance(make_backend(None, str(tmp_path), "a"), FileBackend)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"X" + b[1:], lambda b: b + b"x", lambda _: b""])
def test_a_damaged_file_is_named(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    handle = FileBackend(str(tmp_path), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    path = next(tmp_path.rglob("*.state"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateUnreadable, match=f"{path.name} is corrupt"):
        load(handle)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    handle = FileBackend(str(tmp_path), "a").writer(1).store("op", pa.py_buffer(b"some state"))
    path = next(tmp_path.rglob("*.state"))
    path.unlink()
    with pytest.raises(StateUnreadable, match=f"{path.name} is missing"):
        load(handle)


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
