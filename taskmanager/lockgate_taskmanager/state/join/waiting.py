"""Rows of one side of an interval join that wait for partners, wherever they are."""

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

    Keys are told apart by their hash alone: who asks compares the keys of what is found. restored_from: after a
    restore, what each subtask that stored a part of the rows says of it.
    """

    restored_from: Sequence[About]

    def add(self, rows: pa.RecordBatch, hashes: Array, times: Array) -> None:
        """Rows with the hashes of their keys and their times in milliseconds. Costs by them, not by what waits."""
        ...

    def near(self, hashes: Array, first: Array, last: Array) -> Iterator[tuple[Array, pa.RecordBatch]]:
        """Who asks (a position in the arrays) and a row with this hash and a time in [first, last]; in portions.

        last - first is the span less 1 ms. Rows that are forgotten may be among them. Costs by what is asked for and
        by candidates.
        """
        ...

    def forget(self, until: int) -> None:
        """Rows with a time at or before `until` are not asked for any more."""
        ...

    def purge(self, until: int) -> None:
        """Right after a restore: rows with a time at or before `until` are gone, whoever asks."""
        ...

    def snapshot(self, order: SnapshotOrder, about: About, later: Sequence[Any]) -> FrozenStore:
        """The rows as they are now, without those at or before `about.purged_until`. Raises OSError.

        later: what this has made of the sides that are stored after it.
        """
        ...

    def close(self) -> None:
        """Lets go of memory and scratch files. Idempotent."""
        ...


class SideStores(Protocol):
    """Makes the rows of each side."""

    def fresh(self, spec: SideSpec, schema: pa.Schema) -> WaitingRows:
        """Without rows. schema: of the rows. Raises UserError when a type cannot be kept, OSError."""
        ...

    def restored(self, spec: SideSpec, states: Sequence[OperatorState], checkpoint_id: int) -> WaitingRows:
        """What one or several subtasks have stored. Raises StateUnreadable, OSError, UserError."""
        ...


def columns_of(schema: pa.Schema) -> pa.Schema:
    """The rows' own columns of those that they come with."""
    return pa.schema([field for field in schema if field.name not in (HASH, EVENT_TIME)])
