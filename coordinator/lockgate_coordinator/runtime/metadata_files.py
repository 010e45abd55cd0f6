"""Checkpoint metadata and large job graphs in the HA storage, on any file system of pyarrow.fs.

Files are published atomically: on a local disk by a temporary file, fsync and rename; object stores publish on close;
other file systems by a temporary file and a move. Every read is verified before it is parsed: against the SHA-256 in a
record of ZooKeeper, or by the seal of the cluster where no record vouches for the file. The options of a URI are part
of every pointer, because task managers and the next leader have nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from lockgate_common import private_folder
from lockgate_common import storage as storages
from lockgate_common.checksums import checksum as checksum_of
from lockgate_common.checksums import checksum_of_pieces
from lockgate_common.places import cluster_folder
from lockgate_common.storage import Location
from lockgate_common.uris import scheme_of
from lockgate_proto.codec import MalformedMessage, decode, encode
from lockgate_proto.messages import CheckpointMetadata, CompletedCheckpoint, JobRecord, JobResult
from lockgate_proto.release import newer_text
from pyarrow import fs

from lockgate_coordinator.checkpoint.content import FORMAT_VERSION, OLDEST_FORMAT
from lockgate_coordinator.checkpoint.handles import all_handles
from lockgate_coordinator.runtime.errors import ForeignSnapshot, NewerFormat, StorageError
from lockgate_coordinator.runtime.snapshot_seal import ForeignSeal, SnapshotSeal, UnverifiedFile, unsealed

METADATA_FILE = "_metadata"
GRAPH_FILE = "graph"
SHARED_FOLDER = "shared"
_AT_ONCE_BYTES = 64 * 1024 * 1024  # of a recorded file, before it is verified; metadata is rarely larger
_ASKED_BYTES = 1024 * 1024  # of any other file, which a caller may have named to take memory
_MOST_BYTES = (1 << 31) - 1  # of an encoded message, and so of every file that is written here
_ERRORS = (OSError, pa.ArrowException)
_LARGE_READS = threading.BoundedSemaphore(2)
"""Files that are larger, and verified, are read whole by so many threads at once."""
_Check = Callable[[Iterable[bytes]], None]  # raises UnverifiedFile, the rest of a sentence about the file


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A published file: its URI, checksum and size in bytes."""

    pointer: str
    checksum: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """Identifies the files of a run. storage: the URI that contains the run's folder, "" for the cluster's storage."""

    job_key: str
    run_id: str
    storage: str = ""


def run_of(record: JobRecord | JobResult) -> Run:
    """The run to which a record belongs."""
    return Run(record.job_key, record.run_id, record.storage)


class MetadataFiles:
    """The coordinator's access to the folders `<storage>/<cluster>/<job key>/<run id>/{chk-<id>,shared}/`.

    Most runs are in the cluster's storage; jobs may name a storage of their own.
    """

    def __init__(self, storage: str, cluster: str, secret: str = "") -> None:
        """storage: a local path or URI. secret: of the cluster. Raises StorageError when nothing can be reached."""
        self._storage = storage
        self._cluster = cluster
        self._seal = SnapshotSeal(cluster, secret)
        self.prepare()

    def prepare(self, storage: str = "") -> None:
        """Checks that a job's own storage, or the cluster's, can be reached. Raises StorageError."""
        base = self._base(storage)
        try:
            if base.is_local:
                private_folder.make(Path(base.path))
            else:
                storages.prepare_folder(base)
        except _ERRORS as error:
            raise _failed("make the storage folder", base, error) from error

    def _base(self, storage: str) -> Location:
        return _locate(cluster_folder(storage or self._storage, self._cluster))

    def _folder(self, run: Run) -> Location:
        return self._base(run.storage).child(f"{run.job_key}/{run.run_id}")

    def run_directory(self, run: Run) -> str:
        """URI of the folder of one run; task managers create `chk-<id>/` folders in it."""
        return self._folder(run).uri

    def content(self, metadata: CheckpointMetadata) -> bytes:
        """What its file consists of: the encoded metadata, sealed. Raises StorageError where that could not be read."""
        inline = sum(len(handle.inline) for handle in all_handles(metadata.subtasks))
        if inline <= _MOST_BYTES and len(data := self._seal.sealed(encode(metadata))) <= _MOST_BYTES:
            return data
        raise StorageError(
            f"the state in snapshot {metadata.checkpoint_id} is too large for its file ({_MOST_BYTES:,} bytes): use "
            "the filesystem or rocksdb state backend, which store it in files of their own"
        )

    def write(self, run: Run, metadata: CheckpointMetadata, data: bytes) -> StoredFile:
        """Publishes `data`, the metadata's content, as `chk-<id>/_metadata`; durable when this returns.

        Raises StorageError.
        """
        return _publish(self._folder(run).child(f"chk-{metadata.checkpoint_id}/{METADATA_FILE}"), data)

    def read(self, pointer: str, checksum: str = "") -> CheckpointMetadata:
        """The metadata in the file at `pointer`: a URI or local path of the file or of its folder.

        checksum: in a record of ZooKeeper, which vouches for the file; without one the file must have the cluster's
        seal. Raises StorageError naming the file when it is missing, is not what it has to be, or cannot be understood.
        """
        location = _metadata_location(pointer)
        if checksum:
            data = self._read(location, _recorded(checksum))
        else:
            data = self._read(location, self._seal.check, _ASKED_BYTES)
        return parse_metadata(data, location.masked_uri)

    def read_start(self, pointer: str, *, is_trusted: bool) -> tuple[CheckpointMetadata, str]:
        """The same for a snapshot that a job is to start from, and the checksum by which to read it from then on.

        is_trusted: it need not have the cluster's seal.
        """
        location = _metadata_location(pointer)
        data = self._read(location, None if is_trusted else self._seal.check, _ASKED_BYTES)
        return parse_metadata(data, location.masked_uri), checksum_of(data)

    def write_graph(self, run: Run, graph: bytes) -> StoredFile:
        """Publishes a serialized JobGraph that is too large for ZooKeeper. Raises StorageError."""
        return _publish(self._folder(run).child(GRAPH_FILE), graph)

    def read_graph(self, pointer: str, checksum: str) -> bytes:
        """The serialized JobGraph at `pointer`. Raises StorageError."""
        return self._read(_locate(pointer), _recorded(checksum) if checksum else None)

    def _read(self, file: Location, check: _Check | None, at_once: int = _AT_ONCE_BYTES) -> bytes:
        try:
            return _read(file, check, at_once)
        except FileNotFoundError as error:
            base = self._base("")
            if file.path.startswith(f"{base.path}/") and storages.was_away(base, file):
                text = f"cannot read {file.masked_uri} for now: the storage is away or has just come back"
                raise StorageError(text, retryable=True) from error
            raise StorageError(f"{file.masked_uri} does not exist") from error

    def runs_of_only_a_graph(self, run: Run) -> tuple[Run, ...]:
        """Other runs of the same job that have stored only a graph. Raises StorageError."""
        job = self._folder(run).parent()
        others = [name for name in _names(job) if name != run.run_id]
        return tuple(replace(run, run_id=name) for name in others if _names(job.child(name)) == [GRAPH_FILE])

    def checkpoint_ids(self, run: Run) -> tuple[int, ...]:
        """Ids of the `chk-<id>` folders that exist for a run, rising. Raises StorageError."""
        names = [name.removeprefix("chk-") for name in _names(self._folder(run)) if name.startswith("chk-")]
        return tuple(sorted(int(name) for name in names if name.isdigit()))

    def delete_checkpoint(self, run: Run, checkpoint_id: int) -> None:
        """Removes a `chk-<id>` folder with its content, if it exists. Raises StorageError."""
        _delete(self._folder(run).child(f"chk-{checkpoint_id}"))

    def shared_files(self, run: Run) -> tuple[str, ...]:
        """Names of the files that checkpoints of a run share, sorted. Raises StorageError."""
        return tuple(sorted(_names(self._folder(run).child(SHARED_FOLDER))))

    def delete_shared(self, run: Run, names: Iterable[str]) -> None:
        """Removes shared files of a run, if they exist. Raises StorageError."""
        folder = self._folder(run).child(SHARED_FOLDER)
        for name in names:
            _remove(folder.child(name))

    def delete_graph(self, run: Run) -> None:
        """Removes the graph of a run, if it has stored one. Raises StorageError."""
        _remove(self._folder(run).child(GRAPH_FILE))

    def delete_pointed(self, pointer: str) -> None:
        """Removes the `chk-<id>` folder that holds the metadata file at `pointer`. Raises StorageError."""
        folder = _metadata_location(pointer).parent()
        if not folder.name.startswith("chk-"):
            raise StorageError(f"{pointer} is not the metadata file of a checkpoint; nothing was deleted")
        _delete(folder)

    def delete_run(self, run: Run) -> None:
        """Removes the folder of one run, and the job's folder if it was the only one. Raises StorageError."""
        if not run.job_key or not run.run_id:
            raise StorageError(f"{run} names no run, but the folder of several; nothing was deleted")
        folder = self._folder(run)
        _delete(folder)
        try:
            storages.remove_empty_folder(folder.parent())
        except _ERRORS as error:
            raise _failed("delete", folder.parent(), error) from error


def start_checksum(pointer: str) -> str:
    """The checksum of the metadata at `pointer` as it is now, whichever process wrote it. Raises StorageError."""
    file = _metadata_location(pointer)
    try:
        return checksum_of_pieces(storages.pieces(file))
    except (*_ERRORS, storages.NotAFile) as error:
        raise _failed("read", file, error) from error


def storage_uri(storage: str) -> str:
    """A local path as a `file://` URI; a URI as it is, its path without a trailing slash."""
    if not scheme_of(storage):
        return storages.locate(storage).uri
    base, mark, options = storage.partition("?")
    return base.rstrip("/") + mark + options


def metadata_uri(pointer: str) -> str:
    """The URI of the `_metadata` file that a user's pointer means: a path or URI, of the file or its folder."""
    base, mark, options = storage_uri(pointer).partition("?")
    return (base if base.endswith(f"/{METADATA_FILE}") else f"{base}/{METADATA_FILE}") + mark + options


def content_of(checkpoint: CompletedCheckpoint, files: MetadataFiles) -> CheckpointMetadata:
    """The content of a completed checkpoint's metadata. Raises StorageError."""
    data = checkpoint.metadata
    if not data:
        return files.read(checkpoint.pointer, checkpoint.checksum)
    found = checksum_of(data, checkpoint.checksum)
    if found != checkpoint.checksum:
        raise StorageError(
            f"the ZooKeeper record of checkpoint {checkpoint.checkpoint_id} is corrupt: "
            f"its metadata has checksum {found}, not {checkpoint.checksum}"
        )
    return parse_metadata(data, f"the ZooKeeper record of checkpoint {checkpoint.checkpoint_id}")


def parse_metadata(data: bytes, name: str) -> CheckpointMetadata:
    """The metadata in `data`, the content of the file or record `name`. Raises StorageError."""
    try:
        metadata = decode(CheckpointMetadata, unsealed(data))
    except UnverifiedFile as error:
        raise StorageError(f"{name} {error}") from error
    except MalformedMessage as error:
        raise StorageError(f"{name} is not checkpoint metadata: {error}") from error
    if metadata.format_version > FORMAT_VERSION:
        raise NewerFormat(newer_text(name, metadata.format_version, FORMAT_VERSION))
    if metadata.format_version < OLDEST_FORMAT:
        raise StorageError(f"{name} has format {metadata.format_version}, which no version of Lockgate has written")
    return metadata


def _locate(uri: str) -> Location:
    try:
        return storages.locate(storage_uri(uri))
    except (*_ERRORS, ValueError) as error:
        raise StorageError(f"cannot reach the storage: {_reason(error)}", retryable=True) from error


def _metadata_location(pointer: str) -> Location:
    return _locate(metadata_uri(pointer))


def _publish(file: Location, data: bytes) -> StoredFile:
    """Publishes a file. Its name and new folders above it are durable when this returns: ZooKeeper will point to it."""
    try:
        storages.write_durably(file, data)
    except _ERRORS as error:
        raise _failed("write", file, error) from error
    return StoredFile(file.uri, checksum_of(data), len(data))


def _names(folder: Location) -> list[str]:
    """The names in a folder; none when it does not exist. Raises StorageError."""
    try:
        found = folder.fs.get_file_info(fs.FileSelector(folder.path, allow_not_found=True))
    except _ERRORS as error:
        raise _failed("list", folder, error) from error
    return [info.base_name for info in found]


def _recorded(checksum: str) -> _Check:
    """Compares a file with the checksum in its record."""

    def check(pieces: Iterable[bytes]) -> None:
        found = checksum_of_pieces(pieces, checksum)
        if found != checksum:
            raise UnverifiedFile(f"is corrupt: its checksum is {found}, {checksum} was recorded when it was written")

    return check


def _read(file: Location, check: _Check | None, at_once: int) -> bytes:
    """The content. A file beyond `at_once` bytes is not worth its memory before it is verified: it is read twice."""
    try:
        try:
            data = storages.read_all(file, at_once)
        except storages.FileTooLarge as large:
            if large.size_bytes <= _MOST_BYTES and check is not None:
                check(storages.pieces(file))
            with _LARGE_READS:
                data = storages.read_all(file, min(large.size_bytes, _MOST_BYTES))
        content: bytes = data.to_pybytes()
        if check is not None:
            check((content,))
        return content
    except FileNotFoundError:
        raise
    except ForeignSeal as error:
        raise ForeignSnapshot(file.masked_uri, str(error)) from error
    except UnverifiedFile as error:
        raise StorageError(f"{file.masked_uri} {error}") from error
    except (storages.FileTooLarge, storages.NotAFile) as error:
        raise StorageError(f"{file.masked_uri} is invalid: {error}") from error
    except _ERRORS as error:
        raise _failed("read", file, error) from error


def _remove(file: Location) -> None:
    try:
        storages.remove(file)
    except _ERRORS as error:
        raise _failed("delete", file, error) from error


def _delete(folder: Location) -> None:
    try:
        storages.remove_folder(folder)
    except _ERRORS as error:
        raise _failed("delete", folder, error) from error


def _failed(what: str, where: Location, error: BaseException) -> StorageError:
    return StorageError(f"cannot {what} {where.masked_uri}: {_reason(error)}", retryable=True)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
