"""A new database that is filled from snapshots: its folder, and what other subtasks have stored."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pyarrow as pa

from taskmanager.state.frozen_rocks import group_key
from taskmanager.state.rocksdb import ROWS_AT_ONCE, Database
from taskmanager.state.time_index import index_key

_LONGEST = b"\xff" * 32  # behind every key


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """The folder of a new store, which goes again when the store cannot be filled."""
    folder.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Rows of snapshot files, so many at a time at most, which bounds memory."""
    return (batch.slice(start, rows) for batch in batches for start in range(0, batch.num_rows, rows))


def copy(database: Database, groups: range, part: Path, memory_bytes: int) -> None:
    """Adds the key groups in `groups` of a database of the same form that lies at `part`."""
    other = Database(part, memory_bytes, is_read_only=True)
    try:
        for key in (group_key, index_key):
            rows = other.rows(key(groups.start), key(groups.stop))
            while chunk := list(islice(rows, ROWS_AT_ONCE)):
                database.put([name for name, _ in chunk], [value for _, value in chunk])
    finally:
        other.close()


def keep(database: Database, groups: range) -> None:
    """Drops the rows of other key groups than these."""
    bounds = (group_key(0), group_key(groups.start), group_key(groups.stop), index_key(groups.start))
    others = [bounds[:2], bounds[2:], (index_key(groups.stop), _LONGEST)]
    database.delete_ranges((start, end) for start, end in others if start < end)
