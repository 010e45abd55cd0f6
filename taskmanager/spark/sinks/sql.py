"""Upsert into a database: the last row of each key since the last barrier, committed with the checkpoint.

Rows and a line in the ledger table `lockgate_commits` go into one transaction; the line's checkpoint only rises. A
commit that comes again, or late from an attempt that was replaced, finds the line and does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from lockgate_proto.messages import SinkTransaction
from lockgate_proto.messages import SqlSink as SqlOptions
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError

from taskmanager.spark.sinks import tables
from taskmanager.spark.sinks.transaction import Pending, RowsPending, Sink, SinkContext, restored_rows
from taskmanager.spark.sinks.upsert import INSERTS, Upsert
from taskmanager.state.backend import SnapshotWriter
from taskmanager.task.program import UserError

_BUSY_TIMEOUT_S = 30
_COMPACT_ROWS = 100_000


class SqlSink(Sink):
    """See the module. Connects when the schema is known, or when a restored transaction has to be committed."""

    def __init__(self, context: SinkContext, options: SqlOptions) -> None:
        """Raises UserError for a URL that cannot be used."""
        super().__init__(context)
        if not options.keys:
            raise UserError(f"{context.where}: an SQL sink needs key columns, its rows are upserted by them")
        self._options = options
        self._keys = tuple(options.keys)
        self._engine = _engine(options.url, context.where)
        self._ledger = tables.ledger(sa.MetaData())
        self._statement: Upsert | None = None
        self._schema: pa.Schema | None = None
        self._open: list[pa.Table] = []
        self._open_rows = 0
        self._compact_at = _COMPACT_ROWS

    def prepare(self, schema: pa.Schema) -> None:
        """See Sink."""
        if self._statement is not None and schema.equals(self._schema):
            return
        with self._explained():
            tables.ensure(self._engine, self._ledger)
            table = tables.target(self._engine, self._options.table, schema, self._keys, self.context.where)
            self._statement = Upsert(self._engine.dialect, table, self._keys)
            self._schema = schema

    def write(self, table: pa.Table) -> None:
        """See Sink."""
        for key in self._keys:
            if table.column(key).null_count:
                raise UserError(f"{self.context.where}: a row has NULL in key column '{key}'; filter such rows out")
        if not table.num_rows:
            return
        self._open.append(table)
        self._open_rows += table.num_rows
        if self._open_rows >= self._compact_at:
            self._open = [last_per_key(pa.concat_tables(self._open), self._keys)]
            self._open_rows = self._open[0].num_rows
            self._compact_at = max(_COMPACT_ROWS, 2 * self._open_rows)

    def close(self) -> None:
        """See Sink."""
        self._engine.dispose()

    def _seal(self, checkpoint_id: int) -> Pending | None:
        opened, self._open, self._open_rows = self._open, [], 0
        return _UpsertPending(self.context, checkpoint_id, opened, self._keys) if opened else None

    def _commit(self, pending: Pending) -> None:
        assert isinstance(pending, _UpsertPending)
        self._upsert(pending.table, pending.checkpoint_id)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        rows = restored_rows(transaction)
        if rows is not None:
            self.prepare(rows.schema)
            self._upsert(rows, transaction.checkpoint_id)

    def _upsert(self, rows: pa.Table, checkpoint_id: int) -> None:
        assert self._statement is not None, "prepare comes first"
        with self._explained():
            write = self._statement.prepare(rows)
            with self._engine.begin() as connection:
                if self._claimed(connection, checkpoint_id):
                    write(connection)

    def _claimed(self, connection: sa.Connection, checkpoint_id: int) -> bool:
        """Raises the ledger to `checkpoint_id`; False when it is there already. Locks the line until the commit."""
        context, line = self.context, self._ledger
        insert = INSERTS[self._engine.dialect.name](line).values(
            job=context.job_key,
            run=context.run_id,
            operator=context.operator_id,
            subtask=context.subtask,
            checkpoint=checkpoint_id,
        )
        statement = insert.on_conflict_do_update(
            index_elements=["job", "run", "operator", "subtask"],
            set_={"checkpoint": insert.excluded.checkpoint},
            where=line.c.checkpoint < insert.excluded.checkpoint,
        )
        return connection.execute(statement).rowcount > 0

    @contextmanager
    def _explained(self) -> Iterator[None]:
        where = f"{self.context.where}: the database {self._engine.url.render_as_string(hide_password=True)}"
        try:
            yield
        except OperationalError as error:  # not reachable, locked, full: may be over at the next attempt
            raise OSError(f"{where} failed: {tables.reason(error)}") from error
        except DBAPIError as error:
            raise UserError(f"{where} refused the rows: {tables.reason(error)}") from error
        except SQLAlchemyError as error:
            raise UserError(f"{where} cannot be used: {tables.reason(error)}") from error


class _UpsertPending(RowsPending):
    """Concatenates and deduplicates where that is not in the barrier's way."""

    def __init__(
        self, context: SinkContext, checkpoint_id: int, opened: Sequence[pa.Table], keys: Sequence[str]
    ) -> None:
        super().__init__(context, checkpoint_id, opened[0])
        self._opened = opened
        self._keys = keys

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:
        self.table = last_per_key(pa.concat_tables(self._opened), self._keys)
        self._opened = [self.table]
        return super().persist(writer)


def last_per_key(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key."""
    indexed = table.select(keys).append_column("__row", pa.array(np.arange(table.num_rows)))
    last = indexed.group_by(list(keys)).aggregate([("__row", "max")]).column("__row_max")
    if len(last) == table.num_rows:
        return table.combine_chunks()
    return table.take(last.take(pc.sort_indices(last))).combine_chunks()


def _engine(url: str, where: str) -> sa.Engine:
    try:
        try:
            parsed = sa.make_url(url)
        except ValueError:  # its text may hold a part of the password, so it is not shown
            raise UserError(f"{where}: the database URL cannot be used: its port is not a number") from None
        if parsed.get_backend_name() not in INSERTS:
            raise UserError(f"{where}: {parsed.get_backend_name()} is not supported; use sqlite or postgresql")
        if parsed.get_backend_name() != "sqlite":
            return sa.create_engine(parsed, pool_size=1, max_overflow=1, pool_pre_ping=True)
        engine = sa.create_engine(parsed, connect_args={"timeout": _BUSY_TIMEOUT_S})
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise UserError(f"{where}: the database URL cannot be used: {error}") from error
    # A transaction that reads before it writes fails at once when another one writes; taking the lock first waits
    sa.event.listen(engine, "connect", lambda connection, _: setattr(connection, "isolation_level", None))
    sa.event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    return engine
