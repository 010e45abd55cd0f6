"""The files of snapshots that were opened for queries, with bounds on memory and disk. Thread-safe.

Checkpoints that build on earlier ones share files with them: only what is new is read for a newer checkpoint.
"""

from __future__ import annotations

import os
import shutil
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from lockgate_taskmanager.state.backend import download, load
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.state.query.held import Held, HeldInDatabase, HeldInFiles, Piece
from lockgate_taskmanager.state.query.identity import QuerySpec, spec_of
from lockgate_taskmanager.state.rocksdb import frozen_database
from lockgate_taskmanager.state.rocksdb.engine import Database
from lockgate_taskmanager.state.scratch import ScratchFolder

MEMORY_BYTES = 256 << 20
"""Of all files that are kept; the one in use may be larger."""
DATABASES = 8


class OpenedFiles:
    """Opens the parts of snapshots, and keeps those used last.

    One file is opened at a time; meanwhile what is open already can be read. What is dropped is released when the last
    one who reads it is through.
    """

    def __init__(self, scratch: ScratchFolder, memory_bytes: int = MEMORY_BYTES, databases: int = DATABASES) -> None:
        """scratch: folder for copies of databases."""
        self._scratch, self._memory_bytes, self._most = scratch, memory_bytes, databases
        self._opening = threading.Lock()
        self._guard = threading.Lock()  # of what follows
        self._pieces: OrderedDict[str, tuple[Piece, int]] = OrderedDict()
        self._used = 0
        self._databases: OrderedDict[str, tuple[HeldInDatabase, QuerySpec, Path]] = OrderedDict()
        self._tables: dict[str, Path] = {}  # by checksum: copies in the folders of opened databases

    def open(self, state: OperatorState, name: str, max_parallelism: int) -> tuple[QuerySpec, Held]:
        """An operator's state in one subtask. name: of the part, unique. Raises ProgramError, OSError."""
        if state.kind is StateKind.ROCKSDB_STATE:
            return self._database(state, name, max_parallelism)
        spec: QuerySpec | None = None
        pieces: list[Piece] = []
        for handle, each in zip(handles_of(state), _names(state, name), strict=True):
            piece = self._known(each) or self._read(state.operator_id, handle, each, max_parallelism)
            spec = spec or spec_of(state.operator_id, piece.stored.about.signature, max_parallelism)
            pieces.append(piece)
        assert spec is not None, "there is at least the full one"
        return spec, HeldInFiles(spec, pieces)

    def has(self, state: OperatorState, name: str) -> bool:
        """Whether a part is open."""
        with self._guard:
            if state.kind is StateKind.ROCKSDB_STATE:
                return name in self._databases
            return all(each in self._pieces for each in _names(state, name))

    def fits_beside(self, parts: Sequence[tuple[OperatorState, str]]) -> bool:
        """Whether parts of a snapshot can be open together with those of one before, of about the same size."""
        databases = sum(state.kind is StateKind.ROCKSDB_STATE for state, _ in parts)
        files = {
            each: handle.size_bytes
            for state, name in parts
            if state.kind is not StateKind.ROCKSDB_STATE
            for handle, each in zip(handles_of(state), _names(state, name), strict=True)
        }
        with self._guard:
            new = sum(size for name, size in files.items() if name not in self._pieces)
        return sum(files.values()) + new <= self._memory_bytes and 2 * databases <= self._most

    def close(self) -> None:
        """Releases everything. Nothing must be opened any more."""
        with self._guard:
            self._pieces.clear()
            self._databases.clear()
            self._tables.clear()
        self._scratch.close()

    def _known(self, name: str) -> Piece | None:
        with self._guard:
            if name not in self._pieces:
                return None
            self._pieces.move_to_end(name)
            return self._pieces[name][0]

    def _read(self, operator_id: str, handle: StateHandle, name: str, max_parallelism: int) -> Piece:
        with self._opening:
            if (known := self._known(name)) is not None:
                return known
            data = load(handle)
            spec = spec_of(operator_id, state_file.mark(data, name), max_parallelism)
            piece = Piece(spec.read(data, spec.where(handle)))
            with self._guard:
                self._pieces[name] = piece, data.size
                self._used += data.size
                while self._used > self._memory_bytes and len(self._pieces) > 1:
                    _, (_, size) = self._pieces.popitem(last=False)
                    self._used -= size
            return piece

    def _known_database(self, name: str) -> tuple[QuerySpec, Held] | None:
        with self._guard:
            if name not in self._databases:
                return None
            self._databases.move_to_end(name)
            held, spec, _ = self._databases[name]
            return spec, held

    def _database(self, state: OperatorState, name: str, max_parallelism: int) -> tuple[QuerySpec, Held]:
        if (known := self._known_database(name)) is not None:
            return known
        with self._opening:
            if (known := self._known_database(name)) is not None:
                return known
            spec = spec_of(state.operator_id, frozen_database.mark(state), max_parallelism)
            folder = self._scratch.new_path()
            try:
                about = frozen_database.restore_files(state, folder, spec.signature, max_parallelism, self._fetch)
                held = HeldInDatabase(spec, about, folder)
            except BaseException:
                self._forget(folder)
                shutil.rmtree(folder, ignore_errors=True)
                raise
            weakref.finalize(held, _release, held.database, folder).atexit = False
            dropped = []
            with self._guard:
                self._databases[name] = held, spec, folder
                while len(self._databases) > self._most:
                    dropped.append(self._databases.popitem(last=False)[1])
            for _, _, old in dropped:
                self._forget(old)
            return spec, held

    def _fetch(self, handle: StateHandle, target: Path) -> None:
        """A table of a database: from storage, or from another database here that has it."""
        known = self._tables.get(handle.checksum)
        if known is not None:
            os.link(known, target)
        else:
            download(handle, target)
        self._tables[handle.checksum] = target  # the newest one, which is deleted last

    def _forget(self, folder: Path) -> None:
        self._tables = {checksum: path for checksum, path in self._tables.items() if path.parent != folder}


def _names(state: OperatorState, name: str) -> list[str]:
    """Of the files of a part: equal names mean the same file."""
    return [handle.path or f"{name}#{number}" for number, handle in enumerate(handles_of(state))]


def _release(database: Database, folder: Path) -> None:
    database.close()
    shutil.rmtree(folder, ignore_errors=True)
