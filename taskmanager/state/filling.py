"""A new database that is filled from snapshots: its folder, and parts that other subtasks have stored."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from taskmanager.state.rocksdb import Database


class Filled(Protocol):
    """A store that can take rows from another database."""

    def copy_from(self, other: Database) -> None:
        """Adds the rows of this subtask's key groups in another database of the same form."""
        ...


@contextmanager
def new_folder(folder: Path) -> Iterator[None]:
    """The folder of a new store, which goes again when the store cannot be filled."""
    folder.mkdir(parents=True)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def copy(store: Filled, part: Path, memory_bytes: int) -> None:
    """Adds what is ours of a database that lies at `part`."""
    other = Database(part, memory_bytes, is_read_only=True)
    try:
        store.copy_from(other)
    finally:
        other.close()
