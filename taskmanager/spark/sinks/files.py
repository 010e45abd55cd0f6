"""Files: staged under `<path>/_staging`, moved to their final names when the checkpoint is completed.

Staged `_staging/<run>/a<attempt>-<operator>-<subtask>-<n>.<ext>`, final
`part-<run>-<checkpoint>-<operator>-<subtask>-<n>.<ext>`; readers that skip names with an underscore, as Spark does,
see committed files only.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from lockgate_proto.messages import FileFormat, SinkTransaction
from lockgate_proto.messages import FileSink as FileOptions

from taskmanager.spark.sinks import jsonlines
from taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from taskmanager.state import filesystem
from taskmanager.state.backend import SnapshotWriter
from taskmanager.state.filesystem import Location, file_name
from taskmanager.task.program import UserError

_SPILL_BYTES = 64 << 20
_STAGED = re.compile(r"a(\d+)-(.+)-(\d+)-(\d+)\.\w+$")


@dataclass(frozen=True, slots=True)
class _Format:
    extension: str
    write: Callable[[pa.Table, pa.NativeFile], None]


class FileSink(Sink):
    """See the module."""

    def __init__(self, context: SinkContext, options: FileOptions) -> None:
        """Raises UserError for a format or path that cannot be written."""
        super().__init__(context)
        try:
            self._folder = filesystem.locate(options.path)
            self._format = _FORMATS[options.format]
        except KeyError as error:
            name = FileFormat(options.format).name
            raise UserError(f"{context.where}: a file sink writes PARQUET, CSV or JSON_LINES, not {name}") from error
        except (OSError, ValueError) as error:
            raise UserError(f"{context.where}: the path {options.path} cannot be opened: {error}") from error
        self._open: list[pa.Table] = []
        self._open_bytes = 0
        self._spilled: list[str] = []
        self._next = 0
        self._lock = threading.Lock()

    def prepare(self, schema: pa.Schema) -> None:
        """See Sink."""
        if self._format.extension == "csv":
            nested = [field.name for field in schema if pa.types.is_nested(field.type)]
            if nested:
                raise UserError(f"{self.context.where}: CSV cannot hold column '{nested[0]}'; it is not a plain value")
        try:
            self._folder.fs.create_dir(self._folder.path, recursive=True)
            if self._folder.is_local and not os.access(self._folder.path, os.W_OK):
                raise PermissionError("permission denied")
        except OSError as error:
            raise UserError(f"{self.context.where}: cannot write to {self._folder.path}: {error}") from error

    def write(self, table: pa.Table) -> None:
        """See Sink."""
        if not table.num_rows:
            return
        self._open.append(table)
        self._open_bytes += table.nbytes
        if self._open_bytes >= _SPILL_BYTES:  # bounds memory when checkpoints are far apart
            self._spilled.append(self.stage(self._open))
            self._open, self._open_bytes = [], 0

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """See Sink. Also removes what earlier attempts staged and no snapshot refers to."""
        super().restore(transactions)
        self._sweep()

    def stage(self, tables: Sequence[pa.Table]) -> str:
        """Writes a file under a hidden name, not yet durable; returns the name relative to the sink's path."""
        with self._lock:
            number, self._next = self._next, self._next + 1
        context = self.context
        name = (
            f"a{context.attempt}-{file_name(context.operator_id)}-{context.subtask}-{number}.{self._format.extension}"
        )
        relative = f"_staging/{file_name(context.run_id)}/{name}"
        staged = self._folder.child(relative)
        for last_try in (False, True):
            staged.fs.create_dir(staged.parent().path, recursive=True)
            try:
                with staged.fs.open_output_stream(staged.path) as stream:
                    self._format.write(pa.concat_tables(tables).combine_chunks(), stream)
                break
            except FileNotFoundError:  # another subtask has just tidied the empty folder away
                if last_try:
                    raise
        return relative

    def sync(self, staged: Sequence[str]) -> None:
        """Makes staged files durable."""
        if self._folder.is_local:
            for relative in staged:
                filesystem.sync_file(self._folder.child(relative).path)
            for folder in {os.path.dirname(self._folder.child(relative).path) for relative in staged}:
                filesystem.sync_folder(folder)

    def target(self, checkpoint_id: int, number: int) -> str:
        """The final name of the `number`-th file of a checkpoint."""
        context = self.context
        run, operator = file_name(context.run_id), file_name(context.operator_id)
        return f"part-{run}-{checkpoint_id}-{operator}-{context.subtask}-{number}.{self._format.extension}"

    def close(self) -> None:
        """See Sink. Tidies the staging folders away when they are empty."""
        staging = self._folder.child("_staging")
        if staging.is_local:
            for folder in (staging.child(file_name(self.context.run_id)), staging):
                with contextlib.suppress(OSError):
                    os.rmdir(folder.path)

    def _seal(self, checkpoint_id: int) -> Pending | None:
        tables, spilled = self._open, self._spilled
        self._open, self._open_bytes, self._spilled = [], 0, []
        return _FilesPending(self, checkpoint_id, tables, spilled) if tables or spilled else None

    def _commit(self, pending: Pending) -> None:
        assert isinstance(pending, _FilesPending)
        self._commit_restored(pending.transaction())

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        for staged, target in zip(transaction.files, transaction.targets, strict=True):
            self._publish(self._folder.child(staged), self._folder.child(target))
        if self._folder.is_local and transaction.files:
            filesystem.sync_folder(self._folder.path)

    def _publish(self, staged: Location, target: Location) -> None:
        try:
            if staged.is_local:
                os.replace(staged.path, target.path)
            else:
                staged.fs.move(staged.path, target.path)
        except FileNotFoundError as error:
            if not filesystem.exists(target):
                raise UserError(
                    f"{self.context.where}: the staged file {staged.path} is gone and {target.path} does not exist:"
                    " committed output has been removed; restore the file, or start the job anew"
                ) from error

    def _sweep(self) -> None:
        context = self.context
        folder = self._folder.child(f"_staging/{file_name(context.run_id)}")
        selector = pafs.FileSelector(folder.path, allow_not_found=True)
        with contextlib.suppress(OSError):
            for info in folder.fs.get_file_info(selector):
                match = _STAGED.match(info.base_name)
                if not match or match.group(2, 3) != (file_name(context.operator_id), str(context.subtask)):
                    continue
                if int(match.group(1)) < context.attempt:
                    filesystem.remove(folder.child(info.base_name))


class _FilesPending:
    def __init__(self, sink: FileSink, checkpoint_id: int, tables: Sequence[pa.Table], spilled: Sequence[str]) -> None:
        self._sink = sink
        self._checkpoint_id = checkpoint_id
        self._tables = tuple(tables)
        self._staged = list(spilled)
        self._lock = threading.Lock()
        self._durable: SinkTransaction | None = None

    @property
    def checkpoint_id(self) -> int:
        return self._checkpoint_id

    def persist(self, writer: SnapshotWriter) -> SinkTransaction:  # noqa: ARG002
        return self.transaction()

    def transaction(self) -> SinkTransaction:
        """Writes what is not written yet; later calls return the same."""
        with self._lock:
            if self._durable is None:
                if self._tables:
                    self._staged.append(self._sink.stage(self._tables))
                    self._tables = ()
                self._sink.sync(self._staged)
                targets = tuple(self._sink.target(self._checkpoint_id, n) for n in range(len(self._staged)))
                self._durable = SinkTransaction(
                    checkpoint_id=self._checkpoint_id,
                    subtask=self._sink.context.subtask,
                    files=tuple(self._staged),
                    targets=targets,
                )
            return self._durable


_FORMATS = {
    FileFormat.PARQUET: _Format("parquet", lambda table, stream: pq.write_table(table, stream)),
    FileFormat.CSV: _Format("csv", lambda table, stream: pacsv.write_csv(table, stream)),
    FileFormat.JSON_LINES: _Format("json", jsonlines.write),
}
