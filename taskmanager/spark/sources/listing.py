"""Which files a file source has."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from lockgate_proto.messages import FileFormat, FileSource, SplitState

from taskmanager.state.filesystem import Location, locate
from taskmanager.task.program import UserError

_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate", ".zip")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file: its path relative to the base, and its size in bytes."""

    name: str
    size: int


def base_of(source: FileSource) -> Location:
    """The folder that split names are relative to. Raises UserError when the path is not there."""
    location = _located(source.path)
    kind = _info(location, source.path).type
    if kind == pafs.FileType.NotFound:
        raise UserError(f"the source path {source.path} does not exist, or not on this machine")
    return location.parent() if kind == pafs.FileType.File else location


def files_of(source: FileSource) -> tuple[SourceFile, ...]:
    """All files of a source in the order of their names; hidden ones (a part starting with . or _) are left out."""
    location = _located(source.path)
    info = _info(location, source.path)
    if info.type == pafs.FileType.NotFound:
        raise UserError(f"the source path {source.path} does not exist, or not on this machine")
    if info.type == pafs.FileType.File:
        return (SourceFile(info.base_name, info.size),)
    try:
        found = location.fs.get_file_info(pafs.FileSelector(location.path, recursive=True))
    except OSError as error:
        raise UserError(f"the source path {source.path} cannot be listed: {_plain(error)}") from error
    root = location.path.rstrip("/") + "/"
    names = ((one.path.removeprefix(root), one) for one in found if one.type == pafs.FileType.File)
    kept = (SourceFile(name, one.size) for name, one in names if _wanted(name, source.include))
    return tuple(sorted(kept, key=lambda one: one.name))


def discover(source: FileSource, known: Iterable[str]) -> tuple[tuple[SplitState, ...], bool]:
    """Splits beyond `known`, and whether these are the last. Raises UserError."""
    seen = frozenset(known)
    fresh = [one for one in files_of(source) if one.name not in seen]
    if source.format == FileFormat.PARQUET:
        base = base_of(source)
        splits = tuple(SplitState(split=one.name, end=_parquet_rows(base.child(one.name))) for one in fresh)
        return splits, not source.continuous
    for one in fresh:
        if one.name.lower().endswith(_COMPRESSED):
            raise UserError(
                f"{source.path}: the file {one.name} is compressed, so it cannot be read from an offset;"
                " unpack it, or leave it out with an include pattern"
            )
    return tuple(SplitState(split=one.name, end=-1 if source.continuous else one.size) for one in fresh), (
        not source.continuous
    )


def _located(path: str) -> Location:
    try:
        return locate(path)
    except (OSError, ValueError) as error:
        raise UserError(f"the source path {path} cannot be opened: {_plain(error)}") from error


def _info(location: Location, path: str) -> pafs.FileInfo:
    try:
        return location.fs.get_file_info(location.path)
    except OSError as error:
        raise UserError(f"the source path {path} cannot be read: {_plain(error)}") from error


def _wanted(name: str, include: str) -> bool:
    pieces = name.split("/")
    return not any(piece.startswith((".", "_")) for piece in pieces) and fnmatch.fnmatchcase(pieces[-1], include or "*")


def _parquet_rows(location: Location) -> int:
    try:
        with location.fs.open_input_file(location.path) as file:
            return int(pq.read_metadata(file).num_rows)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{location.uri} cannot be read as Parquet: {_plain(error)}") from error


def _plain(error: BaseException) -> str:
    return str(error).split(". Detail:")[0]
