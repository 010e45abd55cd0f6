"""Checkpoint metadata and large job graphs in the HA storage, over any filesystem pyarrow.fs speaks.

A file is published whole or not at all: on a local disk through a temporary file, fsync and rename; object stores
publish on close; anything else through a temporary file and a move. Every read is checked against its checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import uuid
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from lockgate_proto.codec import MalformedMessage, decode
from lockgate_proto.messages import CheckpointMetadata, JobRecord, JobResult
from pyarrow import fs

from coordinator.runtime.errors import StorageError

METADATA_FILE = "_metadata"
SHARED_FOLDER = "shared"
FORMAT_VERSION = 1
_OBJECT_STORES = ("s3", "gcs", "abfs")
_ERRORS = (OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """Where a published file is: its URI, the checksum of its bytes and their number."""

    pointer: str
    checksum: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """Whose files are meant. storage: the URI that the run's folder lies under, "" for the cluster's own storage."""

    job_key: str
    run_id: str
    storage: str = ""


def run_of(record: JobRecord | JobResult) -> Run:
    """The run that a record is of."""
    return Run(record.job_key, record.run_id, record.storage)


def crc32(data: bytes) -> str:
    """`crc32:<8 hex digits>` of the bytes."""
    return f"crc32:{zlib.crc32(data):08x}"


def graph_checksum(data: bytes) -> str:
    """`sha256:<64 hex digits>` of a serialized JobGraph: names the job, so it must not collide by accident."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class MetadataFiles:
    """The folder trees `<storage>/<cluster>/<job key>/<run id>/{chk-<id>,shared}/` as the coordinator uses them.

    Most runs lie under the cluster's storage, one with a storage of its own under that.
    """

    def __init__(self, storage: str, cluster: str) -> None:
        """storage: a local path or URI. Raises StorageError when nothing can be reached there."""
        self._storage = storage
        self._cluster = cluster
        self.prepare()

    def prepare(self, storage: str = "") -> None:
        """Makes sure that a job's own storage, or the cluster's, can be reached. Raises StorageError."""
        base = self._base(storage)
        filesystem, path = _open(base)
        try:
            filesystem.create_dir(path, recursive=True)
        except _ERRORS as error:
            raise StorageError(f"cannot make the storage folder {base}: {_reason(error)}", retryable=True) from error

    def _base(self, storage: str) -> str:
        return f"{storage_uri(storage or self._storage)}/{quote(self._cluster)}"

    def run_directory(self, run: Run) -> str:
        """URI of the folder of one run; task managers make `chk-<id>/` folders in it."""
        return f"{self._base(run.storage)}/{quote(run.job_key)}/{quote(run.run_id)}"

    def write(self, run: Run, metadata: CheckpointMetadata, data: bytes) -> StoredFile:
        """Publishes `data`, the encoded metadata, as `chk-<id>/_metadata`; durable when this returns.

        Raises StorageError.
        """
        folder = f"{self.run_directory(run)}/chk-{metadata.checkpoint_id}"
        return self._publish(f"{folder}/{METADATA_FILE}", data)

    def read(self, pointer: str, checksum: str = "") -> CheckpointMetadata:
        """The metadata in the file at `pointer`: a URI or local path of the file or of its folder.

        Raises StorageError naming the file when it is missing, differs from `checksum` or cannot be understood.
        """
        uri = metadata_uri(pointer)
        return parse_metadata(_read(uri, checksum), uri)

    def write_graph(self, run: Run, graph: bytes) -> StoredFile:
        """Publishes a serialized JobGraph that is too large for ZooKeeper. Raises StorageError."""
        return self._publish(f"{self.run_directory(run)}/graph", graph, graph_checksum)

    def read_graph(self, pointer: str, checksum: str) -> bytes:
        """The serialized JobGraph at `pointer`. Raises StorageError."""
        return _read(pointer, checksum)

    def checkpoint_ids(self, run: Run) -> tuple[int, ...]:
        """Ids of the `chk-<id>` folders that exist for a run, rising. Raises StorageError."""
        uri = self.run_directory(run)
        filesystem, path = _open(uri)
        try:
            found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except _ERRORS as error:
            raise StorageError(f"cannot list {uri}: {_reason(error)}", retryable=True) from error
        names = [info.base_name.removeprefix("chk-") for info in found if info.base_name.startswith("chk-")]
        return tuple(sorted(int(name) for name in names if name.isdigit()))

    def delete_checkpoint(self, run: Run, checkpoint_id: int) -> None:
        """Removes a `chk-<id>` folder and what is in it; one that is gone already is fine. Raises StorageError."""
        _delete(f"{self.run_directory(run)}/chk-{checkpoint_id}")

    def shared_files(self, run: Run) -> tuple[str, ...]:
        """Names of the files that checkpoints of a run share, sorted. Raises StorageError."""
        uri = f"{self.run_directory(run)}/{SHARED_FOLDER}"
        filesystem, path = _open(uri)
        try:
            found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        except _ERRORS as error:
            raise StorageError(f"cannot list {uri}: {_reason(error)}", retryable=True) from error
        return tuple(sorted(info.base_name for info in found))

    def delete_shared(self, run: Run, names: Iterable[str]) -> None:
        """Removes shared files of a run; those that are gone already are fine. Raises StorageError."""
        folder = f"{self.run_directory(run)}/{SHARED_FOLDER}"
        filesystem, path = _open(folder)
        for name in names:
            try:
                filesystem.delete_file(f"{path}/{name}")
            except FileNotFoundError:
                continue
            except _ERRORS as error:
                raise StorageError(f"cannot delete {folder}/{name}: {_reason(error)}", retryable=True) from error

    def delete_pointed(self, pointer: str) -> None:
        """Removes the `chk-<id>` folder that holds the metadata file at `pointer`. Raises StorageError."""
        folder, _, name = metadata_uri(pointer).rpartition("/")
        if name != METADATA_FILE or not folder.rpartition("/")[2].startswith("chk-"):
            raise StorageError(f"{pointer} is not the metadata file of a checkpoint; nothing was deleted")
        _delete(folder)

    def delete_run(self, run: Run) -> None:
        """Removes the whole folder of one run, and the job's when it was the only one. Raises StorageError."""
        if not run.job_key or not run.run_id:
            raise StorageError(f"{run} names no run, but the folder of several; nothing was deleted")
        uri = self.run_directory(run)
        _delete(uri)
        filesystem, job = _open(uri.rpartition("/")[0])
        try:
            if not filesystem.get_file_info(fs.FileSelector(job, allow_not_found=True)):
                _delete(uri.rpartition("/")[0])
        except _ERRORS as error:
            raise StorageError(f"cannot delete {uri}: {_reason(error)}", retryable=True) from error

    def _publish(self, uri: str, data: bytes, checksum: Callable[[bytes], str] = crc32) -> StoredFile:
        filesystem, path = _open(uri)
        try:
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            if isinstance(filesystem, fs.LocalFileSystem):
                _publish_local(Path(path), data)
            elif filesystem.type_name in _OBJECT_STORES:
                _write(filesystem, path, data)
            else:
                fresh = f"{path}.{uuid.uuid4().hex}.tmp"
                _write(filesystem, fresh, data)
                filesystem.move(fresh, path)
        except _ERRORS as error:
            raise StorageError(f"cannot write {uri}: {_reason(error)}", retryable=True) from error
        return StoredFile(uri, checksum(data), len(data))


def storage_uri(storage: str) -> str:
    """A local path as a `file://` URI, a URI as it is; without a trailing slash."""
    return storage.rstrip("/") if "://" in storage else Path(storage).absolute().as_uri().rstrip("/")


def metadata_uri(pointer: str) -> str:
    """The URI of the `_metadata` file meant by a pointer that a user typed: path or URI, of the file or its folder."""
    uri = storage_uri(pointer)
    return uri if uri.endswith(f"/{METADATA_FILE}") else f"{uri}/{METADATA_FILE}"


def parse_metadata(data: bytes, name: str) -> CheckpointMetadata:
    """The metadata in `data`, which came from the file or record `name`. Raises StorageError."""
    try:
        metadata = decode(CheckpointMetadata, data)
    except MalformedMessage as error:
        raise StorageError(f"{name} is not checkpoint metadata: {error}") from error
    if metadata.format_version != FORMAT_VERSION:
        raise StorageError(
            f"{name} has format version {metadata.format_version}; this version of Lockgate reads {FORMAT_VERSION}"
        )
    return metadata


def _open(uri: str) -> tuple[fs.FileSystem, str]:
    try:
        filesystem, path = fs.FileSystem.from_uri(uri)
    except (*_ERRORS, ValueError) as error:
        raise StorageError(f"cannot reach the storage {uri}: {_reason(error)}", retryable=True) from error
    return filesystem, path


def _publish_local(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")  # process ids repeat in containers
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):  # the disk may be full or gone; the first error is the one to tell
            fresh.unlink()
        raise
    # The name must be durable before ZooKeeper points to it: a crash of the machine may lose an unsynced rename,
    # and, where the folder is new, the folder too.
    for folder in (path.parent, path.parent.parent):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(filesystem: fs.FileSystem, path: str, data: bytes) -> None:
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


def _read(uri: str, checksum: str) -> bytes:
    filesystem, path = _open(uri)
    try:
        with filesystem.open_input_stream(path) as stream:
            data: bytes = stream.read()
    except FileNotFoundError as error:
        raise StorageError(f"{uri} does not exist") from error
    except _ERRORS as error:
        raise StorageError(f"cannot read {uri}: {_reason(error)}", retryable=True) from error
    found = graph_checksum(data) if checksum.startswith("sha256:") else crc32(data)
    if checksum and found != checksum:
        raise StorageError(f"{uri} is corrupt: its checksum is {found}, {checksum} was recorded when it was written")
    return data


def _delete(uri: str) -> None:
    filesystem, path = _open(uri)
    try:
        if filesystem.get_file_info(path).type != fs.FileType.NotFound:
            filesystem.delete_dir(path)
    except FileNotFoundError:
        return  # someone else has just removed it
    except _ERRORS as error:
        raise StorageError(f"cannot delete {uri}: {_reason(error)}", retryable=True) from error


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
