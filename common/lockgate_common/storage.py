"""Paths and pyarrow.fs URIs: one way to open, write durably and list, on any file system."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

from lockgate_common.fault_points import is_full, write_delay_s
from lockgate_common.masking import bare, masked
from lockgate_common.uris import scheme_of

# errors that only the author or operator can fix
WRONG_PATH = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
_REFUSED = re.compile(  # in the words of pyarrow and of delta-rs, which raise a plain OSError for it
    r"AWS Error (ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH)\b"
    r"|AWS Error UNKNOWN \(HTTP status 40[13]\)"
    r"|lacked (the necessary privileges|valid authentication credentials)|status code 40[13]\b"
    r"|<Code>(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch)</Code>"
)
_OBJECT_STORES = ("s3", "gcs", "abfs")
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder: `uri` is its name for other processes, `fs` and `path` reach it.

    A URI of an object store may carry options behind a question mark (`s3://bucket/x?region=R&scheme=http`). They
    belong to the whole storage, so every location below keeps them behind its own path. So names are never joined to a
    URI as text, only with `child`.
    """

    uri: str
    fs: Any
    path: str

    @property
    def is_local(self) -> bool:
        """True when `path` is a path of this machine."""
        return isinstance(self.fs, pafs.LocalFileSystem)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def masked_uri(self) -> str:
        """The URI for messages and logs: without credentials and options."""
        if self.is_local:
            return Path(self.path).as_uri()
        return bare(self.uri).rstrip("/")

    def child(self, relative: str) -> Location:
        """A location below this one. relative: names with forward slashes between them, not quoted."""
        path = f"{self.path.rstrip('/')}/{relative}"
        if self.is_local:
            return Location(Path(path).as_uri(), self.fs, path)
        base, mark, options = self.uri.partition("?")
        return Location(f"{base.rstrip('/')}/{quote(relative)}{mark}{options}", self.fs, path)

    def parent(self) -> Location:
        """The folder that contains this location."""
        base, mark, options = self.uri.partition("?")
        above = self.path.rstrip("/").rpartition("/")[0] or "/"
        return Location(base.rstrip("/").rpartition("/")[0] + mark + options, self.fs, above)

    def elsewhere(self, masked_uri: str) -> Location:
        """Another location of this storage by its `masked_uri`, accessed like this one. Raises as `locate` does."""
        own, other = urlsplit(self.uri), urlsplit(masked_uri)
        if self.is_local or own.scheme != other.scheme:
            return locate(masked_uri)
        login, mark, _ = own.netloc.rpartition("@")
        return locate(other._replace(netloc=f"{login}{mark}{other.netloc}", query=own.query).geturl())


def locate(path_or_uri: str) -> Location:
    """Resolves a local path or a pyarrow.fs URI. Raises OSError or ValueError for an unknown file system."""
    if scheme := scheme_of(path_or_uri):
        shown = bare(masked(path_or_uri))
        if scheme == "local":  # pyarrow's other name of this machine, which checks and comparisons would not know
            raise ValueError(f"{shown} begins with local://; write file:// for a path of this machine")
        if "#" in path_or_uri:  # pyarrow would ignore it and what follows, and so a name that was added to a folder
            raise ValueError(f"{shown} has a # in it; write %23 for it")
        try:
            fs, path = pafs.FileSystem.from_uri(path_or_uri)
        except pa.ArrowException as error:
            text = f"{shown} is not a path or a URI that pyarrow.fs can open: {error}"
            raise ValueError(masked(text)) from error
        return Location(path_or_uri, fs, path)
    absolute = os.path.abspath(os.path.expanduser(path_or_uri))
    return Location(Path(absolute).as_uri(), pafs.LocalFileSystem(), absolute)


def file_name(part: str) -> str:
    """`part` as a part of a file name; different parts have different names."""
    safe = _UNSAFE.sub("_", part)
    return safe if safe == part else f"{safe}~{zlib.crc32(part.encode()):08x}"


@contextlib.contextmanager
def naming(location: Location) -> Iterator[None]:
    """Adds the file to errors raised in the block: the error of a full disk does not name it, and there may be
    several.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename:
            raise
        raise OSError(error.errno, error.strerror, location.path) from error


def is_refused(error: Exception) -> bool:
    """Whether a storage refuses access: wrong credentials, or a missing permission."""
    return isinstance(error, PermissionError) or (isinstance(error, OSError) and bool(_REFUSED.search(str(error))))


def is_lasting(error: Exception) -> bool:
    """Whether only the author or operator can fix it; any other OSError of a storage may be transient.

    A refusal may be, too, where the storage has let this job in before.
    """
    return isinstance(error, WRONG_PATH) or is_refused(error)


def write_durably(location: Location, data: bytes | pa.Buffer) -> None:
    """Writes a whole file: temporary name, fsync, rename. Never leaves half a file under the final name."""
    write_pieces_durably(location, (data,))


def write_pieces_durably(location: Location, parts: Iterable[bytes | pa.Buffer]) -> None:
    """The same for a file that is produced piece by piece."""
    with naming(location):
        _write_pieces(location, parts)


def _write_pieces(location: Location, parts: Iterable[bytes | pa.Buffer]) -> None:
    if not location.is_local:
        _publish(location, parts)
        return
    folder = os.path.dirname(location.path)
    make_folder(folder)
    # not the process id: in containers that share a storage, two processes may have the same one
    temporary = f"{location.path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
            if is_full(location.path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            time.sleep(write_delay_s(location.path))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, location.path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(folder)


def _publish(location: Location, parts: Iterable[bytes | pa.Buffer]) -> None:
    fs, path = location.fs, location.path
    whole_on_close = fs.type_name in _OBJECT_STORES
    target = path if whole_on_close else f"{path}.{uuid.uuid4().hex}.tmp"
    if not whole_on_close:
        fs.create_dir(path.rpartition("/")[0], recursive=True)
    stream = fs.open_output_stream(target)
    try:
        for part in parts:
            stream.write(part)
    except BaseException:
        with contextlib.suppress(OSError):  # of the close: the store has what it had before
            stream.close()  # an object store shows the part that was written, and nothing can prevent that
            fs.delete_file(target)
        raise
    stream.close()
    if not whole_on_close:
        fs.move(target, path)


def prepare_folder(location: Location) -> None:
    """Creates a folder, durably if it is local; an existing one is kept. Raises OSError."""
    if location.is_local:
        make_folder(location.path)
    else:
        location.fs.create_dir(location.path, recursive=True)


def make_folder(path: str) -> None:
    """Creates a local folder; it and its new parents survive a crash of the machine."""
    new, at = [], path
    while not os.path.isdir(at):
        new.append(at)
        at = os.path.dirname(at)
    os.makedirs(path, exist_ok=True)
    for folder in reversed(new):
        sync_folder(os.path.dirname(folder))


def sync_file(path: str) -> None:
    """Makes the content of a local file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Makes creations and renames inside a local folder durable."""
    sync_file(path)


class NotAFile(ValueError):
    """A pipe or device, which may block its reader or never end."""


class FileTooLarge(ValueError):
    """A file is larger than its reader expects. size_bytes: its size."""

    def __init__(self, size_bytes: int, most_bytes: int) -> None:
        super().__init__(f"it has {size_bytes:,} bytes, but should have at most {most_bytes:,}")
        self.size_bytes = size_bytes


def read_all(location: Location, most_bytes: int) -> pa.Buffer:
    """The whole content. Raises OSError (FileNotFoundError when it is missing), NotAFile, FileTooLarge.

    Nothing of a file that is too large is read.
    """
    _check_kind(location)
    with _missing(location), location.fs.open_input_file(location.path) as file:
        size = file.size()
        if size > most_bytes:
            raise FileTooLarge(size, most_bytes)
        return file.read_buffer(size)


def read_ranges(location: Location, ranges: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes of each (offset, size), fewer at the end of the file. Raises OSError (FileNotFoundError when it is
    missing), NotAFile.
    """
    _check_kind(location)
    with _missing(location), location.fs.open_input_file(location.path) as file:
        for offset, size in ranges:
            yield file.read_at(size, offset)


def pieces(location: Location) -> Iterator[bytes]:
    """The whole content, a megabyte at a time. Raises OSError (FileNotFoundError when it is missing), NotAFile."""
    _check_kind(location)
    with _missing(location), location.fs.open_input_stream(location.path) as stream:
        while piece := stream.read(1 << 20):
            yield piece


def _check_kind(location: Location) -> None:
    """Raises NotAFile, OSError. Only this machine has such."""
    if location.is_local and stat.S_IFMT(os.stat(location.path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise NotAFile("it is neither a file nor a folder")


@contextlib.contextmanager
def _missing(location: Location) -> Iterator[None]:
    """Raises FileNotFoundError, too, for an object that is deleted after it was opened, which is an OSError only."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        if _is_deleted(location):
            raise FileNotFoundError(f"{location.masked_uri} was deleted while it was read") from error
        raise


def _is_deleted(location: Location) -> bool:
    try:
        return not exists(location)
    except OSError:
        return False  # the storage does not answer: what it said first counts


def was_away(root: Location, location: Location) -> bool:
    """Whether a file that has just been missed may not be lost: the storage is not mounted, or was not at that moment.

    root: the folder of everything that is stored. Raises OSError. Object stores are never away in this sense.
    """
    # the folder once more: the file may be missed here, too, just before the storage is back
    return root.is_local and (not exists(root) or exists(location) or not exists(root))


def remove(location: Location) -> None:
    """Deletes a file; a missing one is ignored."""
    with contextlib.suppress(FileNotFoundError):
        location.fs.delete_file(location.path)


def remove_folder(location: Location) -> None:
    """Deletes a folder and its content; a missing one is ignored. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if location.fs.get_file_info(location.path).type == pafs.FileType.Directory:
            location.fs.delete_dir(location.path)


def remove_empty_folder(location: Location) -> None:
    """Deletes a folder without content; any other, or a missing one, is left as it is. Raises OSError.

    On a disk what is stored in it at the same moment stays. Elsewhere a folder can only be deleted with its content.
    """
    if location.is_local:
        with contextlib.suppress(FileNotFoundError):
            try:
                os.rmdir(location.path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
    elif not location.fs.get_file_info(pafs.FileSelector(location.path, allow_not_found=True)):
        remove_folder(location)


def remove_files(folder: Location, prefix: str) -> None:
    """Deletes the files of a folder whose names begin with `prefix`, if any; a missing folder is ignored.

    Raises OSError.
    """
    found = folder.fs.get_file_info(pafs.FileSelector(folder.path, allow_not_found=True))
    for info in found:
        if info.type == pafs.FileType.File and info.base_name.startswith(prefix):
            folder.fs.delete_file(info.path)


def exists(location: Location) -> bool:
    """True when there is a file or folder."""
    return bool(location.fs.get_file_info(location.path).type != pafs.FileType.NotFound)
