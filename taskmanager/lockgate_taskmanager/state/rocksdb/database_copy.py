"""A copy of a database as of a barrier, made a little later.

The memtable must be flushed before tables can be linked, which takes some ten milliseconds. The stream does not wait:
from the barrier until the copy is made, the store buffers its writes (see `barrier_buffered_database`).

PENDING --make--> MADE --drop--> DROPPED
   +---make, which fails---------^
   +---drop----------------------+
"""

from __future__ import annotations

import shutil
import threading
from enum import Enum
from pathlib import Path

from lockgate_taskmanager.state.rocksdb.engine import Database


class CopyState(Enum):
    """The states of a copy. DROPPED also stands for a copy that could not be made."""

    PENDING = "pending"
    MADE = "made"
    DROPPED = "dropped"


class DatabaseCopy:
    """Made once, by the first thread that needs it. Thread-safe."""

    def __init__(self, database: Database, path: Path) -> None:
        """path: folder of the copy, which is not there yet."""
        self.path = path
        self._database = database
        self._state = CopyState.PENDING
        self._lock = threading.Lock()

    @property
    def is_settled(self) -> bool:
        """True when the database may change again."""
        return self._state is not CopyState.PENDING

    def make(self) -> None:
        """Makes the copy, unless it exists. Raises OSError, also when it was dropped before."""
        with self._lock:
            if self._state is CopyState.PENDING:
                try:
                    self._database.checkpoint(self.path)
                except OSError:
                    self._state = CopyState.DROPPED
                    raise
                self._state = CopyState.MADE
            if self._state is not CopyState.MADE:
                raise OSError(f"the copy {self.path} of the database was given up")

    def drop(self) -> None:
        """Drops the copy, made or not. Waits while it is being made. Idempotent."""
        with self._lock:
            self._state = CopyState.DROPPED
            shutil.rmtree(self.path, ignore_errors=True)
