"""Lists the files of a file source."""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from lockgate_common.clock import unix_ns
from lockgate_common.storage import WRONG_PATH, Location, is_lasting, locate
from lockgate_proto.messages import FileFormat, FileSource, SplitState
from lockgate_proto.splits import UNBOUNDED, ending

from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.sources.folders import FolderWatch
from lockgate_taskmanager.task.known_splits import KnownSplits
from lockgate_taskmanager.task.program import ProgramError, UserError

LOG = logging.getLogger(__name__)
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate", ".zip")
_DAMAGED_FOOTER = "Couldn't deserialize thrift"  # pyarrow's message for invalid content, raised as an OSError


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file: its path relative to the base, and its size in bytes."""

    name: str
    size: int


class SourceUnavailable(ProgramError):
    """A source cannot be listed now, but may be later: a transient fault, not the job's error."""


def base_of(source: FileSource, known: bool = False, limits: Limits = UNLIMITED) -> Location:
    """The folder that split names are relative to.

    known: files of it were found before. Raises UserError or SourceUnavailable when the path does not exist.
    """
    location = _located(source, limits)
    kind = _info(location, source, known).type
    return location.parent() if kind == pafs.FileType.File else location


def files_of(source: FileSource, known: bool = False, limits: Limits = UNLIMITED) -> tuple[SourceFile, ...]:
    """All files of a source in the order of their names, without hidden ones (a part starting with . or _).

    known: files of it were found before. Raises UserError, SourceUnavailable.
    """
    location = _located(source, limits)
    info = _info(location, source, known)
    if info.type == pafs.FileType.File:
        return (SourceFile(info.base_name, info.size),)
    if location.is_local:
        names = _local_names(source, FolderWatch(location.path), frozenset())
        found = _listed(source, lambda: location.fs.get_file_info([location.child(name).path for name in names]))
    else:
        found = _listed(source, lambda: location.fs.get_file_info(pafs.FileSelector(location.path, recursive=True)))
    root = location.path.rstrip("/") + "/"
    files = ((info.path.removeprefix(root), info) for info in found if info.type == pafs.FileType.File)
    kept = (SourceFile(name, info.size) for name, info in files if _wanted(name, source.include))
    return tuple(sorted(kept, key=lambda source_file: source_file.name))


def discover(
    source: FileSource, known: Collection[str], limits: Limits = UNLIMITED
) -> tuple[tuple[SplitState, ...], bool]:
    """Splits beyond `known`, and whether these are the last. Raises UserError, SourceUnavailable."""
    seen = known if isinstance(known, Set) else frozenset(known)
    fresh = _fresh(source, seen, known.notes if isinstance(known, KnownSplits) else {}, limits)
    if source.format == FileFormat.PARQUET:
        return tuple(_parquet_splits(source, fresh, bool(seen), limits)), not source.continuous
    for file in fresh:
        if file.name.lower().endswith(_COMPRESSED):
            raise UserError(
                f"{source.path}: the file {file.name} is compressed, so it cannot be read from an offset;"
                " unpack it, or exclude it with an include pattern"
            )
    return tuple(
        SplitState(split=source_file.name, end=UNBOUNDED if source.continuous else source_file.size)
        for source_file in fresh
    ), (not source.continuous)


def reopened(source: FileSource, splits: Sequence[SplitState], limits: Limits = UNLIMITED) -> tuple[SplitState, ...]:
    """Files that another run has begun, as they are now. Parquet files do not grow; one that is gone ends as before.

    Raises UserError, SourceUnavailable.
    """
    if source.format == FileFormat.PARQUET:
        return tuple(splits)
    if source.continuous and all(split.end == UNBOUNDED for split in splits):
        return tuple(splits)  # it is looked at soon enough
    base, sizes = base_of(source, True, limits), {file.name: file.size for file in files_of(source, True, limits)}
    found = []
    for split in splits:
        seen, size = max(split.offset, split.seen), sizes.get(split.split)
        end = seen if split.end == UNBOUNDED else split.end
        if size is not None:
            location, end = base.child(split.split), size
            if size < seen:
                raise shrunk(location, size, split)
            if split.offset == split.end < size:
                split = replace(split, offset=_behind_line(limits.opened(location, split.split), split.offset))
        found.append(ending(split, UNBOUNDED if source.continuous else end))
    return tuple(found)


def _behind_line(location: Location, offset: int) -> int:
    """Where to go on in a file of lines that was read to its end and has grown since.

    The last line was taken as it was. Its newline may have come since, but no more of it. Raises UserError, OSError.
    """
    with location.fs.open_input_file(location.path) as file:
        before, behind = file.read_at(1, offset - 1) if offset else b"\n", file.read_at(2, offset)
    if before == b"\n":
        return offset
    for newline in (b"\n", b"\r\n"):
        if behind.startswith(newline):
            return offset + len(newline)
    raise UserError(
        f"the source file {location.uri} was read to byte {offset}, which was its end, and the line that ended there"
        " goes on now: write whole lines before a job reads them, or read the file with continuous=True, which waits"
        " for the end of a line"
    )


def _fresh(source: FileSource, seen: Set[str], notes: dict[str, Any], limits: Limits) -> list[SourceFile]:
    """Files that were not seen yet, in the order of their names. notes: from earlier listings.

    Sizes only if bounded.
    """
    location = _located(source, limits)
    info = _info(location, source, bool(seen))
    if not source.continuous or not location.is_local or info.type == pafs.FileType.File:
        return [file for file in files_of(source, bool(seen), limits) if file.name not in seen]
    watch = notes.setdefault(location.path, FolderWatch(location.path))
    return [SourceFile(name, 0) for name in _local_names(source, watch, seen)]


def _local_names(source: FileSource, watch: FolderWatch, seen: Set[str]) -> list[str]:
    """The names of files in a local folder that were not seen yet, in their order."""
    include = source.include or "*"
    names = _listed(source, lambda: watch.fresh(seen, lambda name: fnmatch.fnmatchcase(name, include), unix_ns()))
    for name in names:
        _require_text(source, name)
    return names


def _listed(source: FileSource, listing: Callable[[], list[Any]]) -> list[Any]:
    try:
        return listing()
    except OSError as error:
        raise _failed(source, f"cannot be listed: {_plain(error)}", error) from error


def _require_text(source: FileSource, name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{source.path}: the name of the file {name!r} is not UTF-8; rename it, or exclude it with an include"
            " pattern"
        ) from error


def _located(source: FileSource, limits: Limits) -> Location:
    limits.check_name(source.path, subject(source))
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
        text = "does not exist on this machine"
        raise _failed(source, text) if known else UserError(f"the source path {source.path} {text}")
    return info


def subject(source: FileSource) -> str:
    """The source in messages about what its job may read."""
    return f"the source path {source.path}"


def _failed(source: FileSource, text: str, error: OSError | None = None) -> ProgramError:
    """A storage outage is transient; a wrong path is the author's error, unless it is watched continuously."""
    is_wrong = error is None or is_lasting(error)
    kind = UserError if is_wrong and not source.continuous else SourceUnavailable
    return kind(f"the source path {source.path} {text}")


def _parquet_splits(
    source: FileSource, files: Iterable[SourceFile], known: bool, limits: Limits
) -> Iterator[SplitState]:
    base = base_of(source, known, limits)
    for file in files:
        location = limits.opened(base.child(file.name), f"{subject(source)}: its file {file.name}")
        try:
            yield SplitState(split=file.name, end=_parquet_rows(location))
        except ProgramError as error:
            if not source.continuous:
                raise
            LOG.info("%s; it is skipped until it is complete", error)  # the footer is written last


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
    """The exception for a file that could not be opened as Parquet: a UserError unless the storage is at fault."""
    is_fault = isinstance(error, OSError) and not isinstance(error, WRONG_PATH) and _DAMAGED_FOOTER not in str(error)
    kind = SourceUnavailable if is_fault else UserError
    return kind(f"{location.uri} cannot be read as Parquet: {_plain(error)}")


def vanished(location: Location) -> UserError:
    """The error for a file that disappeared before all its records were read."""
    return UserError(
        f"the source file {location.uri} was removed before it was read completely: restore it, and start the job again"
        " from its last checkpoint (--from)"
    )


def shrunk(location: Location, size: int, split: SplitState) -> UserError:
    """The error for a file with fewer bytes than it had."""
    before = f"was {split.seen} bytes" if split.seen > split.offset else f"was read to {split.offset}"
    return UserError(
        f"the source file {location.uri} has shrunk to {size} bytes; it {before}: append to files, do not rewrite them"
    )


def _plain(error: BaseException) -> str:
    return str(error).split(". Detail:")[0]
