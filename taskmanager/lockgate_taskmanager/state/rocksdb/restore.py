"""Restores a database from snapshots: takes over a stored database, or combines the state of several subtasks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.backend import download, fetch_table
from lockgate_taskmanager.state.chains import Chain
from lockgate_taskmanager.state.format.state_file import Stored
from lockgate_taskmanager.state.heap.snapshots import handles_of
from lockgate_taskmanager.state.rocksdb.database_store import DatabaseStore
from lockgate_taskmanager.state.rocksdb.engine import Database
from lockgate_taskmanager.state.rocksdb.frozen_database import restore_files
from lockgate_taskmanager.state.spec import StateSpec
from lockgate_taskmanager.task.program import StateUnreadable

S = TypeVar("S", bound=DatabaseStore)
Fetch = Callable[[StateHandle, Path], None]


@dataclass(frozen=True, slots=True)
class Restore(Generic[S]):
    """Restores the state of one operator in one subtask.

    make: creates a store in a folder, with the database there if any, from the stored schema; memory_bytes: limit for
    each database.
    """

    spec: StateSpec
    make: Callable[[pa.Schema, Path], S]
    memory_bytes: int

    def run(self, states: Sequence[OperatorState], checkpoint_id: int, folder: Path) -> S:
        """The store. folder: of it alone, not there yet. Raises StateUnreadable, OSError, UserError."""
        with _new_folder(folder):
            if len(states) == 1 and states[0].kind is StateKind.ROCKSDB_STATE:
                return self._taken_over(states[0], checkpoint_id, folder)
            return self._put_together(states, folder)

    def _taken_over(self, state: OperatorState, checkpoint_id: int, folder: Path) -> S:
        """Opens the stored database. Of another subtask's database, only the own key groups are kept."""
        about, store = self._opened(state, folder)
        if about.owned == self.spec.key_groups:
            store.chains.stored(checkpoint_id, Chain(0, state.files))
        else:
            store.keep_own_groups()
        store.filled([about])
        return store

    def _opened(self, state: OperatorState, folder: Path) -> tuple[About, S]:
        about = self._files(state, folder / "db", fetch_table)
        with suppress(StateUnreadable):
            return about, self.make(about.partial_schema, folder)
        shutil.rmtree(folder / "db")
        about = self._files(state, folder / "db", fetch_table)  # finds copies that were damaged after they were written
        return about, self.make(about.partial_schema, folder)

    def _put_together(self, states: Sequence[OperatorState], folder: Path) -> S:
        store: S | None = None
        sources: list[About] = []
        incoming: pa.Schema | None = None
        for number, state in enumerate(states):
            part = folder / f"part-{number}"
            is_database = state.kind is StateKind.ROCKSDB_STATE
            chain = [] if is_database else self._chain(state, part)
            about = self._files(state, part) if is_database else chain[-1].about
            schema = about.partial_schema if is_database else chain[0].about.partial_schema
            incoming = schema if incoming is None else incoming
            store = self.make(incoming, folder) if store is None else store
            self.spec.require_like(incoming, schema)
            if is_database:
                with closing(Database(part, self.memory_bytes, is_read_only=True)) as other:
                    store.copy(other, about)
            else:
                store.load(self.spec.rows(chain))
            sources.append(about)
            shutil.rmtree(part, ignore_errors=True)
        assert store is not None, "there is at least one state"
        store.filled(sources)
        return store

    def _files(self, state: OperatorState, folder: Path, fetch: Fetch = download) -> About:
        return restore_files(state, folder, self.spec.signature, self.spec.max_parallelism, fetch)

    def _chain(self, state: OperatorState, part: Path) -> list[Stored]:
        part.mkdir()
        return [self._read(handle, part / str(at)) for at, handle in enumerate(handles_of(state))]

    def _read(self, handle: StateHandle, target: Path) -> Stored:
        """A snapshot file, read page by page from a local copy, because it may be larger than memory."""
        download(handle, target)
        return self.spec.read(pa.memory_map(str(target)), self.spec.where(handle))


@contextmanager
def _new_folder(folder: Path) -> Iterator[None]:
    """The folder of a new store; removed when the store cannot be filled."""
    folder.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
