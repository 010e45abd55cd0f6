"""A frozen copy of a RocksDB database: how it is stored, and how what was stored becomes a database again."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from taskmanager.state import stored
from taskmanager.state.backend import SnapshotWriter, download, load
from taskmanager.state.chains import Chain, Chains
from taskmanager.state.database_copy import DatabaseCopy
from taskmanager.state.rocksdb import Database
from taskmanager.task.program import StateUnreadable

TABLES = ".sst"
_ABOUT = "about.json"
_FORMAT = "1"
GROUP_BYTES = 2


class TableForm(Protocol):
    """See rocks.RowForm."""

    def stored_batch(self, rows: Sequence[tuple[bytes, bytes]]) -> pa.RecordBatch:
        """Rows of the database as rows of a snapshot file."""
        ...


@dataclass(frozen=True, slots=True)
class FrozenRocks:
    """See FrozenStore. copy: of the database as it was; base: whose tables are stored already."""

    operator_id: str
    copy: DatabaseCopy
    about: stored.About
    chains: Chains
    base: Chain | None
    is_savepoint: bool
    form: TableForm

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """See FrozenStore. Tables that the base has are not stored again."""
        self.copy.make()
        if self.is_savepoint:
            return self._persist_savepoint(writer)
        there = {handle.name: handle for handle in self.base.handles} if self.base is not None else {}
        tables = sorted(path for path in self.copy.path.iterdir() if path.suffix == TABLES)
        files = tuple(self._table(path, there.get(path.name), writer) for path in tables)
        rest = [path for path in self.copy.path.iterdir() if path.suffix != TABLES]
        handle = writer.store(self.operator_id, _zipped(rest, self.about))
        self.chains.stored(checkpoint_id, Chain(0, files))
        return OperatorState(self.operator_id, StateKind.ROCKSDB_STATE, handle, (), files)

    def release(self) -> None:
        """See FrozenStore."""
        self.copy.drop()

    def _table(self, path: Path, known: StateHandle | None, writer: SnapshotWriter) -> StateHandle:
        if known is not None:
            return writer.take_over(known)
        return replace(writer.store_file(f"{self.operator_id}-{path.name}", path, is_shared=True), name=path.name)

    def _persist_savepoint(self, writer: SnapshotWriter) -> OperatorState:
        """The format that every backend reads, one key group after the other."""
        target = self.copy.path.with_suffix(".arrow")
        database = Database(self.copy.path, is_read_only=True)
        try:
            schema = self.form.stored_batch([]).schema
            stored.write_groups(target, self._groups(database), schema, self.about)
            handle = writer.store_file(self.operator_id, target)
        finally:
            database.close()
            target.unlink(missing_ok=True)
        return OperatorState(self.operator_id, StateKind.KEYED_STATE, handle)

    def _groups(self, database: Database) -> Iterator[pa.RecordBatch]:
        for group in self.about.owned:
            yield self.form.stored_batch(list(database.rows(group_key(group), group_key(group + 1))))


def group_key(group: int) -> bytes:
    """What no database key of that key group or a later one, and every one of an earlier group, is smaller than."""
    return group.to_bytes(GROUP_BYTES, "big")


def restore_files(state: OperatorState, folder: Path, signature: str, max_parallelism: int) -> stored.About:
    """Puts a stored database together in `folder`, which is made. Raises StateUnreadable, OSError."""
    handle = state.handle or StateHandle()
    where = handle.path or f"of operator {state.operator_id} inside the checkpoint"
    try:
        with zipfile.ZipFile(io.BytesIO(load(handle).to_pybytes())) as archive:
            said = json.loads(archive.read(_ABOUT))
            about = stored.about_of(said, where, (_FORMAT,), signature, max_parallelism)
            folder.mkdir(parents=True)
            for name in archive.namelist():
                if name != _ABOUT:
                    (folder / Path(name).name).write_bytes(archive.read(name))
    except (zipfile.BadZipFile, KeyError, ValueError, pa.ArrowException) as error:
        raise StateUnreadable(f"the state file {where} cannot be read as a database: {error}") from error
    for one in state.files:
        download(one, folder / Path(one.name).name)
    return about


def _zipped(files: Sequence[Path], about: stored.About) -> pa.Buffer:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_ABOUT, json.dumps(stored.described(about, _FORMAT)))
        for path in files:
            archive.write(path, path.name)
    return pa.py_buffer(target.getvalue())
