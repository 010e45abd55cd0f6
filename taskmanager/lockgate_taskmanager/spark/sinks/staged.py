"""Sinks that write files: staged under `<folder>/_staging`, and given final names when they are committed.

Staged `_staging/<run>/a<attempt>-<operator>-<subtask>-<n>.<ext>`, final
`part-<run>-<checkpoint>-<operator>-<subtask>-<n>.<ext>`. Each sink defines what makes a file with its final name
visible, and how a repeated commit is detected.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
from lockgate_common import storage as filesystem
from lockgate_common.storage import Location, file_name
from lockgate_proto.messages import SinkTransaction

from lockgate_taskmanager.spark.sinks.transaction import Pending, Sink, SinkContext
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import ProgramError, StateUnreadable, Unavailable, UserError

_SPILL_BYTES = 64 << 20
_STAGED = re.compile(r"a(\d+)-(.+)-(\d+)-(\d+)\.\w+$")
_STAGED_PATH = re.compile(r"(_staging/(?!\.\.?/)[^/\\]+)/a\d+-([^/\\]+)-(\d+)-\d+\.\w+")  # folder, operator, subtask
_TARGET_PATH = re.compile(r"part-[^/\\]+\.\w+")


@dataclass(frozen=True, slots=True)
class FileKind:
    """The file extension, and how a table is written."""

    extension: str
    write: Callable[[pa.Table, pa.NativeFile], None]


class StagedSink(Sink):
    """Stages files. A subclass defines how a transaction is committed."""

    def __init__(self, context: SinkContext, folder: Location, kind: FileKind) -> None:
        super().__init__(context)
        self._folder = folder
        for place in (folder, folder.child("_staging"), folder.child("_delta_log")):
            self._check(place)
        self._kind = kind
        self._open: list[pa.Table] = []
        self._open_bytes = 0
        self._spilled: list[str] = []
        self._next = 0
        # Credentials that have worked may work again, when the service that issues them is back.
        self._is_first_use = context.is_fresh
        self._lock = threading.Lock()

    def prepare(self, schema: pa.Schema) -> None:  # noqa: ARG002
        """Makes the folder. Raises UserError, Unavailable."""
        try:
            filesystem.prepare_folder(self._folder)
            if self._folder.is_local and not os.access(self._folder.path, os.W_OK):
                raise PermissionError("permission denied")
        except OSError as error:
            raise self._unwritable(error, lasting=filesystem.WRONG_PATH) from error

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        self._open.append(table)
        self._open_bytes += table.nbytes
        if self._open_bytes >= _SPILL_BYTES:  # bounds memory when checkpoints are far apart
            self._spilled.append(self.stage(self._open))
            self._open, self._open_bytes = [], 0

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """Also removes files that earlier attempts staged and no snapshot refers to."""
        try:
            super().restore(transactions)
        except OSError as error:
            raise self._unwritable(error, lasting=(PermissionError,)) from error
        self._sweep()

    def stage(self, tables: Sequence[pa.Table]) -> str:
        """Writes a file under a hidden name, not yet durable; returns its name relative to the sink's path.

        What a failure has left of it is removed. Raises OSError, UserError.
        """
        with self._lock:
            number, self._next = self._next, self._next + 1
        context = self.context
        name = f"a{context.attempt}-{file_name(context.operator_id)}-{context.subtask}-{number}.{self._kind.extension}"
        relative = f"_staging/{file_name(context.run_id)}/{name}"
        staged = self._folder.child(relative)
        self._check(staged.parent())
        try:
            self._write_staged(staged, pa.concat_tables(tables).combine_chunks())
        except BaseException as error:
            with contextlib.suppress(OSError):
                filesystem.remove(staged)
            if isinstance(error, OSError) and filesystem.is_refused(error) and self._is_first_use:
                raise self._unwritable(error) from error
            raise
        self._is_first_use = False
        return relative

    def _write_staged(self, staged: Location, table: pa.Table) -> None:
        for last_try in (False, True):
            staged.fs.create_dir(staged.parent().path, recursive=True)
            try:
                with filesystem.naming(staged), staged.fs.open_output_stream(staged.path) as stream:
                    self._kind.write(table, stream)
                break
            except FileNotFoundError:  # another subtask has just removed the empty folder
                if last_try:
                    raise

    def _unwritable(self, error: OSError, lasting: tuple[type[OSError], ...] = ()) -> ProgramError:
        is_lasting = isinstance(error, lasting) or (filesystem.is_refused(error) and self._is_first_use)
        kind = UserError if is_lasting else Unavailable
        return kind(f"{self.context.where}: cannot write to {self.folder}: {error}")

    @property
    def folder(self) -> str:
        """The base of staged and final names, for messages and for other runs; without credentials."""
        return self._folder.masked_uri

    def _check(self, place: Location) -> None:
        """Raises UserError for a place that the job may not use; a link in the folder may lead there."""
        context = self.context
        context.limits.check(place, f"{context.where}: the folder {place.masked_uri}", writes=True)

    def sync(self, staged: Sequence[str]) -> None:
        """Makes staged files durable."""
        if self._folder.is_local:
            for relative in staged:
                filesystem.sync_file(self._folder.child(relative).path)
            folders = {os.path.dirname(self._folder.child(relative).path) for relative in staged}
            # The staging folders may be as new as their files, whichever subtask made them.
            above = [self._folder.child("_staging").path, self._folder.path] if folders else []
            for folder in (*folders, *above):
                filesystem.sync_folder(folder)

    def target(self, checkpoint_id: int, number: int) -> str:
        """The final name of the `number`-th file of a checkpoint."""
        context = self.context
        run, operator = file_name(context.run_id), file_name(context.operator_id)
        return f"part-{run}-{checkpoint_id}-{operator}-{context.subtask}-{number}.{self._kind.extension}"

    def close(self) -> None:
        """Removes files that no barrier has sealed, and the staging folders when they are empty.

        Sealed files stay, and so do markers: whether a snapshot that names them is retained is not known here.
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

    def _give_final_names(self, transaction: SinkTransaction, is_committed: Callable[[], bool]) -> None:
        """Moves the staged files, skipping those that no longer exist. is_committed: see `_require_done_before`."""
        for staged, target in zip(transaction.files, transaction.targets, strict=True):
            source, final = self._folder.child(staged), self._folder.child(target)
            try:
                self._publish(source, final)
            except OSError as error:
                self._require_done_before(error, source, final, is_committed)
        if self._folder.is_local:
            filesystem.sync_folder(self._folder.path)

    def _publish(self, staged: Location, target: Location) -> None:
        """Raises OSError, also when it was done before: an object store may just report a failure."""
        if staged.is_local:
            os.replace(staged.path, target.path)
        else:
            staged.fs.move(staged.path, target.path)

    def _require_done_before(
        self, error: OSError, staged: Location, target: Location, is_committed: Callable[[], bool]
    ) -> None:
        """Checks in the file system that a file which could not be published has its final name already.

        is_committed: whether the transaction is committed; then the file may have been removed since. Called when both
        names are missing. Raises `error` when the staged file still exists, UserError when both are missing.
        """
        if filesystem.exists(staged):
            raise error
        if not filesystem.exists(target) and not is_committed():
            raise self._lost(staged, target) from error

    def _lost(self, staged: Location, target: Location) -> UserError:
        return UserError(
            f"{self.context.where}: the staged file {staged.path} is missing and {target.path} does not exist:"
            " committed output has been removed; restore the file, or start a new job"
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


def staged_by(transaction: SinkTransaction) -> tuple[str, str, str]:
    """Staging folder, operator and subtask. Raises StateUnreadable unless the names have the form that a sink makes."""
    matches = [_STAGED_PATH.fullmatch(name) for name in transaction.files]
    targets = [_TARGET_PATH.fullmatch(name) for name in transaction.targets]
    first = matches[0]
    if first is None or None in (*matches, *targets) or len(matches) != len(targets):
        raise StateUnreadable(
            f"checkpoint {transaction.checkpoint_id} names files that no file sink has staged"
            f" ({', '.join((*transaction.files, *transaction.targets))[:200]}); restore from another checkpoint"
        )
    return first[1], first[2], first[3]


class _FilesPending:
    def __init__(
        self, sink: StagedSink, checkpoint_id: int, tables: Sequence[pa.Table], spilled: Sequence[str]
    ) -> None:
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
        """Writes the files that are not written yet; later calls return the same."""
        with self._lock:
            if self._durable is None:
                if self._tables:
                    self._staged.append(self._sink.stage(self._tables))
                    self._tables = ()
                self._sink.sync(self._staged)
                targets = tuple(self._sink.target(self._checkpoint_id, n) for n in range(len(self._staged)))
                owner = self._sink.context.owner
                self._durable = SinkTransaction(
                    checkpoint_id=self._checkpoint_id,
                    subtask=owner.subtask,
                    files=tuple(self._staged),
                    targets=targets,
                    folder=self._sink.folder,
                    job_key=owner.job_key,
                    run_id=owner.run_id,
                )
            return self._durable
