"""The interface of keyed state, in memory or in a database.

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
    """The result of a merge.

    records: number of input rows of the partials; changed: keys and outputs, each key once; late: the same for late
    records only, or these as they are; dropped: number of records that are in no result because they were late; failed:
    records on which the operator failed and which it left out, as dead letters.
    """

    records: int
    changed: pa.Table
    late: pa.Table | None = None
    dropped: int = 0
    failed: pa.Table | None = None


class FrozenStore(Protocol):
    """A consistent copy of a store. `persist` runs on a background thread, at most once."""

    @property
    def operator_id(self) -> str:
        """Whose state it is."""
        ...

    def persist(self, checkpoint_id: int, writer: SnapshotWriter) -> OperatorState:
        """Stores it. Raises SnapshotTooLarge, OSError."""
        ...

    def release(self) -> None:
        """The copy is stored, or will not be: the store need keep nothing for it. Idempotent, from any thread."""
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
        """Releases memory and scratch files. Idempotent."""
        ...


@runtime_checkable
class Fires(KeyedStore, Protocol):
    """A store that emits results when event time advances."""

    def advance(self, watermark_ms: int) -> pa.Table:
        """Advances event time and returns the first portion of the due results. Raises UserError.

        While `has_more` is true, only `go_on` may be called and, while `is_settled` is true, `snapshot`.
        """
        ...

    def go_on(self) -> pa.Table:
        """The next portion of the results begun by `advance` or `tick`; may be empty. Raises UserError."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether there are, or may be, more due results."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether a snapshot taken now holds the remaining results, so that a restored store emits them when due."""
        ...


@runtime_checkable
class CompiledStore(Protocol):
    """A store that runs code of its own."""

    def warm_up(self) -> None:
        """Runs the compiled code on empty input."""
        ...


@runtime_checkable
class PassesLateRecords(Protocol):
    """A store whose late records are passed on as they are. late_schema: of `Merged.late`."""

    @property
    def late_schema(self) -> pa.Schema: ...


@runtime_checkable
class ProcessingTimeStore(Fires, CompiledStore, Protocol):
    """A store that also uses the wall clock. Times are milliseconds since 1970."""

    def tick(self, unix_ms: int) -> pa.Table | None:
        """Sets the wall clock, also for the next merges, and returns the due results as `advance` does.

        Returns None, quickly, when nothing is due.
        """
        ...

    def wakes_at(self) -> int | None:
        """The time at which `tick` has something to do, or an earlier one; None: no call is needed."""
        ...

    def set_input_schema(self, schema: pa.Schema) -> None:
        """Sets the columns of the input, which may differ from those before a restore. Raises UserError."""
        ...


class OperatorStores(Protocol):
    """Makes the stores of one operator."""

    def fresh(self, schema: pa.Schema) -> KeyedStore:
        """An empty store. schema: of the merged tables. Raises UserError when a column or type does not fit."""
        ...

    def restored(self, states: Sequence[OperatorState], checkpoint_id: int) -> KeyedStore:
        """A store with the state of one or several subtasks. Raises StateUnreadable, OSError, UserError."""
        ...
