"""What is shared and durable: checkpoint files, staged and committed output. Survives every crash."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import pyarrow as pa
from lockgate_common.checksums import checksum as digest_of
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import Run, StoredFile, parse_metadata
from lockgate_proto.codec import encode
from lockgate_proto.messages import CheckpointMetadata, StateHandle
from lockgate_taskmanager.state.backend import SnapshotWriter
from lockgate_taskmanager.task.program import StateUnreadable

from tests.simulation.flow import Counts, Record
from tests.simulation.trouble import StorageTrouble
from tests.simulation.world import World

T = TypeVar("T")

Sink = tuple[str, str]  # job key, vertex id
BASE = "sim://storage/default"


class Storage:
    """Files by path. `on_write(path, old, new)` and `on_delete(path)` let the oracle watch.

    Every call raises OSError while the storage is away. `files` holds what was written, also of a damaged file.
    """

    def __init__(self, world: World) -> None:
        self.trouble = StorageTrouble(world)
        self.files: dict[str, Any] = {}
        self.on_write: Callable[[str, Any, Any], None] = lambda *_: None
        self.on_delete: Callable[[str], None] = lambda *_: None

    def write(self, path: str, content: Any) -> None:
        """Publishes a file."""
        self.trouble.check()
        self.on_write(path, self.files.get(path), content)
        self.files[path] = content

    def read(self, handle: StateHandle) -> Any:
        """The content behind a handle of a state file. Raises StateUnreadable."""
        self.trouble.check()
        content = self.files.get(handle.path)
        if content is None or handle.path in self.trouble.damaged or checksum_of(content) != handle.checksum:
            raise StateUnreadable(f"{handle.path} is missing or corrupt")
        return content

    def delete_below(self, folder: str) -> None:
        """Removes a folder."""
        self.trouble.check()
        prefix = f"{folder}/"
        for path in [file for file in self.files if file.startswith(prefix)]:
            self.on_delete(path)
            del self.files[path]

    def delete(self, path: str) -> None:
        """Removes a file."""
        self.trouble.check()
        if path in self.files:
            self.on_delete(path)
            del self.files[path]

    def below(self, folder: str) -> list[str]:
        """Paths of every file in a folder."""
        self.trouble.check()
        prefix = f"{folder}/"
        return [file for file in self.files if file.startswith(prefix)]


class SimulatedFiles:
    """Stands for lockgate_coordinator.runtime.metadata_files.MetadataFiles."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def run_directory(self, run: Run) -> str:
        return f"{run.storage or BASE}/{run.job_key}/{run.run_id}"

    def content(self, metadata: CheckpointMetadata) -> bytes:
        return encode(metadata)

    def write(self, run: Run, metadata: CheckpointMetadata, data: bytes) -> StoredFile:
        path = f"{self.run_directory(run)}/chk-{metadata.checkpoint_id}/_metadata"
        self._call(lambda: self._storage.write(path, data))
        return StoredFile(path, digest_of(data), len(data))

    def read(self, pointer: str, checksum: str = "") -> CheckpointMetadata:
        data = self._call(lambda: self._storage.files.get(pointer))
        if data is None:
            raise StorageError(f"{pointer} does not exist")
        if pointer in self._storage.trouble.damaged or (checksum and digest_of(data) != checksum):
            raise StorageError(f"{pointer} is corrupt")
        return parse_metadata(data, pointer)

    def checkpoint_ids(self, run: Run) -> tuple[int, ...]:
        base = self.run_directory(run)
        names = {path.removeprefix(f"{base}/").partition("/")[0] for path in self._below(base)}
        return tuple(sorted(int(name.removeprefix("chk-")) for name in names if name.startswith("chk-")))

    def shared_files(self, run: Run) -> tuple[str, ...]:
        folder = f"{self.run_directory(run)}/shared"
        return tuple(sorted(path.removeprefix(f"{folder}/") for path in self._below(folder)))

    def delete_shared(self, run: Run, names: Iterable[str]) -> None:
        for name in names:
            path = f"{self.run_directory(run)}/shared/{name}"
            self._call(partial(self._storage.delete, path))

    def delete_graph(self, run: Run) -> None:
        pass  # no simulated graph is large

    def delete_checkpoint(self, run: Run, checkpoint_id: int) -> None:
        self._call(lambda: self._storage.delete_below(f"{self.run_directory(run)}/chk-{checkpoint_id}"))

    def delete_pointed(self, pointer: str) -> None:
        self._call(lambda: self._storage.delete_below(pointer.rpartition("/")[0]))

    def delete_run(self, run: Run) -> None:
        self._call(lambda: self._storage.delete_below(self.run_directory(run)))

    def _below(self, folder: str) -> list[str]:
        return self._call(lambda: self._storage.below(folder))

    def _call(self, call: Callable[[], T]) -> T:
        """On a thread of a worker, which may wait. Raises StorageError."""
        self._storage.trouble.wait()
        try:
            self._storage.trouble.check()
            return call()
        except OSError as error:
            raise StorageError(f"cannot do that: {error}", retryable=True) from error


class SimulatedBackend:
    """A lockgate_taskmanager.state.backend.Backend: where the records in flight of a snapshot go."""

    def __init__(
        self, storage: Storage, directory: str, prefix: str, on_stored: Callable[[int, StateHandle, Any], None]
    ) -> None:
        """on_stored: called with the checkpoint, the handle and the content of each file."""
        self._storage, self._directory, self._prefix, self._on_stored = storage, directory, prefix, on_stored

    def writer(self, checkpoint_id: int) -> SnapshotWriter:
        prefix = f"{self._directory}/chk-{checkpoint_id}/{self._prefix}"
        return cast("SnapshotWriter", _Writer(self._storage, prefix, partial(self._on_stored, checkpoint_id)))


class _Writer:
    def __init__(self, storage: Storage, prefix: str, on_stored: Callable[[StateHandle, Any], None]) -> None:
        self._storage, self._prefix, self._on_stored = storage, prefix, on_stored
        self._stored: list[str] = []

    def store(self, name: str, data: pa.Buffer) -> StateHandle:
        path, content = f"{self._prefix}-{name}.state", data.to_pybytes()
        self._storage.write(path, content)
        self._stored.append(path)
        handle = StateHandle(path=path, size_bytes=len(content), checksum=checksum_of(content))
        self._on_stored(handle, content)
        return handle

    def undo(self) -> None:
        for path in self._stored:
            with contextlib.suppress(OSError):
                self._storage.delete(path)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a sink sealed at a barrier. rows: ledger records, or (key, (count, sum)) pairs of the upsert."""

    job: str
    vertex: str
    checkpoint_id: int
    subtask: int
    attempt: int
    rows: tuple[Any, ...]

    @property
    def sink(self) -> Sink:
        """Where it goes."""
        return self.job, self.vertex


@dataclass
class Outputs:
    """What readers see: append-only ledgers and upserted tables, each committed once per transaction."""

    ledgers: dict[Sink, list[Record]] = field(default_factory=dict)
    tables: dict[Sink, Counts] = field(default_factory=dict)
    files: dict[tuple[Sink, int, int], Transaction] = field(default_factory=dict)  # by checkpoint and subtask
    upserted: dict[tuple[Sink, int], int] = field(default_factory=dict)  # by subtask: the last checkpoint id
    on_commit: Callable[[Transaction], None] = lambda _: None

    def publish(self, transaction: Transaction) -> None:
        """The transactional file sink: a file that is there already is not published again."""
        name = (transaction.sink, transaction.checkpoint_id, transaction.subtask)
        if name in self.files:
            return
        self.on_commit(transaction)
        self.files[name] = transaction
        self.ledgers.setdefault(transaction.sink, []).extend(transaction.rows)

    def is_published(self, transaction: Transaction) -> bool:
        """Whether readers see it."""
        return (transaction.sink, transaction.checkpoint_id, transaction.subtask) in self.files

    def table_with(self, sink: Sink, pending: Iterable[Transaction]) -> Counts:
        """What a table says once these are committed too."""
        table = dict(self.tables.get(sink, {}))
        for transaction in sorted(set(pending), key=lambda checkpoint: checkpoint.checkpoint_id):
            if transaction.checkpoint_id > self.upserted.get((sink, transaction.subtask), 0):
                table.update(transaction.rows)
        return table

    def upsert(self, transaction: Transaction) -> None:
        """The SQL sink: rows and the checkpoint id in one database transaction, older ones are left out."""
        name = (transaction.sink, transaction.subtask)
        if transaction.checkpoint_id <= self.upserted.get(name, 0):
            return
        self.on_commit(transaction)
        self.upserted[name] = transaction.checkpoint_id
        self.tables.setdefault(transaction.sink, {}).update(transaction.rows)


def checksum_of(content: Any) -> str:
    """Of a state file's content."""
    return digest_of(repr(content).encode())
