"""The common part of every store that has its own RocksDB database: snapshots, and the restore from other subtasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import pyarrow as pa

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.chains import Chains
from lockgate_taskmanager.state.rocksdb.barrier_buffered_database import opened
from lockgate_taskmanager.state.rocksdb.engine import ROWS_AT_ONCE, Database
from lockgate_taskmanager.state.rocksdb.frozen_database import FrozenDatabase, TableForm, group_key
from lockgate_taskmanager.state.rocksdb.time_index import index_key
from lockgate_taskmanager.state.spec import StateSpec
from lockgate_taskmanager.task.program import SnapshotOrder

_ALWAYS = 1 << 30  # there is always something that need not be stored again: no snapshot is full again
_LONGEST = b"\xff" * 32  # behind every key


class DatabaseStore:
    """A store in RocksDB. Used from the subtask's own thread; `close` removes the database's folder."""

    _spec: StateSpec
    _has_elements = False  # its rows may have elements apart

    def __init__(self, spec: StateSpec, folder: Path, memory_bytes: int) -> None:
        """An empty store, or the database in `folder`, which belongs to this store alone. Raises OSError."""
        self._spec = spec
        self.chains = Chains(_ALWAYS)  # what its snapshots build on
        self.database = opened(folder, memory_bytes)

    def load(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Before the first batch: adds rows of snapshot files."""
        raise NotImplementedError

    def filled(self, restored_from: Sequence[About]) -> None:
        """Every restored row has been added. restored_from: the headers of the restored pieces."""

    def copy(self, other: Database, about: About) -> None:  # noqa: ARG002
        """Adds the rows of this subtask's key groups from a database of the same layout. about: its header."""
        groups = self._spec.key_groups
        for key in (group_key, index_key):
            rows = other.rows(key(groups.start), key(groups.stop))
            while chunk := list(islice(rows, ROWS_AT_ONCE)):
                self.database.itself.put([name for name, _ in chunk], [value for _, value in chunk])

    def keep_own_groups(self) -> None:
        """Drops the rows of other key groups than this subtask's."""
        groups = self._spec.key_groups
        bounds = (group_key(0), group_key(groups.start), group_key(groups.stop), index_key(groups.start))
        others = [bounds[:2], bounds[2:], (index_key(groups.stop), _LONGEST)]
        self.database.itself.delete_ranges((start, end) for start, end in others if start < end)

    def close(self) -> None:
        self.database.close()

    def _frozen(self, order: SnapshotOrder, about: About, form: TableForm, piece: str = "") -> FrozenDatabase:
        """The rows as they are now. Takes microseconds, unless the copy of the previous barrier is not made yet."""
        base, copy = self.chains.base(order), self.database.copy()
        return FrozenDatabase(
            self._spec.operator_id,
            copy,
            about,
            self.chains,
            base,
            order.is_savepoint,
            form,
            piece,
            self._has_elements,
        )


def cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of snapshot files, at most `rows` at a time, which bounds memory."""
    return (batch.slice(start, rows) for batch in batches for start in range(0, batch.num_rows, rows))
