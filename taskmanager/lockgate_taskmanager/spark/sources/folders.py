"""Finds new files of a local folder, at a cost that depends on the changes and not on the number of files.

A folder's modification time changes whenever a name is added or removed. A folder that had no new names, and was not
modified since, is not read again. Names decide what is new, never times: a file that arrives late with an old
modification time is found like any other.

Links are followed, but not to what is read under its own name as well, and not round in a circle. Which of them are is
the same in every listing, whatever has been found before.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path

LOG = logging.getLogger(__name__)

TICK_NS = 2_000_000_000
"""Two changes within the coarsest tick of a file system's clock may have the same time."""

LOOK_THROUGH_NS = 60_000_000_000
"""How often everything is read regardless of times: network file systems have other clocks and caches."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """A folder without new names. modified_ns: as it was then; below: its subfolders, relative to the root."""

    modified_ns: int
    below: tuple[str, ...]


class FolderWatch:
    """Remembers which folders below a root need not be read again."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._settled: dict[str, _Settled] = {}
        self._through_at_ns: int | None = None
        self._left_out: set[str] = set()  # links that the log has named
        self.folders_read = 0

    def fresh(self, known: Container[str], is_wanted: Callable[[str], bool], unix_ns: int) -> list[str]:
        """Files beyond `known`, sorted, relative to the root. They are returned again until they are known.

        is_wanted: filters names without their folder. unix_ns: the wall clock. Raises OSError.
        """
        if self._through_at_ns is None or not 0 <= unix_ns - self._through_at_ns < LOOK_THROUGH_NS:
            self._settled.clear()
            self._through_at_ns = unix_ns
        found: list[str] = []
        waiting = [""]
        while waiting:
            relative = waiting.pop()
            try:
                waiting += self._look_into(relative, known, is_wanted, unix_ns, found)
            except (FileNotFoundError, NotADirectoryError):
                if not relative:
                    raise
                self._settled.pop(relative, None)  # it was removed meanwhile
        return sorted(found)

    def _look_into(
        self, relative: str, known: Container[str], is_wanted: Callable[[str], bool], unix_ns: int, found: list[str]
    ) -> tuple[str, ...]:
        """Adds the new files of one folder; returns its subfolders."""
        path = os.path.join(self._root, relative)
        modified_ns = os.stat(path).st_mtime_ns
        settled = self._settled.get(relative)
        if settled is not None and settled.modified_ns == modified_ns:
            return settled.below
        self.folders_read += 1
        before = len(found)
        below: list[str] = []
        way: list[Path] = []
        with os.scandir(path) as entries:
            for entry in entries:
                name = relative + entry.name
                if name in known or _is_hidden(entry.name):
                    continue
                if entry.is_symlink():
                    way = way or self._way(relative)
                    if self._is_left_out(entry, way, is_wanted):
                        continue
                if entry.is_dir():
                    below.append(f"{name}/")
                elif is_wanted(entry.name) and entry.is_file():
                    found.append(name)
        if len(found) == before and modified_ns < unix_ns - TICK_NS:
            self._settled[relative] = _Settled(modified_ns, tuple(below))
        else:
            self._settled.pop(relative, None)
        return tuple(below)

    def _way(self, relative: str) -> list[Path]:
        """The real paths of the root and of the folders from there to `relative`."""
        folders = relative.split("/")
        return [Path(os.path.realpath(os.path.join(self._root, *folders[:count]))) for count in range(len(folders))]

    def _is_left_out(self, link: os.DirEntry[str], way: list[Path], is_wanted: Callable[[str], bool]) -> bool:
        """Whether a link leads to what is read without it, to a folder that it is in, or nowhere."""
        try:
            is_folder = link.is_dir()
            if not is_folder and not link.is_file():
                return True
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return True
        target = Path(os.path.realpath(link.path))
        is_read = any(_is_below(target, folder) for folder in way) and (is_folder or is_wanted(target.name))
        if not is_read and not (is_folder and any(folder.is_relative_to(target) for folder in way)):
            return False
        if link.path not in self._left_out:
            self._left_out.add(link.path)
            LOG.warning("the link %s is left out: it leads to what is read anyway", link.path)
        return True


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "_"))


def _is_below(target: Path, folder: Path) -> bool:
    """Whether it is in the folder, or the folder itself, and not hidden in there."""
    return target.is_relative_to(folder) and not any(map(_is_hidden, target.relative_to(folder).parts))
