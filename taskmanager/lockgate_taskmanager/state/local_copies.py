"""LocalCopies: files of the newest snapshots on this machine's own disk, so that a restart reads no storage.

A copy is named by the SHA-256 of its bytes, and every reader verifies that: a damaged one is dropped, and the
storage is read instead. Nothing depends on a copy.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from lockgate_common.checksums import checksum_of_pieces, is_collision_free
from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import StateHandle

from lockgate_taskmanager.state.scratch import ScratchFolder

log = logging.getLogger(__name__)

COPIES_PREFIX = "lockgate-copies-"
LEAST_FREE = 0.1
"""The part of the disk that stays free."""
_MOST_RUNS = 64
_ENDED_REMEMBERED = 1_000
_UNDER_WAY = 4
"""Checkpoints before the newest one whose copies are kept although they are not known to be complete."""
_PIECE_BYTES = 1 << 20
_LOOK_BYTES = 64 << 20  # between two looks at the free space
_trouble = RecurringLog()


_Mark = tuple[int, int, int]  # inode, time and size of a file: others than before say that it has changed


class DiskFull(OSError):
    """A copy would leave less than LEAST_FREE of the disk free."""


class LocalCopies:
    """Thread-safe. A run: of a job, by its run id."""

    def __init__(self, folder: ScratchFolder) -> None:
        self._folder = folder
        self._runs: OrderedDict[str, dict[str, int]] = OrderedDict()  # newest checkpoint by the name of each copy
        self._ended: OrderedDict[str, None] = OrderedDict()  # runs of which nothing is kept any more
        self._checked: dict[Path, _Mark] = {}  # of those that were verified
        self._unread: dict[Path, _Mark] = {}  # of those that were hashed as they were written, and not used since
        self._is_closed = False
        self._lock = threading.Lock()

    def keep(self, run_id: str, checkpoint_id: int, handles: Iterable[StateHandle]) -> list[StateHandle]:
        """Drops the copies of a run that neither this checkpoint nor a later one has. Returns what is missing.

        Of more than 64 runs, the copies of the one that was asked for longest ago are dropped.
        """
        wanted = {name: handle for handle in handles if (name := _name(handle))}
        with self._lock:
            if run_id in self._ended:
                return []
            known = self._runs.setdefault(run_id, {})
            self._runs.move_to_end(run_id)
            for name in wanted.keys() & known.keys():
                known[name] = max(known[name], checkpoint_id)
            self._drop(run_id, lambda number: number < checkpoint_id)
            while len(self._runs) > _MOST_RUNS:
                oldest = next(iter(self._runs))
                self._drop(oldest, lambda _: True)
                del self._runs[oldest]
            return [handle for name, handle in wanted.items() if name not in known]

    def count(self, run_id: str, handles: Iterable[StateHandle]) -> int:
        """Of how many of these there are copies, not verified."""
        with self._lock:
            known = self._runs.get(run_id, {})
            return sum(_name(handle) in known for handle in handles)

    def forget_run(self, run_id: str) -> None:
        """Drops every copy of a run that has ended, for good."""
        with self._lock:
            self._ended[run_id] = None
            while len(self._ended) > _ENDED_REMEMBERED:
                self._ended.popitem(last=False)
            self._drop(run_id, lambda _: True)
            self._runs.pop(run_id, None)

    def new_file(self) -> Path:
        """Where the bytes of a new copy go, before `add`. Raises DiskFull, OSError."""
        if self._is_closed:
            raise DiskFull("this process keeps no copies any more")
        self.require_room()
        return self._folder.new_path(".tmp")

    def require_room(self, size_bytes: int = 0) -> None:
        """Raises DiskFull if that many more bytes would leave too little of the disk free."""
        usage = shutil.disk_usage(self._folder.path)
        if usage.free - size_bytes < LEAST_FREE * usage.total:
            raise DiskFull(f"less than {LEAST_FREE:.0%} of the disk of {self._folder.path} would be free")

    def add(self, run_id: str, checkpoint_id: int, handle: StateHandle, file: Path) -> None:
        """Takes over a file with the bytes of a checkpoint's handle. Raises OSError.

        Only the completion of a checkpoint drops what is outdated; so that many that fail leave little behind, copies
        of checkpoints that began long ago, and of none that is complete, are dropped here.
        """
        name = _name(handle)
        with self._lock:
            if not name or self._is_closed or run_id in self._ended:
                file.unlink(missing_ok=True)
                return
            path = self._path(run_id, name)
            os.replace(file, path)
            self._unread[path] = _mark(path.stat())
            known = self._runs.setdefault(run_id, {})
            complete = min(known.values(), default=checkpoint_id)
            self._drop(run_id, lambda number: complete < number < checkpoint_id - _UNDER_WAY)
            known[name] = max(known.get(name, 0), checkpoint_id)

    def verified(self, handle: StateHandle, *, afresh: bool = False) -> Path | None:
        """A copy of the file with the bytes that were stored, if there is one.

        afresh: it is read also if it was before and has not changed since, as far as the disk says.
        """
        name = _name(handle)
        with self._lock:
            runs = [run_id for run_id, known in self._runs.items() if name in known]
        for run_id in runs:
            path = self._path(run_id, name)
            with contextlib.suppress(OSError):
                if afresh:
                    self._checked.pop(path, None)
                if self._is_intact(path, handle):
                    return path
            with self._lock:
                self._drop(run_id, lambda _: True, name)
        return None

    def unread(self, handle: StateHandle) -> Path | None:
        """A copy that has not changed since its bytes were hashed on their way to the disk. Each is given once.

        For readers that notice damage themselves: when they come back after that, `verified` reads it afresh.
        """
        name = _name(handle)
        with self._lock:
            for path in [self._path(run_id, name) for run_id, known in self._runs.items() if name in known]:
                mark = self._unread.pop(path, None)
                with contextlib.suppress(OSError):
                    if mark is not None and mark == _mark(path.stat()):
                        return path
        return None

    def _is_intact(self, path: Path, handle: StateHandle) -> bool:
        """Reads it whole once; after that only a change of the file has it read again."""
        with open(path, "rb") as file:
            mark = _mark(os.fstat(file.fileno()))
            if self._checked.get(path) == mark:
                return True
            if checksum_of_pieces(iter(partial(file.read, _PIECE_BYTES), b"")) != handle.checksum:
                return False
        self._checked[path] = mark
        return True

    def close(self) -> None:
        """Removes everything, and refuses what comes later. Idempotent."""
        with self._lock:
            self._is_closed = True
            self._runs.clear()
        self._folder.close()

    def _drop(self, run_id: str, is_outdated: Callable[[int], bool], name: str = "") -> None:
        """With the lock held. name: only this one, "" for all."""
        known = self._runs.get(run_id, {})
        for found in [found for found, number in known.items() if name in ("", found) and is_outdated(number)]:
            del known[found]
            path = self._path(run_id, found)
            self._checked.pop(path, None)
            self._unread.pop(path, None)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)

    def _path(self, run_id: str, name: str) -> Path:
        return self._folder.path / f"{run_id}-{name}"


class CopyBeside:
    """Bytes on their way to the storage are written to a copy as well; an error there only ends the copy."""

    def __init__(self, copies: LocalCopies, run_id: str, checkpoint_id: int) -> None:
        self._copies, self._run_id, self._checkpoint_id = copies, run_id, checkpoint_id
        self._path: Path | None = None
        self._file: BinaryIO | None = None

    def passing(self, pieces: Iterable[bytes | pa.Buffer]) -> Iterator[bytes | pa.Buffer]:
        """Yields the pieces unchanged."""
        self._guarded(self._open)
        written = 0
        for piece in pieces:
            if self._file is not None:
                written += len(piece)
                if written > _LOOK_BYTES:
                    written = 0
                    self._guarded(self._copies.require_room)
            if self._file is not None:
                self._guarded(partial(self._file.write, piece))
            yield piece

    def stored(self, handle: StateHandle) -> None:
        """All pieces are in the storage."""
        if self._file is not None and self._path is not None:
            self._guarded(self._file.close)
        if self._file is not None and self._path is not None:
            self._guarded(partial(self._copies.add, self._run_id, self._checkpoint_id, handle, self._path))

    def close(self) -> None:
        """Removes what is incomplete. Idempotent."""
        file, path, self._file, self._path = self._file, self._path, None, None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
            if path is not None:
                path.unlink(missing_ok=True)

    def _open(self) -> None:
        self._path = self._copies.new_file()
        self._file = self._path.open("wb")

    def _guarded(self, call: Callable[[], object]) -> None:
        try:
            call()
        except OSError as error:
            _trouble.warning(log, "copies", "no local copy of a state file is kept: %s", error)
            self.close()


def _mark(found: os.stat_result) -> _Mark:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _name(handle: StateHandle) -> str:
    """ "" for bytes inside the handle, and for old files without a SHA-256."""
    return handle.checksum.replace(":", "-") if handle.path and is_collision_free(handle.checksum) else ""
