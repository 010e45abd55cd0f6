"""A database filled from snapshots: taken over as it was, or put together from what several subtasks have stored."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pyarrow as pa
from lockgate_proto.messages import OperatorState, StateHandle, StateKind

from taskmanager.state import filling, stored
from taskmanager.state.backend import download
from taskmanager.state.chains import Chain, Chains
from taskmanager.state.event_clock import Restored
from taskmanager.state.frozen_rocks import restore_files
from taskmanager.state.heap import handles_of
from taskmanager.state.held_database import HeldDatabase


class Filled(Protocol):
    """A store with a database of its own."""

    @property
    def database(self) -> HeldDatabase:
        """Where its rows are."""
        ...

    @property
    def chains(self) -> Chains:
        """What its snapshots build on."""
        ...

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Adds rows of snapshot files."""
        ...

    def filled(self, told: Sequence[Restored]) -> None:
        """Every row is there now. told: what each of those who stored them says of itself."""
        ...


S = TypeVar("S", bound=Filled)


@dataclass(frozen=True, slots=True)
class Restore(Generic[S]):
    """What the state of one operator needs to come back in one subtask.

    signature: of the state; make: a store in a folder, with the database that lies there if any, from the schema that
    the state was stored with, and the memory that it may use; latest: what a chain of files comes to.
    """

    operator_id: str
    signature: str
    max_parallelism: int
    key_groups: range
    make: Callable[[pa.Schema, Path, int], S]
    latest: Callable[[Sequence[stored.Stored]], stored.Stored]

    def run(self, states: Sequence[OperatorState], checkpoint_id: int, folder: Path, memory_bytes: int) -> S:
        """The store. folder: of it alone, not there yet. Raises StateUnreadable, OSError, UserError."""
        with filling.new_folder(folder):
            if len(states) == 1 and states[0].kind is StateKind.ROCKSDB_STATE:
                return self._taken_over(states[0], checkpoint_id, folder, memory_bytes)
            return self._put_together(states, folder, memory_bytes)

    def _taken_over(self, state: OperatorState, checkpoint_id: int, folder: Path, memory_bytes: int) -> S:
        """The stored database itself; of another subtask's, the key groups that are ours now."""
        about = restore_files(state, folder / "db", self.signature, self.max_parallelism)
        store = self.make(about.partial_schema, folder, memory_bytes)
        if about.owned == self.key_groups:
            store.chains.stored(checkpoint_id, Chain(0, state.files))
        else:
            filling.keep(store.database.itself, self.key_groups)
        store.filled([about])
        return store

    def _put_together(self, states: Sequence[OperatorState], folder: Path, memory_bytes: int) -> S:
        store: S | None = None
        told: list[Restored] = []
        for number, state in enumerate(states):
            part = folder / f"part-{number}"
            if state.kind is StateKind.ROCKSDB_STATE:
                about = restore_files(state, part, self.signature, self.max_parallelism)
                store = self.make(about.partial_schema, folder, memory_bytes) if store is None else store
                told.append(about)
                filling.copy(store.database.itself, self.key_groups, part, memory_bytes)
            else:
                part.mkdir()
                chain = [self._read(handle, part / str(at)) for at, handle in enumerate(handles_of(state))]
                store = self.make(chain[0].partial_schema, folder, memory_bytes) if store is None else store
                told.append(chain[-1])
                store.load(self.latest(chain).batches)
            shutil.rmtree(part, ignore_errors=True)
        assert store is not None, "there is at least one state"
        store.filled(told)
        return store

    def _read(self, handle: StateHandle, target: Path) -> stored.Stored:
        """A snapshot file, read from a copy on this disk a page at a time: it may be larger than memory."""
        download(handle, target)
        return stored.read(
            pa.memory_map(str(target)),
            handle.path or f"of operator {self.operator_id} inside the checkpoint",
            signature=self.signature,
            max_parallelism=self.max_parallelism,
            wanted=self.key_groups,
        )
