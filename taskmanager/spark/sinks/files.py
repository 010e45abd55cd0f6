"""Files: staged under `<path>/_staging`, moved to their final names when the checkpoint is completed.

Staged `_staging/<run>/a<attempt>-<operator>-<subtask>-<n>.<ext>`, final
`part-<run>-<checkpoint>-<operator>-<subtask>-<n>.<ext>`; readers that skip names with an underscore, as Spark does,
see committed files only. Once files have their final names, they may be moved or deleted: the marker
`_staging/<run>/committed-<operator>-<subtask>` says up to which checkpoint that was done.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

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
from taskmanager.state.filesystem import WRONG_PATH, Location, file_name
from taskmanager.task.program import StateUnreadable, UserError

_SPILL_BYTES = 64 << 20
_STAGED = re.compile(r"a(\d+)-(.+)-(\d+)-(\d+)\.\w+$")
_STAGED_PATH = re.compile(r"(_staging/(?!\.\.?/)[^/\\]+)/a\d+-([^/\\]+)-(\d+)-\d+\.\w+")  # folder, operator, subtask
_TARGET_PATH = re.compile(r"part-[^/\\]+\.\w+")


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
            if self._folder.is_local:
                filesystem.make_folder(self._folder.path)
            else:
                self._folder.fs.create_dir(self._folder.path, recursive=True)
            if self._folder.is_local and not os.access(self._folder.path, os.W_OK):
                raise PermissionError("permission denied")
        except WRONG_PATH as error:
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

    @property
    def folder(self) -> str:
        """What staged and final names are relative to, for messages and for other runs; without credentials."""
        if self._folder.is_local:
            return Path(self._folder.path).as_uri()
        parts = urlsplit(self._folder.uri)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")

    def sync(self, staged: Sequence[str]) -> None:
        """Makes staged files durable."""
        if self._folder.is_local:
            for relative in staged:
                filesystem.sync_file(self._folder.child(relative).path)
            folders = {os.path.dirname(self._folder.child(relative).path) for relative in staged}
            # The staging folders may be as new as what is in them, whoever made them.
            above = [self._folder.child("_staging").path, self._folder.path] if folders else []
            for folder in (*folders, *above):
                filesystem.sync_folder(folder)

    def target(self, checkpoint_id: int, number: int) -> str:
        """The final name of the `number`-th file of a checkpoint."""
        context = self.context
        run, operator = file_name(context.run_id), file_name(context.operator_id)
        return f"part-{run}-{checkpoint_id}-{operator}-{context.subtask}-{number}.{self._format.extension}"

    def close(self) -> None:
        """See Sink. Removes what no barrier has sealed, and the staging folders when they are empty.

        What was sealed stays, and so do markers: whether a snapshot that names it is kept, nobody knows here.
        """
        unsealed, self._spilled = self._spilled, []
        for relative in unsealed:
            with contextlib.suppress(OSError):
                filesystem.remove(self._folder.child(relative))
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
        if not transaction.files:
            return
        marker = _checked(transaction)
        if transaction.folder and transaction.folder != self.folder:
            self._require_committed_elsewhere(transaction, marker)
            return
        committed = _marked(self._folder.child(marker))
        for staged, target in zip(transaction.files, transaction.targets, strict=True):
            source, final = self._folder.child(staged), self._folder.child(target)
            try:
                self._publish(source, final)
            except OSError as error:
                self._require_done_before(error, source, final, transaction.checkpoint_id <= committed)
        if self._folder.is_local:
            filesystem.sync_folder(self._folder.path)
        if transaction.checkpoint_id > committed:
            _mark(self._folder.child(marker), transaction.checkpoint_id)

    def _publish(self, staged: Location, target: Location) -> None:
        """Raises OSError, also when it was done before: an object store may say no more than that it failed."""
        if staged.is_local:
            os.replace(staged.path, target.path)
        else:
            staged.fs.move(staged.path, target.path)

    def _require_done_before(self, error: OSError, staged: Location, target: Location, is_committed: bool) -> None:
        """Whether a file that could not be published has its final name already: the file system knows.

        is_committed: the marker says so; then the file may have been taken away. Raises `error` when the staged file
        is still there, UserError when both are gone.
        """
        if filesystem.exists(staged):
            raise error
        if not is_committed and not filesystem.exists(target):
            raise UserError(
                f"{self.context.where}: the staged file {staged.path} is gone and {target.path} does not exist:"
                " committed output has been removed; restore the file, or start the job anew"
            ) from error

    def _require_committed_elsewhere(self, transaction: SinkTransaction, marker: str) -> None:
        """The run that a job starts from had another path: what it staged there is either visible there, or lost."""
        try:
            theirs = filesystem.locate(transaction.folder)
            if transaction.checkpoint_id <= _marked(theirs.child(marker)):
                return
            missing = [one for one in transaction.targets if not filesystem.exists(theirs.child(one))]
        except (OSError, ValueError):
            missing = list(transaction.targets)
        if missing:
            raise UserError(
                f"{self.context.where}: the snapshot has output that was staged in {transaction.folder} and is not"
                f" committed there, but the sink's path is now {self.folder}; start with the path {transaction.folder}"
            )

    def _sweep(self) -> None:
        context = self.context
        folder = self._folder.child(f"_staging/{file_name(context.run_id)}")
        selector = pafs.FileSelector(folder.path, allow_not_found=True)
        with contextlib.suppress(OSError):
            for info in folder.fs.get_file_info(selector):
                match = _STAGED.match(info.base_name)
                if not match or match.group(2) != file_name(context.operator_id):
                    continue
                if not context.stands_in_for(int(match.group(3))):
                    continue
                if int(match.group(1)) < context.attempt:
                    filesystem.remove(folder.child(info.base_name))


def _checked(transaction: SinkTransaction) -> str:
    """The path of a transaction's commit marker. Raises StateUnreadable unless its names are such as a sink makes."""
    matches = [_STAGED_PATH.fullmatch(name) for name in transaction.files]
    targets = [_TARGET_PATH.fullmatch(name) for name in transaction.targets]
    first = matches[0]
    if first is None or None in (*matches, *targets) or len(matches) != len(targets):
        raise StateUnreadable(
            f"checkpoint {transaction.checkpoint_id} names files that no file sink has staged"
            f" ({', '.join((*transaction.files, *transaction.targets))[:200]}); restore from another checkpoint"
        )
    return f"{first[1]}/committed-{first[2]}-{first[3]}"


def _marked(marker: Location) -> int:
    """The highest checkpoint whose files have had their final names; 0 when there is none."""
    try:
        return int(filesystem.read_all(marker).to_pybytes())
    except (FileNotFoundError, ValueError):
        return 0


def _mark(marker: Location, checkpoint_id: int) -> None:
    """Raises the marker to a checkpoint; one that is higher by now stays.

    It is read again here, right before the write: an attempt may have been frozen since `_commit_restored` read it,
    and its successor may have committed more. A freeze between this read and the rename of the few bytes below could
    still lower it; then the next commit sets it right, and only a restore before that, of a checkpoint whose files were
    taken away meanwhile, is refused.
    """
    for last_try in (False, True):
        if _marked(marker) >= checkpoint_id:
            return
        try:
            filesystem.write_durably(marker, str(checkpoint_id).encode())
            return
        except FileNotFoundError:  # another subtask has just tidied the empty folder away
            if last_try:
                raise


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
                    folder=self._sink.folder,
                )
            return self._durable


_FORMATS = {
    FileFormat.PARQUET: _Format("parquet", lambda table, stream: pq.write_table(table, stream)),
    FileFormat.CSV: _Format("csv", lambda table, stream: pacsv.write_csv(table, stream)),
    FileFormat.JSON_LINES: _Format("json", jsonlines.write),
}
