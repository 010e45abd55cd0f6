"""A RocksDB database that another thread copies shortly after each barrier.

From a barrier until the copy is made, writes are buffered in memory, so that the copy shows the database as of the
barrier. Reads see the buffered writes. Afterwards these are written little by little, with the writes that follow:
all at once they would delay the stream for as long as their batches took.
"""

from __future__ import annotations

import shutil
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from lockgate_taskmanager.state.rocksdb.database_copy import DatabaseCopy
from lockgate_taskmanager.state.rocksdb.engine import Database

_HELD_ROWS = 200_000  # held back at most; beyond that the copy is waited for
_HELD_BYTES = 64 << 20
_ROWS_A_WRITE = 5_000  # of those held back, with each write that follows, and as many as that one has


class BarrierBufferedDatabase:
    """Used from the subtask's own thread. The folder is removed by `close`."""

    def __init__(self, folder: Path, database: Database) -> None:
        """folder: of this one alone; holds the database and copies of it that are being stored."""
        self._folder = folder
        self._database = database
        self._copies = 0
        self._copy: DatabaseCopy | None = None  # of the last barrier, while it may not be made yet
        self._held: dict[bytes, bytes | None] = {}  # written since that barrier; None: removed
        self._order: list[bytes] = []  # the keys of `_held`; sorted up to `_sorted`
        self._sorted = 0
        self._held_bytes = 0  # or less: of what was replaced the bytes count, too
        self._forgotten: list[tuple[bytes, bytes]] = []
        self._is_closed = False

    @property
    def itself(self) -> Database:
        """The database itself, for filling it before the first barrier."""
        return self._database

    def get(self, names: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where there is none. Fastest when the keys are sorted."""
        found = self._database.get(names)
        if self._held:
            found = [self._held.get(name, value) for name, value in zip(names, found, strict=True)]
        return found

    def write(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Writes values, and removes the keys that have None."""
        self._settle(is_needed=len(self._held) > _HELD_ROWS or self._held_bytes > _HELD_BYTES)
        if self._copy is None and not self._held:
            self._forget()
            self._apply(changes)
            return
        self._order += (name for name in changes if name not in self._held)
        self._held.update(changes)
        self._held_bytes += sum(len(value) for value in changes.values() if value is not None)
        if self._copy is None:
            self._catch_up(len(changes) + _ROWS_A_WRITE)

    def forget(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Removes all keys of each range, now or later. They must not be read or written any more."""
        self._forgotten += ranges
        self._settle(is_needed=False)
        if self._copy is None and not self._held:
            self._forget()

    def values(self, start: bytes, end: bytes) -> list[bytes]:
        """The values of all keys from `start` to before `end`, in order."""
        if self._held:
            return [value for _, value in self.rows(start, end, sys.maxsize)]
        return self._database.values(start, end)

    def rows(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Keys from `start` to before `end` with their values, in order; the first `limit` of them."""
        found = self._database.rows(start, end)
        if not self._held:
            return list(islice(found, limit))
        taken = list(islice((row for row in found if row[0] not in self._held), limit))
        return sorted(taken + self._held_between(start, end, limit))[:limit]

    def names(self, start: bytes, end: bytes, limit: int) -> list[bytes]:
        """Keys from `start` to before `end`, in order; the first `limit` of them."""
        return [name for name, _ in self.rows(start, end, limit)]

    def copy(self) -> DatabaseCopy:
        """A copy as of now, made later by the storing thread. Takes microseconds, unless many writes are buffered."""
        self._settle(is_needed=True)
        self._catch_up(len(self._held))
        self._copies += 1
        self._copy = DatabaseCopy(self._database, self._folder / f"copy-{self._copies}")
        return self._copy

    def close(self) -> None:
        """Idempotent."""
        if not self._is_closed:
            self._is_closed = True
            if self._copy is not None:
                self._copy.drop()
            self._database.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _held_between(self, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first buffered keys that have a value, in order."""
        if self._sorted < len(self._order):
            self._order.sort()  # of two parts that are in order, or nearly: one pass
            self._sorted = len(self._order)
        found: dict[bytes, bytes] = {}
        for at in range(bisect_left(self._order, start), bisect_left(self._order, end)):
            # Those that were written out are there still, and twice when they were held back again.
            value = self._held.get(self._order[at])
            if value is not None:
                found[self._order[at]] = value
                if len(found) >= limit:
                    break
        return list(found.items())

    def _settle(self, *, is_needed: bool) -> None:
        """Releases the copy if it is made. is_needed: makes it first, unless that fails."""
        copy = self._copy
        if copy is None:
            return
        if is_needed:
            with suppress(OSError):  # the storing thread gets the error
                copy.make()
        if copy.is_settled:
            self._copy = None

    def _catch_up(self, rows: int) -> None:
        """Writes some of the buffered writes, the oldest first."""
        if rows < len(self._held):
            oldest = list(islice(self._held, rows))
            self._apply({name: self._held.pop(name) for name in oldest})
            return
        if self._held:
            self._apply(self._held)
            self._held, self._order, self._sorted, self._held_bytes = {}, [], 0, 0
        self._forget()

    def _forget(self) -> None:
        """Deletes the pending ranges, once no buffered write can be in them."""
        if self._forgotten:
            self._database.delete_ranges(self._forgotten)
            self._forgotten = []

    def _apply(self, changes: Mapping[bytes, bytes | None]) -> None:
        kept = {name: value for name, value in changes.items() if value is not None}
        if kept:
            self._database.put(list(kept), list(kept.values()))
        if len(kept) < len(changes):
            self._database.delete([name for name, value in changes.items() if value is None])


def opened(folder: Path, memory_bytes: int) -> BarrierBufferedDatabase:
    """Opens the database in `folder`, or creates it. Raises OSError, UserError."""
    folder.mkdir(parents=True, exist_ok=True)
    return BarrierBufferedDatabase(folder, Database(folder / "db", memory_bytes))
