"""The text that the demo counts: one flat folder, so that the job and plain Spark read the same files."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lockgate.errors import UserError

_FOREIGN = ("site-packages", "dist-packages", "__pycache__")
_LOOKED_AT_BYTES = 8192


@dataclass(frozen=True)
class Corpus:
    """folder: flat, text files only; files: their number; total_bytes: their size."""

    folder: Path
    title: str
    files: int
    total_bytes: int


def standard_library() -> Path:
    """The folder of Python's standard library sources."""
    return Path(sysconfig.get_path("stdlib"))


def stage(source: Path | None, folder: Path) -> Corpus:
    """Collects the text files below `source` (None: the sources of Python's standard library) into `folder`, flat.

    Hard links where the file system allows, copies elsewhere. Raises UserError when there is nothing to count.
    """
    title = "the sources of Python's standard library" if source is None else str(source)
    found = list(_python_sources() if source is None else _text_files(source))
    total_bytes = 0
    try:
        folder.mkdir(parents=True)
        for number, path in enumerate(found):
            total_bytes += path.stat().st_size
            _link(path, folder / f"{number:06d}-{path.name}")
    except OSError as error:
        raise UserError(f"cannot collect the input in {folder}: {error.strerror}") from error
    if total_bytes == 0:
        raise UserError(
            f"there is no text to count in {title}; choose another folder with --input (make: INPUT=FOLDER)"
        )
    return Corpus(folder, title, len(found), total_bytes)


def _python_sources() -> Iterator[Path]:
    for path in sorted(standard_library().rglob("*.py")):
        if not any(part in _FOREIGN for part in path.parts) and path.is_file():
            yield path


def _text_files(source: Path) -> Iterator[Path]:
    if not source.is_dir():
        raise UserError(f"{source} is not a folder; --input (make: INPUT=) takes a folder with text files")
    for path in sorted(source.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(source).parts)
        if not hidden and path.is_file() and _is_text(path):
            yield path


def _is_text(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b"\0" not in file.read(_LOOKED_AT_BYTES)
    except OSError:
        return False


def _link(path: Path, target: Path) -> None:
    try:
        os.link(path.resolve(), target)
    except OSError:  # another file system, or no permission to link
        shutil.copyfile(path, target)
