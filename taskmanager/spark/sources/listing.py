"""Which files a file source has."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from lockgate_proto.messages import FileFormat, FileSource, SplitState
from lockgate_proto.splits import UNBOUNDED

from lockgate_process.storage import WRONG_PATH, Location, locate
from taskmanager.task.program import ProgramError, UserError

LOG = logging.getLogger(__name__)
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate", ".zip")
_DAMAGED_FOOTER = "Couldn't deserialize thrift"  # pyarrow says this of the content, but as an OSError


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file: its path relative to the base, and its size in bytes."""

    name: str
    size: int


class SourceUnavailable(ProgramError):
    """A source cannot be listed now. It was well once or may become so: a fault, not the job's error."""


def base_of(source: FileSource, known: bool = False) -> Location:
    """The folder that split names are relative to.

    known: files of it were found before. Raises UserError or SourceUnavailable when the path is not there.
    """
    location = _located(source)
    kind = _info(location, source, known).type
    return location.parent() if kind == pafs.FileType.File else location


def files_of(source: FileSource, known: bool = False) -> tuple[SourceFile, ...]:
    """All files of a source in the order of their names; hidden ones (a part starting with . or _) are left out.

    known: files of it were found before. Raises UserError, SourceUnavailable.
    """
    location = _located(source)
    info = _info(location, source, known)
    if info.type == pafs.FileType.File:
        return (SourceFile(info.base_name, info.size),)
    try:
        found = location.fs.get_file_info(pafs.FileSelector(location.path, recursive=True))
    except OSError as error:
        raise _failed(source, f"cannot be listed: {_plain(error)}", error) from error
    root = location.path.rstrip("/") + "/"
    names = ((one.path.removeprefix(root), one) for one in found if one.type == pafs.FileType.File)
    kept = (SourceFile(name, one.size) for name, one in names if _wanted(name, source.include))
    return tuple(sorted(kept, key=lambda one: one.name))


def discover(source: FileSource, known: Iterable[str]) -> tuple[tuple[SplitState, ...], bool]:
    """Splits beyond `known`, and whether these are the last. Raises UserError, SourceUnavailable."""
    seen = frozenset(known)
    fresh = [one for one in files_of(source, bool(seen)) if one.name not in seen]
    if source.format == FileFormat.PARQUET:
        base = base_of(source, bool(seen))
        return tuple(_parquet_splits(base, fresh, source.continuous)), not source.continuous
    for one in fresh:
        if one.name.lower().endswith(_COMPRESSED):
            raise UserError(
                f"{source.path}: the file {one.name} is compressed, so it cannot be read from an offset;"
                " unpack it, or leave it out with an include pattern"
            )
    return tuple(SplitState(split=one.name, end=UNBOUNDED if source.continuous else one.size) for one in fresh), (
        not source.continuous
    )


def _located(source: FileSource) -> Location:
    try:
        return locate(source.path)
    except ValueError as error:
        raise UserError(f"the source path {source.path} cannot be opened: {_plain(error)}") from error
    except OSError as error:
        raise _failed(source, f"cannot be opened: {_plain(error)}", error) from error


def _info(location: Location, source: FileSource, known: bool) -> pafs.FileInfo:
    try:
        info = location.fs.get_file_info(location.path)
    except OSError as error:
        raise _failed(source, f"cannot be read: {_plain(error)}", error) from error
    if info.type == pafs.FileType.NotFound:
        text = "does not exist, or not on this machine"
        raise _failed(source, text) if known else UserError(f"the source path {source.path} {text}")
    return info


def _failed(source: FileSource, text: str, error: OSError | None = None) -> ProgramError:
    """An outage of the storage is outlived; a wrong path is the author's error, unless it is watched for ever."""
    is_wrong = error is None or isinstance(error, WRONG_PATH)
    kind = UserError if is_wrong and not source.continuous else SourceUnavailable
    return kind(f"the source path {source.path} {text}")


def _parquet_splits(base: Location, files: Iterable[SourceFile], continuous: bool) -> Iterator[SplitState]:
    for one in files:
        try:
            yield SplitState(split=one.name, end=_parquet_rows(base.child(one.name)))
        except ProgramError as error:
            if not continuous:
                raise
            LOG.info("%s; it is skipped until it is complete", error)  # its footer is written last


def _wanted(name: str, include: str) -> bool:
    pieces = name.split("/")
    return not any(piece.startswith((".", "_")) for piece in pieces) and fnmatch.fnmatchcase(pieces[-1], include or "*")


def _parquet_rows(location: Location) -> int:
    try:
        with location.fs.open_input_file(location.path) as file:
            return int(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise unreadable_parquet(location, error) from error


def unreadable_parquet(location: Location, error: OSError | pa.ArrowException) -> ProgramError:
    """What to raise for a file that could not be opened as Parquet: a UserError unless the storage is at fault."""
    is_fault = isinstance(error, OSError) and not isinstance(error, WRONG_PATH) and _DAMAGED_FOOTER not in str(error)
    kind = SourceUnavailable if is_fault else UserError
    return kind(f"{location.uri} cannot be read as Parquet: {_plain(error)}")


def vanished(location: Location) -> UserError:
    """A file is gone of which records are still to be read."""
    return UserError(
        f"the source file {location.uri} has vanished before it was read to its end: restore it, and start the job anew"
        " from its last checkpoint (--from)"
    )


def _plain(error: BaseException) -> str:
    return str(error).split(". Detail:")[0]
