"""What is shared and durable: checkpoint files, staged and committed output. Survives every crash."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from lockgate_proto.messages import CheckpointMetadata, StateHandle

from coordinator.runtime.errors import StorageError
from coordinator.runtime.metadata_files import Run, StoredFile, crc32, parse_metadata
from taskmanager.state.backend import SnapshotWriter
from taskmanager.task.program import StateUnreadable
from tests.simulation.flow import Counts, Record

Sink = tuple[str, str]  # job key, vertex id
BASE = "sim://storage/default"


class Storage:
    """Files by path. `on_write(path, old, new)` and `on_delete(path)` let the oracle watch."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.on_write: Callable[[str, Any, Any], None] = lambda *_: None
        self.on_delete: Callable[[str], None] = lambda *_: None

    def write(self, path: str, content: Any) -> None:
        """Publishes a file."""
        self.on_write(path, self.files.get(path), content)
        self.files[path] = content

    def read(self, handle: StateHandle) -> Any:
        """The content behind a handle of a state file. Raises StateUnreadable."""
        content = self.files.get(handle.path)
        if content is None or checksum_of(content) != handle.checksum:
            raise StateUnreadable(f"{handle.path} is missing or corrupt")
        return content

    def delete_below(self, folder: str) -> None:
        """Removes a folder."""
        prefix = f"{folder}/"
        for path in [one for one in self.files if one.startswith(prefix)]:
            self.on_delete(path)
            del self.files[path]

    def delete(self, path: str) -> None:
        """Removes a file."""
        if path in self.files:
            self.on_delete(path)
            del self.files[path]

    def below(self, folder: str) -> list[str]:
        """Paths of every file in a folder."""
        prefix = f"{folder}/"
        return [one for one in self.files if one.startswith(prefix)]


class SimulatedFiles:
    """Stands for coordinator.runtime.metadata_files.MetadataFiles."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def run_directory(self, run: Run) -> str:
        """See MetadataFiles."""
        return f"{run.storage or BASE}/{run.job_key}/{run.run_id}"

    def write(self, run: Run, metadata: CheckpointMetadata, data: bytes) -> StoredFile:
        """See MetadataFiles."""
        folder = f"{self.run_directory(run)}/chk-{metadata.checkpoint_id}"
        self._storage.write(f"{folder}/_metadata", data)
        return StoredFile(f"{folder}/_metadata", crc32(data), len(data))

    def read(self, pointer: str, checksum: str = "") -> CheckpointMetadata:
        """See MetadataFiles."""
        data = self._storage.files.get(pointer)
        if data is None:
            raise StorageError(f"{pointer} does not exist")
        if checksum and crc32(data) != checksum:
            raise StorageError(f"{pointer} is corrupt")
        return parse_metadata(data, pointer)

    def checkpoint_ids(self, run: Run) -> tuple[int, ...]:
        """See MetadataFiles."""
        base = self.run_directory(run)
        names = {path.removeprefix(f"{base}/").partition("/")[0] for path in self._storage.below(base)}
        return tuple(sorted(int(name.removeprefix("chk-")) for name in names if name.startswith("chk-")))

    def shared_files(self, run: Run) -> tuple[str, ...]:
        """See MetadataFiles."""
        folder = f"{self.run_directory(run)}/shared"
        return tuple(sorted(path.removeprefix(f"{folder}/") for path in self._storage.below(folder)))

    def delete_shared(self, run: Run, names: Iterable[str]) -> None:
        """See MetadataFiles."""
        for name in names:
            self._storage.delete(f"{self.run_directory(run)}/shared/{name}")

    def delete_checkpoint(self, run: Run, checkpoint_id: int) -> None:
        """See MetadataFiles."""
        self._storage.delete_below(f"{self.run_directory(run)}/chk-{checkpoint_id}")

    def delete_pointed(self, pointer: str) -> None:
        """See MetadataFiles."""
        self._storage.delete_below(pointer.rpartition("/")[0])

    def delete_run(self, run: Run) -> None:
        """See MetadataFiles."""
        self._storage.delete_below(self.run_directory(run))


class SimulatedBackend:
    """A taskmanager.state.backend.Backend: where the records in flight of a snapshot go."""

    def __init__(self, storage: Storage, directory: str, prefix: str) -> None:
        self._storage, self._directory, self._prefix = storage, directory, prefix

    def writer(self, checkpoint_id: int) -> SnapshotWriter:
        """See Backend."""
        return cast("SnapshotWriter", _Writer(self._storage, f"{self._directory}/chk-{checkpoint_id}/{self._prefix}"))


class _Writer:
    def __init__(self, storage: Storage, prefix: str) -> None:
        self._storage, self._prefix = storage, prefix
        self._stored: list[str] = []

    def store(self, name: str, data: pa.Buffer) -> StateHandle:
        """See SnapshotWriter."""
        path, content = f"{self._prefix}-{name}.state", data.to_pybytes()
        self._storage.write(path, content)
        self._stored.append(path)
        return StateHandle(path=path, size_bytes=len(content), checksum=checksum_of(content))

    def undo(self) -> None:
        """See SnapshotWriter."""
        for path in self._stored:
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
    return f"crc32:{zlib.crc32(repr(content).encode()):08x}"
