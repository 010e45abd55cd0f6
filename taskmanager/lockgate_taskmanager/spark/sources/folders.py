"""Finds new files of a local folder, at a cost that depends on the changes and not on the number of files.

A folder's modification time changes whenever a name is added or removed. A folder that had no new names, and was not
modified since, is not read again. Names decide what is new, never times: a file that arrives late with an old
modification time is found like any other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from dataclasses import dataclass

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
        with os.scandir(path) as entries:
            for entry in entries:
                name = relative + entry.name
                if name in known or entry.name.startswith((".", "_")):
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
