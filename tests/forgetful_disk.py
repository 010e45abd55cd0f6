"""A disk that forgets, when the power goes, whatever was not synced: names of a folder, and the content of files.

POSIX promises no more than that. `crash` leaves a folder as such a disk would: a name is there when its folder was
synced after it was made, and a file holds what it held at its last fsync. Known by the inode, so that a rename keeps
what was synced. Works for every writer that syncs through `os.fsync`, whatever it writes with.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest


class ForgetfulDisk:
    """Everything below one folder, which itself is durable."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self._names: dict[int, dict[str, int]] = {}
        self._contents: dict[int, bytes] = {}
        self._is_folder: dict[int, bool] = {}
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._sync)

    def crash(self) -> None:
        """Makes the folder what is left of it."""
        top = self._look(self.root)
        kept = self.root.with_name(f"{self.root.name}.kept")
        self._rebuild(top, kept)
        shutil.rmtree(self.root)
        kept.rename(self.root)
        self._names.clear()
        self._contents.clear()
        self._settle(self.root)

    def _look(self, path: Path) -> int:
        return path.stat().st_ino

    def _sync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if self.root not in (path, *path.parents):
            return
        inode = os.fstat(descriptor).st_ino
        if path.is_dir():
            self._names[inode] = {}
            for child in path.iterdir():
                number = self._look(child)
                self._names[inode][child.name] = number
                self._is_folder[number] = child.is_dir()
        else:
            self._contents[inode] = path.read_bytes()

    def _rebuild(self, inode: int, target: Path) -> None:
        target.mkdir()
        for name, number in self._names.get(inode, {}).items():
            if self._is_folder[number]:
                self._rebuild(number, target / name)
            else:
                (target / name).write_bytes(self._contents.get(number, b""))

    def _settle(self, folder: Path) -> None:
        """What came through the crash is on the disk."""
        for path in (folder, *folder.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
