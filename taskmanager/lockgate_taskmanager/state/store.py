"""What every home of keyed state can do, whether it lies in memory or in a database.

partial table --merge--> changed keys with their new values
              --snapshot--> FrozenStore --persist (background)--> OperatorState: handles, durable
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa
from lockgate_proto.messages import OperatorState

from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import SnapshotOrder


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge did.

    records: input rows behind the partials; changed: keys and outputs, each key once; late: the same of what came too
    late for its window, alone; dropped: how many records are in no result for that; failed: those that the operator
    has failed on and gone on without, as dead letters.
    """

    records: int
    changed: pa.Table
    late: pa.Table | None = None
    dropped: int = 0
    failed: pa.Table | None = None


class FrozenStore(Protocol):
    """A consistent copy of a store. `persist` runs on a background thread, at most once."""

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """Stores it. Raises SnapshotTooLarge, OSError."""
        ...

    def release(self) -> None:
        """It is stored, or will not be: the store need not keep anything for it. Idempotent, from any thread."""
        ...


class KeyedStore(Protocol):
    """Keyed state of one operator in one subtask. Used from the subtask's own thread.

    schema: of `Merged.changed`; partial_schema: of the tables that are merged.
    """

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def partial_schema(self) -> pa.Schema: ...

    def merge(self, partial: pa.Table) -> Merged:
        """Folds a partial table, see `layout`. Costs by its rows, not by the keys held. Raises UserError."""
        ...

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        """The state as it is now. Raises OSError."""
        ...

    def close(self) -> None:
        """Lets go of memory and scratch files. Idempotent."""
        ...


@runtime_checkable
class Fires(KeyedStore, Protocol):
    """A store that has results when event time goes on."""

    def advance(self, watermark_ms: int) -> pa.Table:
        """What is due now that event time has come so far: the first portion of it. Raises UserError.

        While it `has_more`, nothing else is called but `go_on` and, while it `is_settled`, `snapshot`.
        """
        ...

    def go_on(self) -> pa.Table:
        """The next portion of what `advance` or `tick` has begun with, perhaps empty. Raises UserError."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether some of what is due is still to come, or may be."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether a snapshot taken now holds what is still to come: restored, the store gives that when it is due."""
        ...


@runtime_checkable
class ProcessingTimeStore(Fires, Protocol):
    """A store that goes by the wall clock as well. Times are milliseconds since 1970."""

    def tick(self, unix_ms: int) -> pa.Table | None:
        """The wall clock says so, also to what is merged next. Gives what is due, as `advance` does.

        None, at once, where nothing is.
        """
        ...

    def wakes_at(self) -> int | None:
        """When `tick` has something to do, or earlier; None: it need not be called for its own sake."""
        ...

    def set_input_schema(self, schema: pa.Schema) -> None:
        """Records come in with these columns, which may be others than those before a restore. Raises UserError."""
        ...

    def warm_up(self) -> None:
        """Runs what is compiled over nothing."""
        ...


class OperatorStores(Protocol):
    """Makes the stores of one operator."""

    def fresh(self, schema: pa.Schema) -> KeyedStore:
        """An empty one. schema: of what is merged. Raises UserError when a column or type does not fit."""
        ...

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        """One that holds what was stored, by one or several subtasks. Raises StateUnreadable, OSError, UserError."""
        ...
