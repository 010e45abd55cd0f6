"""Rows appended to a Delta table: staged as Parquet files in its folder, then added to its log once.

One commit to the log adds a checkpoint's files and records, using Delta's application transactions, up to which
checkpoint the subtask's rows are in the table. A repeated commit, or a late one from a replaced attempt, finds that
record and does nothing. The record is in the log itself, not in a file beside it, so both change atomically.
"""

from __future__ import annotations

import contextlib
import time

import pyarrow as pa
import pyarrow.parquet as pq
from lockgate_proto.messages import DeltaSink as DeltaOptions
from lockgate_proto.messages import FileFormat, SinkTransaction

from lockgate_taskmanager.spark.sinks.delta_log import DeltaLog, Entry, package
from lockgate_taskmanager.spark.sinks.file_types import require_types
from lockgate_taskmanager.spark.sinks.staged import FileKind, StagedSink, staged_by
from lockgate_taskmanager.spark.sinks.transaction import Owner, SinkContext
from lockgate_taskmanager.task.program import DataError, StateUnreadable, Unavailable, UserError

_TRIES = 10
_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.2
_PARQUET = FileKind("parquet", lambda table, stream: pq.write_table(table, stream))


class DeltaSink(StagedSink):
    """Stages Parquet files and commits them to a Delta table's log."""

    def __init__(self, context: SinkContext, options: DeltaOptions) -> None:
        """Raises UserError for a URI or options that cannot be used."""
        self._options = options
        self._log = self._log_of(options.uri, context, has_worked=not context.is_fresh)
        self._required: frozenset[str] = frozenset()
        super().__init__(context, self._log.folder, _PARQUET)

    def _log_of(self, uri: str, context: SinkContext, *, has_worked: bool) -> DeltaLog:
        return DeltaLog(uri, self._options.options, context.where, context.limits, has_worked=has_worked)

    @property
    def folder(self) -> str:
        """The credentials are in the options, not in here."""
        return self._log.folder.uri.rstrip("/")

    def prepare(self, schema: pa.Schema) -> None:
        super().prepare(schema)
        self._required = self._log.require_fit(schema)
        require_types(schema, FileFormat.PARQUET, self.context.where)

    def write(self, table: pa.Table) -> None:
        for name in self._required:
            if table.column(name).null_count:
                raise DataError(
                    f"{self.context.where}: a row has NULL in column '{name}', which the Delta table {self.folder}"
                    " forbids; filter such rows out"
                )
        super().write(table)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        self._require_ours(transaction)
        self._log.has_worked = True  # the rows are in its folder
        owner, wanted = self.context.owner_of(transaction), transaction.checkpoint_id
        application = self._application(owner)
        if transaction.folder != self.folder:
            self._require_committed_elsewhere(transaction, application)
            return
        note = f"lockgate job {owner.job_key}, checkpoint {wanted}, {self.context.operator_id} {owner.subtask}"
        entry = Entry(transaction.targets, application, wanted, note)
        self._give_final_names(transaction, lambda: self._log.committed(application) >= wanted)
        for number in range(_TRIES):
            problem = self._log.append(entry)
            if problem is None:
                return
            time.sleep(min(_LONGEST_PAUSE_S, _PAUSE_S * 2**number))  # for other subtasks that create the same table
        raise Unavailable(
            f"{self.context.where}: {_TRIES} tries to commit checkpoint {wanted} to the Delta table {self.folder} have"
            f" failed: {problem}"
        )

    def _require_ours(self, transaction: SinkTransaction) -> None:
        is_ours = transaction.files and all(name.endswith(".parquet") for name in transaction.targets)
        if not is_ours:
            raise StateUnreadable(
                f"checkpoint {transaction.checkpoint_id} has output of another kind of sink for {self.context.where};"
                " start it with the same kind of sink as before"
            )
        staged_by(transaction)

    def _require_committed_elsewhere(self, transaction: SinkTransaction, application: str) -> None:
        """The run that the job starts from had another table: its staged output is either in that table's log, or
        lost.
        """
        theirs = self._log_of(transaction.folder, self.context, has_worked=True)
        if theirs.committed(application) < transaction.checkpoint_id:
            raise UserError(
                f"{self.context.where}: the snapshot has output that was staged in {transaction.folder} and is not"
                f" committed there, but the sink's table is now {self.folder}; start with {transaction.folder}"
            )

    def _application(self, owner: Owner) -> str:
        """Of the subtask that staged the rows: the same for every attempt, and for a subtask that replaces it after a
        rescale.
        """
        return f"lockgate/{owner.job_key}/{owner.run_id}/{self.context.operator_id}/{owner.subtask}"


def warm() -> None:
    """Loads delta-rs, which takes 0.2 s that a job failing over to this machine then does not wait for."""
    with contextlib.suppress(UserError):  # when it is missing, the job will report it
        package()
