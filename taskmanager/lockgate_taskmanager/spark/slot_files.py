"""The folder of slot files: in shared memory when there is room, and removed reliably."""

from __future__ import annotations

import os
from pathlib import Path

from lockgate_common.places import SLOTS_PREFIX

from lockgate_taskmanager.state.scratch import ScratchFolder

_SHARED_MEMORY = Path("/dev/shm")
_NEEDED_BYTES = 256 << 20


class SlotFolder:
    """Hands out paths for slot files."""

    def __init__(self, work_dir: str, shared_memory: Path = _SHARED_MEMORY) -> None:
        """work_dir: used when `shared_memory` is missing or has less than 256 MB free. Raises OSError."""
        self._folder = ScratchFolder(shared_memory if _has_room(shared_memory) else Path(work_dir), SLOTS_PREFIX)
        self.path = self._folder.path

    def new_path(self) -> str:
        """A path that was not used before."""
        return str(self._folder.new_path(".slot"))

    def close(self) -> None:
        """Removes the folder."""
        self._folder.close()


def _has_room(folder: Path) -> bool:
    try:
        free = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and free.f_bavail * free.f_frsize >= _NEEDED_BYTES
