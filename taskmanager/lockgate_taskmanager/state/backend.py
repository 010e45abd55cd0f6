"""Where snapshot bytes go: files (`filesystem`) or inside the acknowledgement (`memory`)."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from lockgate_common import storage as filesystem
from lockgate_common.checksums import Checksum, checksum, crc32
from lockgate_common.masking import bare
from lockgate_proto.messages import MemoryBackend, StateBackend, StateHandle

from lockgate_taskmanager.state.local_copies import CopyBeside, LocalCopies
from lockgate_taskmanager.task.program import SnapshotTooLarge, StateUnreadable, StorageUnavailable

DEFAULT_MEMORY_LIMIT = 16 << 20
SHARED_FOLDER = "shared"
PIECE_BYTES = 1 << 20


class SnapshotWriter(Protocol):
    """Stores the pieces of one snapshot of one subtask. Used from the thread that persists."""

    def begin(self, operator_id: str) -> None:
        """What is stored or taken over from here on is of this operator."""
        ...

    def store(self, name: str, data: pa.Buffer, is_shared: bool = False) -> StateHandle:
        """Stores the bytes durably under a name that is unique in the snapshot. Raises SnapshotTooLarge, OSError.

        is_shared: later snapshots may take it over.
        """
        ...

    def store_file(self, name: str, source: Path, is_shared: bool = False) -> StateHandle:
        """The same for a file on this machine, of any size."""
        ...

    def has_room(self, size_bytes: int, besides: Callable[[], int] = lambda: 0) -> bool:
        """False when `size_bytes`, together with the bytes known of besides, exceeds the limit."""
        ...

    def take_over(self, handle: StateHandle) -> StateHandle:
        """The handle in this snapshot of a shared piece that an earlier one has stored. Raises SnapshotTooLarge."""
        ...

    def undo(self) -> None:
        """Removes what was stored: the snapshot has failed and nothing refers to it."""
        ...


class Backend(Protocol):
    """Makes writers; reading is the same for all, see `load`."""

    def writer(self, checkpoint_id: int) -> SnapshotWriter:
        """The writer of one snapshot."""
        ...


class InlineBackend:
    """The bytes travel in the handle; at most `limit` bytes a subtask and snapshot."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def writer(self, checkpoint_id: int) -> SnapshotWriter:
        return _InlineWriter(self._limit, checkpoint_id)


class FileBackend:
    """One file a piece: `<directory>/chk-<checkpoint>/<prefix>-<name>.state`.

    Where later snapshots may refer to it: `<directory>/shared/<checkpoint>-<prefix>-<name>.state`.

    prefix: tells subtasks and attempts apart, so that a zombie attempt never overwrites another one's file.
    copied_run: the run id of a job of which local copies are kept, else "".
    """

    def __init__(self, directory: str, prefix: str, copied_run: str = "") -> None:
        self._directory = filesystem.locate(directory)
        self._prefix = prefix
        self._copied_run = copied_run

    def writer(self, checkpoint_id: int) -> SnapshotWriter:
        return _FileWriter(self._directory, checkpoint_id, self._prefix, self._copied_run)


def remove_checkpoint(directory: str, checkpoint_id: int) -> None:
    """Deletes what a FileBackend there has stored for a checkpoint that never became complete. Raises OSError."""
    root = filesystem.locate(directory)
    filesystem.remove_folder(root.child(f"chk-{checkpoint_id}"))
    filesystem.remove_files(root.child(SHARED_FOLDER), f"{checkpoint_id}-")


def make_backend(choice: StateBackend | None, directory: str, prefix: str, copied_run: str = "") -> Backend:
    """The backend a job graph asks for; `filesystem` in the checkpoint directory when it asks for none."""
    backend = choice.backend if choice else None
    if isinstance(backend, MemoryBackend):
        return InlineBackend(backend.max_state_bytes or DEFAULT_MEMORY_LIMIT)
    return FileBackend(directory, prefix, copied_run)


class _Copies:
    """Those of this process; there are none before `use_copies`."""

    current: LocalCopies | None = None


def use_copies(copies: LocalCopies | None) -> None:
    """From now on, state files are read from these copies where there is one."""
    _Copies.current = copies


_BELOW_CLUSTER = 4
"""`<storage>/<cluster>/<job>/<run>/chk-<n>/<file>`: how far above a state file the cluster's folder is."""


def inline_handle(data: bytes) -> StateHandle:
    """A handle that carries its bytes, and so is sealed together with them: a CRC is enough."""
    return StateHandle(inline=data, size_bytes=len(data), checksum=crc32(data))


def load(handle: StateHandle) -> pa.Buffer:
    """The bytes behind a handle, verified: nothing may be made of them before.

    Raises StateUnreadable naming the file when it is missing or not as stored, which no restart fixes, and
    StorageUnavailable for a transient error (a timeout, a lost connection, no descriptor left): the next attempt may be
    able to read the file.
    """
    if (copy := _copy_of(handle)) is not None:
        with contextlib.suppress(OSError):
            return filesystem.read_all(copy, handle.size_bytes)
    with _explained(handle):
        data = _read(handle) if handle.path else pa.py_buffer(handle.inline)
    _verify(handle, data.size, checksum(data, handle.checksum))
    return data


def load_ranges(handle: StateHandle, ranges: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Some bytes of a file: of each (offset, size). The caller verifies them. Raises as `load` does."""
    count = 0
    if (copy := _copy_of(handle)) is not None:
        try:
            for data in filesystem.read_ranges(copy, ranges):
                count += 1
                yield data
        except OSError:
            pass  # the storage has the rest
        else:
            return
    with _explained(handle):
        yield from filesystem.read_ranges(filesystem.locate(handle.path), ranges[count:])


def download(handle: StateHandle, target: Path) -> None:
    """Writes the bytes behind a handle to a file on this machine, piece by piece. Raises as `load` does."""
    if (copy := _copy_of(handle)) is not None:
        with contextlib.suppress(OSError):
            shutil.copyfile(copy.path, target)
            return
    found = Checksum(handle.checksum)
    with target.open("wb") as file:  # which is not the storage
        for piece in found.passing(_pieces(handle)):
            if handle.path and found.size_bytes > handle.size_bytes:
                break  # it is not what was stored, and may have no end
            file.write(piece)
    _verify(handle, found.size_bytes, found.text)


def fetch_table(handle: StateHandle, target: Path) -> None:
    """As `download`, for a table of a RocksDB database, which checks every block that it reads, and changes none.

    A copy is linked, and is not read before if it was only written so far.
    """
    if (copies := _Copies.current) is not None:
        path = copies.unread(handle) or copies.verified(handle, afresh=True)
        if path is not None:
            with contextlib.suppress(OSError):
                os.link(path, target)
                return
    download(handle, target)


def _copy_of(handle: StateHandle) -> filesystem.Location | None:
    path = _Copies.current.verified(handle) if _Copies.current is not None else None
    return filesystem.locate(str(path)) if path is not None else None


def _read(handle: StateHandle) -> pa.Buffer:
    try:
        return filesystem.read_all(filesystem.locate(handle.path), handle.size_bytes)
    except filesystem.FileTooLarge as error:
        raise _corrupt(handle, f"{error.size_bytes} bytes") from error


def _pieces(handle: StateHandle) -> Iterator[bytes]:
    with _explained(handle):
        yield from filesystem.pieces(filesystem.locate(handle.path)) if handle.path else (handle.inline,)


def _where(handle: StateHandle) -> str:
    return bare(handle.path) or "the inlined state of a checkpoint"


@contextlib.contextmanager
def _explained(handle: StateHandle) -> Iterator[None]:
    where = _where(handle)
    try:
        yield
    except FileNotFoundError as error:
        if _was_away(handle):
            text = f"the state file {where} cannot be read for now: the storage is away or has just come back"
            raise StorageUnavailable(text) from error
        raise StateUnreadable(f"the state file {where} is missing; restore from another checkpoint") from error
    except ValueError as error:  # the recorded path is none; ArrowInvalid is a ValueError too
        raise StateUnreadable(f"the state file {where} cannot be read: {error}") from error
    except OSError as error:
        raise StorageUnavailable(f"the state file {where} cannot be read for now: {error}") from error


def _was_away(handle: StateHandle) -> bool:
    file = folder = filesystem.locate(handle.path)
    for _ in range(_BELOW_CLUSTER):
        folder = folder.parent()
    return filesystem.was_away(folder, file)


def _verify(handle: StateHandle, size: int, found: str) -> None:
    is_stated = bool(handle.path or handle.checksum)  # bytes inside a message are as trustworthy as the message
    if is_stated and (size, found) != (handle.size_bytes, handle.checksum):
        raise _corrupt(handle, f"{size} bytes with {found}")


def _corrupt(handle: StateHandle, found: str) -> StateUnreadable:
    return StateUnreadable(
        f"the state file {_where(handle)} is corrupt: {found}, expected {handle.size_bytes} bytes"
        f" with {handle.checksum or 'a checksum'}; restore from another checkpoint"
    )


class _InlineWriter:
    def __init__(self, limit: int, checkpoint_id: int) -> None:
        self._limit = limit
        self._checkpoint_id = checkpoint_id
        self._used = 0
        self._operator_id, self._by_operator = "", Counter[str]()
        self._lock = threading.Lock()

    def begin(self, operator_id: str) -> None:
        self._operator_id = operator_id

    def store(self, name: str, data: pa.Buffer, is_shared: bool = False) -> StateHandle:
        self._use(name, data.size)
        handle = inline_handle(data.to_pybytes())
        return replace(handle, checkpoint_id=self._checkpoint_id) if is_shared else handle

    def store_file(self, name: str, source: Path, is_shared: bool = False) -> StateHandle:
        return self.store(name, pa.py_buffer(source.read_bytes()), is_shared)

    def has_room(self, size_bytes: int, besides: Callable[[], int] = lambda: 0) -> bool:
        return self._used + size_bytes + besides() <= self._limit

    def take_over(self, handle: StateHandle) -> StateHandle:
        """The bytes are not sent again: the coordinator has them."""
        self._use("its increments", handle.size_bytes)
        return replace(handle, inline=b"", taken_over=True)

    def undo(self) -> None:
        self._used = 0
        self._by_operator.clear()

    def _use(self, name: str, size: int) -> None:
        with self._lock:
            if self._used + size <= self._limit:
                self._used += size
                self._by_operator[self._operator_id] += size
                return
            needed = self._by_operator + Counter({self._operator_id: size})
        raise SnapshotTooLarge(f"checkpoint {self._checkpoint_id}: {too_large(needed, name, self._limit)}")


def too_large(needed: Mapping[str, int], name: str, limit: int) -> str:
    """The sentence for a snapshot that does not fit. needed: bytes by operator id, "" for none, as far as they are
    known; name: of the piece for which there is no room.
    """
    operator_id, size = max(needed.items(), key=lambda item: item[1])
    whose = f"the state of operator '{operator_id}'" if operator_id else f"the state of this subtask ({name})"
    total = sum(needed.values())
    together = f", together with the rest of this subtask {total:,}" if total > size else ""
    return (
        f"{whose} takes {size:,} bytes or more{together}, and the memory backend allows {limit:,} bytes a subtask; use"
        " the filesystem backend, which has no limit, or keep less state"
    )


class _FileWriter:
    def __init__(self, directory: filesystem.Location, checkpoint_id: int, prefix: str, copied_run: str) -> None:
        self._directory = directory
        self._checkpoint_id = checkpoint_id
        self._prefix = prefix
        self._copied_run = copied_run
        self._written: list[filesystem.Location] = []

    def begin(self, operator_id: str) -> None:
        """Files have no limit."""

    def store(self, name: str, data: pa.Buffer, is_shared: bool = False) -> StateHandle:
        pieces = (data[at : at + PIECE_BYTES] for at in range(0, data.size, PIECE_BYTES))
        return self._store(name, pieces, is_shared)

    def store_file(self, name: str, source: Path, is_shared: bool = False) -> StateHandle:
        with source.open("rb") as file:
            return self._store(name, iter(lambda: file.read(PIECE_BYTES), b""), is_shared)

    def _store(self, name: str, pieces: Iterable[bytes | pa.Buffer], is_shared: bool) -> StateHandle:
        """Each piece is hashed as it is written, while it is in the processor's cache."""
        target, written, copies = self._target(name, is_shared), Checksum(), _Copies.current
        if not self._copied_run or copies is None:
            filesystem.write_pieces_durably(target, written.passing(pieces))
            handle = StateHandle(path=target.uri, size_bytes=written.size_bytes, checksum=written.text)
        else:
            with contextlib.closing(CopyBeside(copies, self._copied_run, self._checkpoint_id)) as copy:
                filesystem.write_pieces_durably(target, copy.passing(written.passing(pieces)))
                handle = StateHandle(path=target.uri, size_bytes=written.size_bytes, checksum=written.text)
                copy.stored(handle)
        return replace(handle, checkpoint_id=self._checkpoint_id, shared=True) if is_shared else handle

    def _target(self, name: str, is_shared: bool) -> filesystem.Location:
        file = f"{self._prefix}-{filesystem.file_name(name)}.state"
        where = f"{SHARED_FOLDER}/{self._checkpoint_id}-{file}" if is_shared else f"chk-{self._checkpoint_id}/{file}"
        target = self._directory.child(where)
        self._written.append(target)
        return target

    def has_room(self, size_bytes: int, besides: Callable[[], int] = lambda: 0) -> bool:  # noqa: ARG002
        return True

    def take_over(self, handle: StateHandle) -> StateHandle:
        return handle

    def undo(self) -> None:
        for target in self._written:
            with contextlib.suppress(OSError):
                filesystem.remove(target)
        self._written.clear()
