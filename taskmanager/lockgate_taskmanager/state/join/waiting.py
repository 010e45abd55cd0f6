"""The interface of the rows of one side of an interval join that wait for partners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa
from lockgate_proto.messages import OperatorState

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.join.join_spec import SideSpec
from lockgate_taskmanager.state.layout import EVENT_TIME, HASH
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import SnapshotOrder

Array = Any  # numpy.ndarray


class WaitingRows(Protocol):
    """Rows of one side, found by the hash of their keys and by time. Used from the subtask's own thread.

    Keys are distinguished by their hash alone: the caller compares the keys of the rows that are found. restored_from:
    after a restore, the headers of the restored pieces.
    """

    restored_from: Sequence[About]

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """Adds rows. hashes: of their keys; times: in milliseconds. Cost grows with these, not with the rows held."""
        ...

    def near(self, hashes: Array, first: Array, last: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """Pairs of a position in the arrays and a row with that hash and a time in [first, last]; in portions.

        last - first is the span less 1 ms. Dropped rows may be among them. Cost grows with the look-ups and candidates.
        """
        ...

    def forget(self, until: int) -> None:
        """Drops rows with a time at or before `until`: no later look-up asks for them."""
        ...

    def purge(self, until: int) -> None:
        """Right after a restore: removes rows with a time at or before `until`, so that no look-up finds them."""
        ...

    def snapshot(self, order: SnapshotOrder, about: About, later: Sequence[Any]) -> FrozenStore:
        """The rows as they are now, without those at or before `about.purged_until`. Raises OSError.

        later: the snapshots of the sides that are stored after this one.
        """
        ...

    def close(self) -> None:
        """Releases memory and scratch files. Idempotent."""
        ...


class SideStores(Protocol):
    """Creates the stores of both sides."""

    def fresh(self, spec: SideSpec, schema: pa.Schema) -> WaitingRows:
        """An empty store. schema: of the rows. Raises UserError when a type cannot be stored, OSError."""
        ...

    def restored(self, spec: SideSpec, states: Sequence[OperatorState], checkpoint_id: int) -> WaitingRows:
        """A store with the state of one or several subtasks. Raises StateUnreadable, OSError, UserError."""
        ...


def columns_of(schema: pa.Schema) -> pa.Schema:
    """The rows' own columns among the received ones."""
    return pa.schema([field for field in schema if field.name not in (HASH, EVENT_TIME)])
