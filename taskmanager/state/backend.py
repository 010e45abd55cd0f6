"""Where snapshot bytes go: files (`filesystem`) or inside the acknowledgement (`memory`)."""

from __future__ import annotations

import contextlib
import threading
import zlib
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import MemoryBackend, StateBackend, StateHandle

from taskmanager.state import filesystem
from taskmanager.task.program import SnapshotTooLarge, StateUnreadable

DEFAULT_MEMORY_LIMIT = 16 << 20


class SnapshotWriter(Protocol):
    """Stores the pieces of one snapshot of one subtask. Used from the thread that persists."""

    def store(self, name: str, data: pa.Buffer) -> StateHandle:
        """Stores the bytes durably under a name that is unique in the snapshot. Raises SnapshotTooLarge, OSError."""
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
        """See Backend."""
        return _InlineWriter(self._limit, checkpoint_id)


class FileBackend:
    """One file a piece: `<directory>/chk-<checkpoint>/<prefix>-<name>.state`.

    prefix: tells subtasks and attempts apart, so that a zombie attempt never overwrites another one's file.
    """

    def __init__(self, directory: str, prefix: str) -> None:
        self._directory = filesystem.locate(directory)
        self._prefix = prefix

    def writer(self, checkpoint_id: int) -> SnapshotWriter:
        """See Backend."""
        return _FileWriter(self._directory.child(f"chk-{checkpoint_id}"), self._prefix)


def make_backend(choice: StateBackend | None, directory: str, prefix: str) -> Backend:
    """The backend a job graph asks for; `filesystem` in the checkpoint directory when it asks for none."""
    backend = choice.backend if choice else None
    if isinstance(backend, MemoryBackend):
        return InlineBackend(backend.max_state_bytes or DEFAULT_MEMORY_LIMIT)
    return FileBackend(directory, prefix)


def checksum(data: bytes | pa.Buffer) -> str:
    """`crc32:<8 hex digits>`"""
    return f"crc32:{zlib.crc32(data):08x}"


def inline_handle(data: bytes) -> StateHandle:
    """A handle that carries its bytes."""
    return StateHandle(inline=data, size_bytes=len(data), checksum=checksum(data))


def load(handle: StateHandle) -> pa.Buffer:
    """The bytes behind a handle, verified.

    Raises StateUnreadable naming the file when it is missing or damaged, which no restart mends. Any other OSError of
    the storage (a timeout, a lost connection, no descriptor left) passes: the next attempt may well read the file.
    """
    where = handle.path or "the inlined state of a checkpoint"
    try:
        data = filesystem.read_all(filesystem.locate(handle.path)) if handle.path else pa.py_buffer(handle.inline)
    except FileNotFoundError as error:
        raise StateUnreadable(f"the state file {where} is missing; restore from another checkpoint") from error
    except ValueError as error:  # the recorded path is none; ArrowInvalid is a ValueError too
        raise StateUnreadable(f"the state file {where} cannot be read: {error}") from error
    if handle.checksum and (data.size != handle.size_bytes or checksum(data) != handle.checksum):
        raise StateUnreadable(
            f"the state file {where} is corrupt: {data.size} bytes with {checksum(data)},"
            f" expected {handle.size_bytes} bytes with {handle.checksum}; restore from another checkpoint"
        )
    return data


class _InlineWriter:
    def __init__(self, limit: int, checkpoint_id: int) -> None:
        self._limit = limit
        self._checkpoint_id = checkpoint_id
        self._used = 0
        self._lock = threading.Lock()

    def store(self, name: str, data: pa.Buffer) -> StateHandle:
        with self._lock:
            self._used += data.size
        if self._used > self._limit:
            raise SnapshotTooLarge(
                f"checkpoint {self._checkpoint_id}: the state of this subtask ({name}) takes more than the"
                f" {self._limit} bytes that the memory backend allows; use the filesystem backend"
            )
        return inline_handle(data.to_pybytes())

    def undo(self) -> None:
        self._used = 0


class _FileWriter:
    def __init__(self, folder: filesystem.Location, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._written: list[filesystem.Location] = []

    def store(self, name: str, data: pa.Buffer) -> StateHandle:
        target = self._folder.child(f"{self._prefix}-{filesystem.file_name(name)}.state")
        self._written.append(target)
        filesystem.write_durably(target, data)
        return StateHandle(path=target.uri, size_bytes=data.size, checksum=checksum(data))

    def undo(self) -> None:
        for target in self._written:
            with contextlib.suppress(OSError):
                filesystem.remove(target)
        self._written.clear()
