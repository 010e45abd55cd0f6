"""Rows into a database table, committed with the checkpoint: upserted by key, or each record appended.

Rows and a row of the ledger table `lockgate_commits` are written in one transaction; the ledger's checkpoint id only
increases. A repeated commit, or a late one from a replaced attempt, finds the ledger row and does nothing. A sink's
transactions are committed in the order of their checkpoints, so one row tells for each of them whether it was
committed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy as sa
from lockgate_proto.messages import SinkTransaction, SqlWriteMode
from lockgate_proto.messages import SqlSink as SqlOptions

from lockgate_taskmanager.spark.sinks import tables
from lockgate_taskmanager.spark.sinks.database import Database
from lockgate_taskmanager.spark.sinks.insertion import INSERTS, Insertion
from lockgate_taskmanager.spark.sinks.sql_values import comparable_keys, require_storable
from lockgate_taskmanager.spark.sinks.transaction import Owner, Pending, RowsPending, Sink, SinkContext, restored_rows
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import DataError, UserError

_COMPACT_ROWS = 100_000


class SqlSink(Sink):
    """Writes one table. Connects when the schema is known, or when a restored transaction has to be committed."""

    def __init__(self, context: SinkContext, options: SqlOptions) -> None:
        """Raises UserError for a URL that cannot be used."""
        super().__init__(context)
        appends = options.mode is SqlWriteMode.APPEND
        if not options.keys and not appends:
            raise UserError(f"{context.where}: an SQL sink needs key columns, its rows are upserted by them")
        self._options = options
        self._keys = () if appends else tuple(options.keys)
        self._database = Database(options.url, context.where, context.limits)
        self._ledger = tables.ledger(sa.MetaData(), tables.split(options.table)[0])
        self._insertion: Insertion | None = None
        self._schema: pa.Schema | None = None
        self._open: list[pa.Table] = []
        self._open_rows = 0
        self._compact_at = _COMPACT_ROWS

    def prepare(self, schema: pa.Schema) -> None:
        if self._insertion is not None and schema.equals(self._schema):
            return
        engine = self._database.engine
        with self._database.explained(f"the table {self._options.table}"):
            table = tables.target(engine, self._options.table, schema, self._keys, self.context.where)
        with self._database.explained(f"the table {self._ledger.fullname}, in which commits are recorded"):
            tables.ensure(engine, self._ledger)
        self._insertion = Insertion(engine.dialect, table, self._keys)
        self._schema = schema

    def write(self, table: pa.Table) -> None:
        for key in self._keys:
            if table.column(key).null_count:
                raise DataError(f"{self.context.where}: a row has NULL in key column '{key}'; filter such rows out")
        if not table.num_rows:
            return
        if self._database.is_postgresql:
            require_storable(table, self.context.where)
        self._open.append(comparable_keys(table, self._keys))
        self._open_rows += table.num_rows
        if self._keys and self._open_rows >= self._compact_at:
            self._open = [last_per_key(pa.concat_tables(self._open), self._keys)]
            self._open_rows = self._open[0].num_rows
            self._compact_at = max(_COMPACT_ROWS, 2 * self._open_rows)

    def close(self) -> None:
        self._database.close()

    def _seal(self, checkpoint_id: int) -> Pending | None:
        opened, self._open, self._open_rows = self._open, [], 0
        return _SqlPending(self.context, checkpoint_id, opened, self._keys) if opened else None

    def _commit(self, pending: Pending) -> None:
        assert isinstance(pending, _SqlPending)
        self._insert(pending.table, pending.checkpoint_id, self.context.owner)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        rows = restored_rows(transaction)
        if rows is not None:
            self.prepare(rows.schema)
            self._insert(rows, transaction.checkpoint_id, self.context.owner_of(transaction))

    def _insert(self, rows: pa.Table, checkpoint_id: int, owner: Owner) -> None:
        assert self._insertion is not None, "prepare comes first"
        with self._database.explained("the rows", on_records=True):
            write = self._insertion.prepare(rows)
            with self._database.transaction() as connection:
                if self._claimed(connection, checkpoint_id, owner):
                    write(connection)

    def _claimed(self, connection: sa.Connection, checkpoint_id: int, owner: Owner) -> bool:
        """Raises the ledger to `checkpoint_id`; False when it is there already. Locks the ledger row until the commit.

        owner: the subtask that staged the rows. In a rescaled job another subtask may have to commit them, in addition
        to its own rows of the same checkpoint; in a job that starts from a savepoint another run.
        """
        line = self._ledger
        insert = INSERTS[self._database.engine.dialect.name](line).values(
            job=owner.job_key,
            run=owner.run_id,
            operator=self.context.operator_id,
            subtask=owner.subtask,
            checkpoint=checkpoint_id,
        )
        statement = insert.on_conflict_do_update(
            index_elements=["job", "run", "operator", "subtask"],
            set_={"checkpoint": insert.excluded.checkpoint},
            where=line.c.checkpoint < insert.excluded.checkpoint,
        )
        raised = statement.returning(line.c.checkpoint)  # drivers count affected rows differently
        return connection.execute(raised).first() is not None


class _SqlPending(RowsPending):
    """Concatenates and deduplicates when that does not delay the barrier."""

    def __init__(
        self, context: SinkContext, checkpoint_id: int, opened: Sequence[pa.Table], keys: Sequence[str]
    ) -> None:
        super().__init__(context, checkpoint_id, opened[0])
        self._opened = opened
        self._keys = keys

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:
        whole = pa.concat_tables(self._opened)
        self.table = last_per_key(whole, self._keys) if self._keys else whole.combine_chunks()
        self._opened = [self.table]
        return super().persist(writer)


def last_per_key(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, sorted by key: transactions that share keys then cannot deadlock."""
    indexed = table.select(keys).append_column("__row", pa.array(np.arange(table.num_rows)))
    last = indexed.group_by(list(keys)).aggregate([("__row", "max")]).column("__row_max")
    if len(last) < table.num_rows:
        table = table.take(last)
    order = pc.sort_indices(table.select(keys), sort_keys=[(key, "ascending") for key in keys])
    return table.take(order).combine_chunks()
