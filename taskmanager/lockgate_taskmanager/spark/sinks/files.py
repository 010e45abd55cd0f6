"""Files in a folder: staged, and moved to their final names when the checkpoint is completed, which makes them visible.

Readers that skip names with an underscore, as Spark does, see committed files only. Once files have their final names,
they may be moved or deleted: the marker `_staging/<run>/committed-<operator>-<subtask>` tells that the commit of a
checkpoint had begun, when all its files were there.

    staged --marker--> staged, marked --moved, one by one--> final name, marked --a consumer--> gone, marked

A commit that was interrupted goes on with what is staged still; a marked file that has neither name was taken.
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
        self._mark(self._folder.child(marker), transaction)
        self._give_final_names(transaction, lambda: True)

    def _mark(self, marker: Location, transaction: SinkTransaction) -> None:
        """Raises the marker to a checkpoint, before the first of its files can be seen and taken; a higher one is kept.

        Raises UserError when a file has neither name. The marker is read again after this has been looked at, right
        before the write: another attempt may have committed this checkpoint meanwhile, and more. A freeze between this
        read and the rename of the few bytes could still lower it; then the next commit corrects it, and only a restore
        before that, of a checkpoint whose files were removed meanwhile, is refused.
        """
        if transaction.checkpoint_id <= _marked(marker):
            return
        names = zip(transaction.files, transaction.targets, strict=True)
        places = [(self._folder.child(staged), self._folder.child(target)) for staged, target in names]
        lost = [pair for pair in places if not any(map(filesystem.exists, pair))]
        if transaction.checkpoint_id <= _marked(marker):
            return
        if lost:
            raise self._lost(*lost[0])
        filesystem.write_durably(marker, str(transaction.checkpoint_id).encode())

    def _require_committed_elsewhere(self, transaction: SinkTransaction, marker: str) -> None:
        """The run that the job starts from had another path: its staged output is either visible there, or lost."""
        try:
            theirs = self._folder.elsewhere(transaction.folder)
            self._check(theirs)
            is_marked = transaction.checkpoint_id <= _marked(theirs.child(marker))
            missing = [
                target
                for staged, target in zip(transaction.files, transaction.targets, strict=True)
                if not filesystem.exists(theirs.child(target))
                and (filesystem.exists(theirs.child(staged)) or not is_marked)
            ]
        except (OSError, ValueError):
            missing = list(transaction.targets)
        if missing:
            raise UserError(
                f"{self.context.where}: the snapshot has output that was staged in {transaction.folder} and is not"
                f" committed there, but the sink's path is now {self.folder}; start with the path {transaction.folder}"
            )


def _marked(marker: Location) -> int:
    """The highest checkpoint whose commit has begun; those before it are committed. 0 when there is none."""
    try:
        return int(filesystem.read_all(marker, _MARKER_BYTES).to_pybytes())
    except (FileNotFoundError, ValueError):
        return 0


_KINDS = {
    FileFormat.PARQUET: FileKind("parquet", lambda table, stream: pq.write_table(table, stream)),
    FileFormat.CSV: FileKind("csv", csvlines.write),
    FileFormat.JSON_LINES: FileKind("json", jsonlines.write),
}
