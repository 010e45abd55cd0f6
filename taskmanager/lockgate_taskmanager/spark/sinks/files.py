"""Files in a folder: staged, and moved to their final names when the checkpoint is completed, which makes them visible.

Readers that skip names with an underscore, as Spark does, see committed files only. Once files have their final names,
they may be moved or deleted: the marker `_staging/<run>/committed-<operator>-<subtask>` records up to which checkpoint
the files were moved.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from lockgate_common import storage as filesystem
from lockgate_common.storage import Location
from lockgate_proto.messages import FileFormat, SinkTransaction
from lockgate_proto.messages import FileSink as FileOptions

from lockgate_taskmanager.spark.sinks import csvlines, jsonlines
from lockgate_taskmanager.spark.sinks.file_types import require_types
from lockgate_taskmanager.spark.sinks.staged import FileKind, StagedSink, staged_by
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.task.program import UserError

_MARKER_BYTES = 32  # a number


class FileSink(StagedSink):
    """Stages files, and gives them their final names on commit."""

    def __init__(self, context: SinkContext, options: FileOptions) -> None:
        """Raises UserError for a format or path that cannot be written."""
        try:
            super().__init__(context, filesystem.locate(options.path), _KINDS[options.format])
            self._format = options.format
        except KeyError as error:
            name = FileFormat(options.format).name
            raise UserError(f"{context.where}: a file sink writes PARQUET, CSV or JSON_LINES, not {name}") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{context.where}: the path {options.path} cannot be opened: {error}") from error

    def prepare(self, schema: pa.Schema) -> None:
        require_types(schema, self._format, self.context.where)
        super().prepare(schema)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        if not transaction.files:
            return
        folder, operator, subtask = staged_by(transaction)
        marker = f"{folder}/committed-{operator}-{subtask}"
        if transaction.folder and transaction.folder != self.folder:
            self._require_committed_elsewhere(transaction, marker)
            return
        committed = _marked(self._folder.child(marker))
        self._give_final_names(transaction, lambda: transaction.checkpoint_id <= committed)
        if transaction.checkpoint_id > committed:
            _mark(self._folder.child(marker), transaction.checkpoint_id)

    def _require_committed_elsewhere(self, transaction: SinkTransaction, marker: str) -> None:
        """The run that the job starts from had another path: its staged output is either visible there, or lost."""
        try:
            theirs = self._folder.elsewhere(transaction.folder)
            self._check(theirs)
            if transaction.checkpoint_id <= _marked(theirs.child(marker)):
                return
            missing = [target for target in transaction.targets if not filesystem.exists(theirs.child(target))]
        except (OSError, ValueError):
            missing = list(transaction.targets)
        if missing:
            raise UserError(
                f"{self.context.where}: the snapshot has output that was staged in {transaction.folder} and is not"
                f" committed there, but the sink's path is now {self.folder}; start with the path {transaction.folder}"
            )


def _marked(marker: Location) -> int:
    """The highest checkpoint whose files have been given their final names; 0 when there is none."""
    try:
        return int(filesystem.read_all(marker, _MARKER_BYTES).to_pybytes())
    except (FileNotFoundError, ValueError):
        return 0


def _mark(marker: Location, checkpoint_id: int) -> None:
    """Raises the marker to a checkpoint; a higher one is kept.

    It is read again here, right before the write: this attempt may have been frozen since `_commit_restored` read it,
    and its successor may have committed more. A freeze between this read and the rename of the few bytes below could
    still lower it; then the next commit corrects it, and only a restore before that, of a checkpoint whose files were
    removed meanwhile, is refused.
    """
    for last_try in (False, True):
        if _marked(marker) >= checkpoint_id:
            return
        try:
            filesystem.write_durably(marker, str(checkpoint_id).encode())
            return
        except FileNotFoundError:  # another subtask has just removed the empty folder
            if last_try:
                raise


_KINDS = {
    FileFormat.PARQUET: FileKind("parquet", lambda table, stream: pq.write_table(table, stream)),
    FileFormat.CSV: FileKind("csv", csvlines.write),
    FileFormat.JSON_LINES: FileKind("json", jsonlines.write),
}
