"""Paths and pyarrow.fs URIs: one way to open, write durably and list, wherever the bytes are."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs

# What only the author or operator can mend; any other OSError of a storage may be over at the next attempt.
WRONG_PATH = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError, IsADirectoryError)
_OBJECT_STORES = ("s3", "gcs", "abfs")
_UNSAFE = re.compile(r"[^A-Za-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder: `uri` is its name for other processes, `fs` and `path` reach it.

    A URI of an object store may carry options behind a question mark (`s3://bucket/x?region=R&scheme=http`). They
    belong to the whole storage, so every location below keeps them behind its own path. Hence names are never joined
    to a URI as text, only with `child`.
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
    def shown(self) -> str:
        """The URI for messages and logs: without credentials and options."""
        if self.is_local:
            return Path(self.path).as_uri()
        parts = urlsplit(self.uri)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl().rstrip("/")

    def child(self, relative: str) -> Location:
        """A location below this one. relative: names with forward slashes between them, not quoted."""
        path = f"{self.path.rstrip('/')}/{relative}"
        if self.is_local:
            return Location(Path(path).as_uri(), self.fs, path)
        base, mark, options = self.uri.partition("?")
        return Location(f"{base.rstrip('/')}/{quote(relative)}{mark}{options}", self.fs, path)

    def parent(self) -> Location:
        """The folder this one is in."""
        base, mark, options = self.uri.partition("?")
        above = self.path.rstrip("/").rpartition("/")[0] or "/"
        return Location(base.rstrip("/").rpartition("/")[0] + mark + options, self.fs, above)

    def elsewhere(self, shown: str) -> Location:
        """Another location of this storage by its `shown` name, reached as this one is. Raises as `locate` does."""
        own, other = urlsplit(self.uri), urlsplit(shown)
        if self.is_local or own.scheme != other.scheme:
            return locate(shown)
        login, mark, _ = own.netloc.rpartition("@")
        return locate(other._replace(netloc=f"{login}{mark}{other.netloc}", query=own.query).geturl())


def locate(path_or_uri: str) -> Location:
    """Resolves a local path or a pyarrow.fs URI. Raises OSError or ValueError when there is no such file system."""
    if "://" in path_or_uri or path_or_uri.startswith("file:"):
        try:
            fs, path = pafs.FileSystem.from_uri(path_or_uri)
        except pa.ArrowException as error:
            shown = _without_secrets(path_or_uri)
            raise ValueError(f"{shown} is not a path or a URI that pyarrow.fs can open: {error}") from error
        return Location(path_or_uri, fs, path)
    absolute = os.path.abspath(os.path.expanduser(path_or_uri))
    return Location(Path(absolute).as_uri(), pafs.LocalFileSystem(), absolute)


def _without_secrets(uri: str) -> str:
    return re.sub(r"(?<=://)[^/?#]*@", "", uri.partition("?")[0])


def file_name(part: str) -> str:
    """`part` as a piece of a file name; different parts stay different."""
    safe = _UNSAFE.sub("_", part)
    return safe if safe == part else f"{safe}~{zlib.crc32(part.encode()):08x}"


@contextlib.contextmanager
def naming(location: Location) -> Iterator[None]:
    """Errors of the block tell which file it was about: a full disk does not, and there may be several."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename:
            raise
        raise OSError(error.errno, error.strerror, location.path) from error


def write_durably(location: Location, data: bytes | pa.Buffer) -> None:
    """Writes a whole file: temporary name, fsync, rename. Never leaves half a file under the final name."""
    write_pieces_durably(location, (data,))


def write_pieces_durably(location: Location, parts: Iterable[bytes | pa.Buffer]) -> None:
    """The same for a file that comes piece by piece."""
    with naming(location):
        _write_pieces(location, parts)


def _write_pieces(location: Location, parts: Iterable[bytes | pa.Buffer]) -> None:
    if not location.is_local:
        _publish(location, parts)
        return
    folder = os.path.dirname(location.path)
    make_folder(folder)
    # Not by the process id: in containers that share a storage, two processes may well have the same.
    temporary = f"{location.path}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "wb") as file:
            for part in parts:
                file.write(part)
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
    with fs.open_output_stream(target) as stream:
        for part in parts:
            stream.write(part)
    if not whole_on_close:
        fs.move(target, path)


def prepare_folder(location: Location) -> None:
    """Makes a folder, durable where it is local; one that is there is fine. Raises OSError."""
    if location.is_local:
        make_folder(location.path)
    else:
        location.fs.create_dir(location.path, recursive=True)


def make_folder(path: str) -> None:
    """Makes a local folder; it and those above it that are new survive a crash of the machine."""
    new, at = [], path
    while not os.path.isdir(at):
        new.append(at)
        at = os.path.dirname(at)
    os.makedirs(path, exist_ok=True)
    for one in reversed(new):
        sync_folder(os.path.dirname(one))


def sync_file(path: str) -> None:
    """Makes the content of a local file durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: str) -> None:
    """Makes durable what was made or renamed inside a local folder."""
    sync_file(path)


def read_all(location: Location) -> pa.Buffer:
    """The whole content. Raises OSError (FileNotFoundError when it is missing)."""
    with location.fs.open_input_file(location.path) as file:
        return file.read_buffer()


def pieces(location: Location) -> Iterator[bytes]:
    """The whole content, a megabyte at a time. Raises OSError (FileNotFoundError when it is missing)."""
    with location.fs.open_input_stream(location.path) as stream:
        while piece := stream.read(1 << 20):
            yield piece


def remove(location: Location) -> None:
    """Deletes a file; one that is not there is fine."""
    with contextlib.suppress(FileNotFoundError):
        location.fs.delete_file(location.path)


def remove_folder(location: Location) -> None:
    """Deletes a folder and what is in it; one that is not there is fine. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if location.fs.get_file_info(location.path).type == pafs.FileType.Directory:
            location.fs.delete_dir(location.path)


def remove_files(folder: Location, prefix: str) -> None:
    """Deletes the files of a folder whose names begin so; none, and no folder, is fine. Raises OSError."""
    found = folder.fs.get_file_info(pafs.FileSelector(folder.path, allow_not_found=True))
    for one in found:
        if one.type == pafs.FileType.File and one.base_name.startswith(prefix):
            folder.fs.delete_file(one.path)


def exists(location: Location) -> bool:
    """True when a file or folder is there."""
    return bool(location.fs.get_file_info(location.path).type != pafs.FileType.NotFound)
