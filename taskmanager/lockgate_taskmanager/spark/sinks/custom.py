"""Sinks that authors write in Python, see `lockgate.connectors.CustomSink`: staged, then committed or aborted."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa
from lockgate_proto.messages import SinkTransaction
from lockgate_proto.transactions import Transaction

from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.spark.sinks.turns import TURNS
from lockgate_taskmanager.spark.sources.custom import blamed
from lockgate_taskmanager.spark.user_code import close_quietly
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import StateUnreadable

_CLOSE_WAIT_S = 1.0


class Connector(Protocol):
    """The interface of `lockgate.connectors.CustomSink`."""

    def open(self) -> None: ...
    def stage(self, transaction: Transaction, rows: pa.Table) -> None: ...
    def commit(self, transaction: Transaction) -> None: ...
    def abort(self, transaction: Transaction) -> None: ...
    def staged(self) -> Iterable[str]: ...
    def close(self) -> None: ...


class CustomWriter(Sink):
    """Calls an author's sink. Staging runs concurrently with the stream, so a lock serializes the author's calls."""

    def __init__(self, context: SinkContext, connector: Connector) -> None:
        super().__init__(context)
        self._connector = connector
        self._lock = threading.Lock()
        self._is_open = False
        self._open: list[pa.Table] = []

    def prepare(self, schema: pa.Schema) -> None:
        pass

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._open.append(table)

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """Afterwards aborts transactions that earlier attempts have staged and no snapshot will ever commit."""
        super().restore(transactions)
        where = self.context.where
        with TURNS.take(self.context, self.require_live), self._lock:
            self._connect()
            with blamed(where, "staged"):
                names = list(self._connector.staged())
            for found in filter(None, map(Transaction.parse, names)):
                if self._is_left_over(found):
                    with blamed(where, "abort"):
                        self._connector.abort(found)

    def close(self) -> None:
        """Does not wait for author code that hangs: the attempt has to end."""
        if not self._lock.acquire(timeout=_CLOSE_WAIT_S):
            return
        try:
            if self._is_open:
                self._is_open = False
                close_quietly(self._connector, self.context.where)
        finally:
            self._lock.release()

    def stage(self, transaction: Transaction, tables: Sequence[pa.Table]) -> None:
        """Called from the thread that stores the snapshot."""
        with self._lock:
            self._connect()
            with blamed(self.context.where, "stage"):
                self._connector.stage(transaction, pa.concat_tables(tables).combine_chunks())

    def _seal(self, checkpoint_id: int) -> Pending | None:
        tables, self._open = self._open, []
        return _CustomPending(self, self._named(checkpoint_id), tables) if tables else None

    def _commit(self, pending: Pending) -> None:
        self._show(self._named(pending.checkpoint_id))

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        named = Transaction.parse(transaction.name)
        if named is None:
            raise StateUnreadable(
                f"checkpoint {transaction.checkpoint_id} has output of another kind of sink for {self.context.where};"
                " start it with the same kind of sink as before"
            )
        self._show(named)

    def _show(self, transaction: Transaction) -> None:
        with TURNS.take(self.context, self.require_live), self._lock:
            self._connect()
            with blamed(self.context.where, "commit"):
                self._connector.commit(transaction)

    def _named(self, checkpoint_id: int) -> Transaction:
        context = self.context
        return Transaction(context.run_id, context.operator_id, context.subtask, context.attempt, checkpoint_id)

    def _is_left_over(self, found: Transaction) -> bool:
        """Of this run's earlier attempts; a replaced attempt must not abort those of a later one."""
        context = self.context
        is_ours = (found.run_id, found.operator_id) == (context.run_id, context.operator_id)
        return is_ours and context.stands_in_for(found.subtask) and found.attempt < context.attempt

    def _connect(self) -> None:
        if not self._is_open:
            with blamed(self.context.where, "open"):
                self._connector.open()
            self._is_open = True


class _CustomPending:
    def __init__(self, sink: CustomWriter, transaction: Transaction, tables: Sequence[pa.Table]) -> None:
        self._sink = sink
        self._transaction = transaction
        self._tables = tuple(tables)
        self._lock = threading.Lock()

    @property
    def checkpoint_id(self) -> int:
        return self._transaction.checkpoint_id

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:  # noqa: ARG002  nothing of it is in the snapshot
        """Stages it, the first time."""
        with self._lock:
            if self._tables:
                self._sink.stage(self._transaction, self._tables)
                self._tables = ()
        owner = self._sink.context.owner
        return SinkTransaction(
            checkpoint_id=self.checkpoint_id,
            subtask=owner.subtask,
            job_key=owner.job_key,
            run_id=owner.run_id,
            name=self._transaction.name,
        )
