"""A frozen copy of a RocksDB database: how it is stored, and how it is restored."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from lockgate_common.json_input import parse_json
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.backend import SnapshotWriter, download, load
from lockgate_taskmanager.state.chains import Chain, Chains
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.rocksdb import element_entries
from lockgate_taskmanager.state.rocksdb.database_copy import DatabaseCopy
from lockgate_taskmanager.state.rocksdb.engine import Database, portions, size_of
from lockgate_taskmanager.task.program import StateUnreadable

TABLES = ".sst"
_ABOUT = "about.json"
_FORMAT, _WITH_ELEMENTS = "1", "2"
GROUP_BYTES = 2
_CURRENT = "CURRENT"  # RocksDB's file with the name of the one that lists the tables
_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    NotImplementedError,  # compressed in a way, or of a version, that is not Python's
    RuntimeError,  # encrypted
    TypeError,
    ValueError,
    pa.ArrowException,
)
"""What reading an archive may raise that is none, or none of ours."""


class TableForm(Protocol):
    """The layout of rows in a database."""

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Rows of the database as rows of a snapshot file."""
        ...


@dataclass(frozen=True, slots=True)
class FrozenDatabase:
    """The FrozenStore of a database.

    copy: the database as of the barrier; base: the snapshot whose tables are already stored; piece: which one it is
    where an operator has several databases; has_elements: whether rows may have elements apart.
    """

    operator_id: str
    copy: DatabaseCopy
    about: About
    chains: Chains
    base: Chain | None
    is_savepoint: bool
    form: TableForm
    piece: str = ""
    has_elements: bool = False

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """Stores the tables that the base does not have. Raises SnapshotTooLarge, OSError."""
        self.copy.make()
        if self.is_savepoint:
            return self._persist_savepoint(writer)
        there = {handle.name: handle for handle in self.base.handles} if self.base is not None else {}
        tables = sorted(path for path in self.copy.path.iterdir() if path.suffix == TABLES)
        files = tuple(self._table(path, there.get(path.name), writer) for path in tables)
        rest = [path for path in self.copy.path.iterdir() if path.suffix != TABLES]
        handle = replace(writer.store(self._name, _zipped(rest, self._described())), name=self.piece)
        self.chains.stored(checkpoint_id, Chain(0, files))
        return OperatorState(self.operator_id, StateKind.ROCKSDB_STATE, handle, (), files)

    def release(self) -> None:
        self.copy.drop()

    @property
    def _name(self) -> str:
        return f"{self.operator_id}-{self.piece}" if self.piece else self.operator_id

    def _table(self, path: Path, known: StateHandle | None, writer: SnapshotWriter) -> StateHandle:
        if known is not None:
            return writer.take_over(known)
        return replace(writer.store_file(f"{self._name}-{path.name}", path, is_shared=True), name=path.name)

    def _persist_savepoint(self, writer: SnapshotWriter) -> OperatorState:
        """Stores the format that every backend reads, in portions, key group by key group."""
        target = self.copy.path.with_suffix(".arrow")
        database = Database(self.copy.path, is_read_only=True)
        try:
            schema = self.form.stored_batch([]).schema
            state_file.write_groups(target, self._groups(database), schema, self.about)
            handle = replace(writer.store_file(self._name, target), name=self.piece)
        finally:
            database.close()
            target.unlink(missing_ok=True)
        return OperatorState(self.operator_id, StateKind.KEYED_STATE, handle)

    def _groups(self, database: Database) -> Iterator[pa.RecordBatch]:
        for group in self.about.owned:
            found = database.rows(group_key(group), group_key(group + 1))
            for rows in portions(element_entries.whole(database, found) if self.has_elements else found, size_of):
                yield self.form.stored_batch(rows)

    def _described(self) -> dict[str, str]:
        return state_file.described(self.about, _WITH_ELEMENTS if self.has_elements else _FORMAT)


def group_key(group: int) -> bytes:
    """The boundary between the database keys of earlier groups and those of that key group."""
    return group.to_bytes(GROUP_BYTES, "big")


def mark(state: OperatorState) -> str:
    """The signature of a stored database: what its state belongs to. Raises StateUnreadable, OSError."""
    with _opened(state) as archive:
        return str(_metadata(archive)["lockgate.signature"])


def restore_files(
    state: OperatorState,
    folder: Path,
    signature: str,
    max_parallelism: int,
    fetch: Callable[[StateHandle, Path], None] = download,
) -> About:
    """Restores a stored database into the new folder `folder`. Raises StateUnreadable, OSError.

    fetch: brings a table to a path.
    """
    with _opened(state) as archive:
        about = state_file.about_of(
            _metadata(archive), _where(state), (_FORMAT, _WITH_ELEMENTS), signature, max_parallelism
        )
        archive.getinfo(_content(archive, _CURRENT).decode().strip())  # else RocksDB begins anew, or calls it an outage
        folder.mkdir(parents=True)
        for name in archive.namelist():
            if name != _ABOUT:
                (folder / Path(name).name).write_bytes(_content(archive, name))
    for file in state.files:
        fetch(file, folder / Path(file.name).name)
    return about


@contextmanager
def _opened(state: OperatorState) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(io.BytesIO(load(state.handle or StateHandle()).to_pybytes())) as archive:
            yield archive
    except _DAMAGED as error:
        raise StateUnreadable(
            f"the state file {_where(state)} cannot be read as a database: {str(error)[:200]}"
        ) from error


def _metadata(archive: zipfile.ZipFile) -> dict[str, str]:
    found = parse_json(_content(archive, _ABOUT))
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"its {_ABOUT} is not in Lockgate's format")
    return found


def _content(archive: zipfile.ZipFile, name: str) -> bytes:
    """One file. Raises ValueError for one that is not compressed as ours: other ways fail with an OSError, too."""
    entry = archive.getinfo(name)
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"its {name} is compressed in a way that Lockgate does not use")
    return archive.read(entry)


def _where(state: OperatorState) -> str:
    path = "" if state.handle is None else state.handle.path
    return path or f"of operator {state.operator_id} inside the checkpoint"


def _zipped(files: Sequence[Path], described: Mapping[str, str]) -> pa.Buffer:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_ABOUT, json.dumps(described))
        for path in files:
            archive.write(path, path.name)
    return pa.py_buffer(target.getvalue())
