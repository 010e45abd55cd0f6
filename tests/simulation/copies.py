"""Copies of state files on the disks of simulated task managers: the real LocalCopies and CopyKeeper."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from lockgate_common.checksums import checksum as digest_of
from lockgate_proto.messages import CopiesKept, KeepCopies, StateHandle
from lockgate_taskmanager.runtime.copy_keeper import CopyKeeper
from lockgate_taskmanager.state.local_copies import COPIES_PREFIX, CopyBeside, DiskFull, LocalCopies
from lockgate_taskmanager.state.scratch import ScratchFolder

from tests.simulation.storage import Storage
from tests.simulation.world import Process, World

FETCH_MS = (1.0, 80.0)
"""For one file: often longer than from one checkpoint to the next for all of them."""


class Disk(LocalCopies):
    """Of one process, with a limit of the simulation's own: the real disk is not asked for room."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ScratchFolder(folder, COPIES_PREFIX))
        self.is_full = False

    def require_room(self, size_bytes: int = 0) -> None:  # noqa: ARG002
        if self.is_full:
            raise DiskFull("the disk is full")

    def files(self) -> list[Path]:
        """The copies that are not lost, in the same order in each run."""
        found = [(run_id, name) for run_id, known in self._runs.items() for name in known]
        return [path for run_id, name in sorted(found) if (path := self._path(run_id, name)).exists()]


class Keeper(CopyKeeper):
    """Without a thread: each file is an event of its process."""

    def __init__(self, process: Process, copies: LocalCopies, report: Callable[[CopiesKept], None]) -> None:
        super().__init__(copies, report)
        self._process = process
        self._under_way: Iterator[None] | None = None

    def keep(self, order: KeepCopies) -> None:
        super().keep(order)
        if self._under_way is None:
            self._under_way = self.steps()
            self._later()

    def _later(self) -> None:
        self._process.later(self._process.world.delay(*FETCH_MS), self._step)

    def _step(self) -> None:
        assert self._under_way is not None
        if next(self._under_way, self) is self:
            self._under_way = None
        else:
            self._later()


class Disks:
    """Of all task managers. reads: of state from copies, not from the storage."""

    def __init__(self, world: World, storage: Storage) -> None:
        self._world, self._storage = world, storage
        self._folder = (
            Path(tempfile.gettempdir()) / f"lockgate-simulation-{uuid.uuid4().hex}"
        )  # made for the first copy
        self._disks: list[Disk] = []
        self._contents: dict[str, Any] = {}  # of each file that was copied, by its checksum
        self.reads = 0

    def disk(self) -> Disk:
        """An empty one, for a new process."""
        self._disks.append(Disk(self._folder / str(len(self._disks))))
        return self._disks[-1]

    def store_beside(self, disk: Disk, run_id: str, checkpoint_id: int, handle: StateHandle, content: Any) -> None:
        """What has just been written to the storage."""
        data = self._bytes_of(content)
        with closing(CopyBeside(disk, run_id, checkpoint_id)) as copy:
            deque(copy.passing([data]), maxlen=0)
            copy.stored(handle)

    def download(self, handle: StateHandle, file: Path) -> None:
        """Raises StateUnreadable, OSError."""
        file.write_bytes(self._bytes_of(self._storage.read(handle)))

    def read(self, disk: Disk, handle: StateHandle) -> Any:
        """The content behind a handle: of a copy, else of the storage. Raises StateUnreadable, OSError."""
        path = disk.verified(handle)
        if path is None:
            return self._storage.read(handle)
        self.reads += 1
        found = digest_of(path.read_bytes())
        if found != handle.checksum:
            self._world.violate(f"[1] a copy of {handle.path} is read that is not what was stored")
        return self._contents[found]

    def spoil(self, disk: Disk) -> None:
        """Half of the copies get lost, are torn, or get the bytes of another file."""
        for path in disk.files():
            how = self._world.random.choice(("", "", "", "lost", "torn", "other"))
            if how == "lost":
                path.unlink()
            elif how == "torn":
                path.write_bytes(path.read_bytes()[:-1])
            elif how == "other":
                content = self._contents[self._world.random.choice(sorted(self._contents))]
                path.write_bytes(self._bytes_of(content))

    def _bytes_of(self, content: Any) -> bytes:
        """Those whose checksum the handle of this content has, see checksum_of."""
        data = repr(content).encode()
        self._contents[digest_of(data)] = content
        return data

    def close(self) -> None:
        """Removes everything."""
        for disk in self._disks:
            disk.close()
        shutil.rmtree(self._folder, ignore_errors=True)
