"""The base of every sink: staging, sealing at a barrier, committing once its checkpoint is completed.

    write --> open --seal(n)--> pending(n) --persist--> durable, in snapshot n --commit(m >= n)--> visible

A transaction whose checkpoint was aborted stays pending and is part of the next snapshot. Committing is idempotent.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from lockgate_common.arrow_input import read_stream
from lockgate_proto.messages import SinkTransaction

from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.state.backend import SnapshotWriter, load
from lockgate_taskmanager.task.program import Canceled, StateUnreadable


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a transaction. Another run, or another subtask, may have to commit it."""

    job_key: str
    run_id: str
    subtask: int


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The identity of a sink. where: its name in messages; parallelism: current number of subtasks of the vertex.

    is_at_most_once: what may have been shown is not shown again; is_fresh: no snapshot was restored.
    """

    job_key: str
    run_id: str
    attempt: int
    vertex_id: str
    subtask: int
    operator_id: str
    where: str
    parallelism: int = 0  # unknown: replaces only itself
    limits: Limits = UNLIMITED
    is_at_most_once: bool = False
    is_fresh: bool = True

    def stands_in_for(self, subtask: int) -> bool:
        """True for output that this subtask, or one that the rescaled job no longer has, staged in an earlier
        attempt.
        """
        return (subtask % self.parallelism if self.parallelism else subtask) == self.subtask

    @property
    def owner(self) -> Owner:
        """The owner of what this sink stages."""
        return Owner(self.job_key, self.run_id, self.subtask)

    def owner_of(self, transaction: SinkTransaction) -> Owner:
        """The owner of a restored pending transaction: of the run that took the snapshot, which may have committed
        it.
        """
        return Owner(transaction.job_key or self.job_key, transaction.run_id or self.run_id, transaction.subtask)


class Pending(Protocol):
    """A sealed transaction."""

    @property
    def checkpoint_id(self) -> int:
        """The checkpoint whose barrier sealed it."""
        ...

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:
        """Makes it durable, for the snapshot that `writer` writes. From any thread; again for every later snapshot."""
        ...


class Sink(ABC):
    """A sink of one subtask. Every method except `cancel` is called from the subtask's thread."""

    def __init__(self, context: SinkContext) -> None:
        self.context = context
        self._pending: list[Pending] = []
        self._canceled = threading.Event()

    @property
    def is_transactional(self) -> bool:
        """False when output is visible at once and the snapshot contains none of it."""
        return True

    @abstractmethod
    def prepare(self, schema: pa.Schema) -> None:
        """Called with the schema of the output, before the first write. Raises UserError."""

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Stages records. Raises UserError, OSError."""

    @abstractmethod
    def _seal(self, checkpoint_id: int) -> Pending | None:
        """Ends the open transaction without slow I/O; None when nothing was written."""

    @abstractmethod
    def _commit(self, pending: Pending) -> None:
        """Makes a sealed transaction visible exactly once, even when called again."""

    @abstractmethod
    def _commit_restored(self, transaction: SinkTransaction) -> None:
        """The same for a transaction that is known from a snapshot only."""

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """Commits the pending transactions of a restored snapshot. Raises UserError, StateUnreadable, OSError."""
        for transaction in sorted(transactions, key=lambda transaction: transaction.checkpoint_id):
            self._commit_restored(transaction)

    def seal(self, checkpoint_id: int) -> tuple[Pending, ...]:
        """Seals the output since the last barrier; returns all pending transactions, which belong to the snapshot."""
        sealed = self._seal(checkpoint_id)
        if sealed is not None:
            self._pending.append(sealed)
        return tuple(self._pending)

    def commit(self, checkpoint_id: int) -> bool:
        """Makes everything sealed up to `checkpoint_id` visible, in order; False if that was nothing."""
        has_output = False
        while self._pending and self._pending[0].checkpoint_id <= checkpoint_id:
            self._commit(self._pending[0])
            self._pending.pop(0)
            has_output = True
        return has_output

    def cancel(self) -> None:
        """From any thread: calls that wait for another system raise Canceled soon. Returns at once; idempotent."""
        self._canceled.set()

    def require_live(self) -> None:
        """Raises Canceled once `cancel` was called. From any thread."""
        if self._canceled.is_set():
            raise Canceled(f"{self.context.where} was cancelled")

    def close(self) -> None:  # noqa: B027  most sinks hold nothing
        """Releases connections and files; staged output stays."""


class RowsPending:
    """Rows that are stored in the snapshot as an Arrow IPC stream."""

    def __init__(self, context: SinkContext, checkpoint_id: int, table: pa.Table) -> None:
        self._context = context
        self._checkpoint_id = checkpoint_id
        self.table = table

    @property
    def checkpoint_id(self) -> int:
        return self._checkpoint_id

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:
        """A snapshot owns its files, so each one stores the rows again."""
        handle = writer.store(f"{self._context.operator_id}-rows{self._checkpoint_id}", to_stream(self.table))
        owner = self._context.owner
        return SinkTransaction(
            checkpoint_id=self._checkpoint_id,
            subtask=owner.subtask,
            rows=handle,
            job_key=owner.job_key,
            run_id=owner.run_id,
        )


def to_stream(table: pa.Table) -> pa.Buffer:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue()


def restored_rows(transaction: SinkTransaction) -> pa.Table | None:
    """The rows of a transaction from a snapshot. Raises StateUnreadable."""
    if transaction.rows is None:
        return None
    try:
        return read_stream(load(transaction.rows))
    except pa.ArrowInvalid as error:
        raise StateUnreadable(f"the rows of a transaction cannot be read: {error}") from error
