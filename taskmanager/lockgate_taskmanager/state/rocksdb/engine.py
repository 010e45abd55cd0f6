"""RocksDB databases: the only home of rocksdict.

There is no write-ahead log: a database lives as long as its attempt, and snapshots provide durability. Compaction is
"universal": a small change makes a small new table and leaves the large ones alone, so a snapshot has few new tables.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from lockgate_proto.messages import OperatorState, RocksdbBackend, StateKind

from lockgate_taskmanager.task.program import StateUnreadable, UserError

Item = TypeVar("Item")
DEFAULT_MEMORY_BYTES = 128 << 20
ROWS_AT_ONCE = 50_000  # when many go from one place to another, which bounds memory
BYTES_AT_ONCE = 4 << 20  # turned into rows or back together, which takes some twenty times as many
_RUNS = 16  # sorted runs before some are merged
_FULL_MERGE_PERCENT = 200  # all is rewritten when the newer runs are twice the oldest
_LARGEST_BUFFER = 32 << 20
_MANIFEST_BYTES = 1 << 20
_DAMAGED = "Corruption: "  # how RocksDB begins what it says of files that no other try makes readable


def require() -> ModuleType:
    """The package. Raises UserError with what to do where it is missing."""
    if importlib.util.find_spec("rocksdict") is None:
        raise UserError(
            "the state backend rocksdb needs the package rocksdict on every task manager:"
            " pip install 'lockgate[rocksdb]'"
        )
    import rocksdict

    return rocksdict


def memory_bytes(backend: RocksdbBackend) -> int:
    """The memory limit of a subtask, for cache and write buffers."""
    return backend.memory_bytes or DEFAULT_MEMORY_BYTES


def refuse(operator_id: str, states: Sequence[OperatorState]) -> None:
    """Called by the other backends. Raises StateUnreadable, with what to do, for the state of a database."""
    if any(state.kind is StateKind.ROCKSDB_STATE for state in states):
        raise StateUnreadable(
            f"the state of operator {operator_id} was stored by the rocksdb backend, which only that reads;"
            " take a savepoint, which every backend reads, or set the job's state backend to rocksdb"
        )


def portions(items: Iterable[Item], size: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Items in portions of a bounded number of bytes. size: of an item, in bytes."""
    some: list[Item] = []
    held = 0
    for item in items:
        some.append(item)
        held += size(item)
        if held >= BYTES_AT_ONCE:
            yield some
            some, held = [], 0
    if some:
        yield some


def size_of(entry: tuple[bytes, bytes]) -> int:
    """Bytes of a key and its value."""
    return len(entry[0]) + len(entry[1])


class Database:
    """Byte strings by byte string, ordered by key. One thread writes; another one may make a checkpoint meanwhile."""

    def __init__(self, path: Path, memory_bytes: int = DEFAULT_MEMORY_BYTES, *, is_read_only: bool = False) -> None:
        """Opens or makes it. memory_bytes: for cache and write buffers. Raises OSError, StateUnreadable."""
        self._package = require()
        access = self._package.AccessType.read_only() if is_read_only else self._package.AccessType.read_write()
        try:
            self._db: Any = self._package.Rdict(str(path), self._options(memory_bytes), access_type=access)
        except Exception as error:  # rocksdict has no other
            if str(error).startswith(_DAMAGED):
                raise StateUnreadable(f"a stored database is damaged: {str(error)[:500]}") from error
            raise OSError(f"the database {path} cannot be opened: {error}") from error
        unlogged = self._package.WriteOptions()
        unlogged.disable_wal = True
        self._db.set_write_options(unlogged)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, None where there is none. Fastest when the keys are sorted."""
        found: list[bytes | None] = self._db[list(keys)] if keys else []
        return found

    def put(self, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        """Writes all of them at once."""
        batch = self._package.WriteBatch(raw_mode=True)
        for key, value in zip(keys, values, strict=True):
            batch.put(key, value)
        self._db.write(batch)

    def delete(self, keys: Sequence[bytes]) -> None:
        """Removes keys, there or not, all at once."""
        batch = self._package.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key)
        self._db.write(batch)

    def delete_ranges(self, ranges: Iterable[tuple[bytes, bytes]]) -> None:
        """Removes every key from one to before another, all at once."""
        batch = self._package.WriteBatch(raw_mode=True)
        for start, end in ranges:
            batch.delete_range(start, end)
        self._db.write(batch)

    def rows(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `start` to before `end` with their values, in order."""
        yield from self._db.items(from_key=start, read_opt=self._until(end, fills_cache=False))

    def values(self, start: bytes, end: bytes) -> list[bytes]:
        """The values of all keys from `start` to before `end`, in order. They are cached, as what `get` reads."""
        return list(self._db.values(from_key=start, read_opt=self._until(end, fills_cache=True)))

    def checkpoint(self, path: Path) -> None:
        """A database at `path` with what is in this one now: its tables linked, not copied. Raises OSError.

        Nothing may be written meanwhile; reading is fine, on any thread.
        """
        try:
            self._db.flush()  # lets other threads run, which making the checkpoint does not
            self._package.Checkpoint(self._db).create_checkpoint(str(path))
        except Exception as error:  # rocksdict has no other
            raise OSError(f"the database could not be frozen in {path}: {error}") from error

    def close(self) -> None:
        """Releases memory and files. Idempotent."""
        self._db.close()

    def _until(self, end: bytes, *, fills_cache: bool) -> Any:
        options = self._package.ReadOptions()
        options.set_iterate_upper_bound(end)
        options.fill_cache(fills_cache)
        return options

    def _options(self, memory_bytes: int) -> Any:
        package = self._package
        options = package.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_compaction_style(package.DBCompactionStyle.universal())
        universal = package.UniversalCompactOptions()
        universal.max_size_amplification_percent = _FULL_MERGE_PERCENT
        options.set_universal_compaction_options(universal)
        options.set_level_zero_file_num_compaction_trigger(_RUNS)
        options.set_level_zero_slowdown_writes_trigger(2 * _RUNS)
        options.set_level_zero_stop_writes_trigger(3 * _RUNS)
        options.set_max_background_jobs(2)
        options.set_compression_type(package.DBCompressionType.lz4())
        options.set_write_buffer_size(min(memory_bytes // 8, _LARGEST_BUFFER))
        options.set_max_write_buffer_number(3)
        options.set_max_manifest_file_size(_MANIFEST_BYTES)
        options.set_max_open_files(512)
        options.set_keep_log_file_num(1)
        tables = package.BlockBasedOptions()
        tables.set_block_cache(package.Cache(memory_bytes // 2))
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        tables.set_bloom_filter(10, False)
        tables.set_format_version(5)
        options.set_block_based_table_factory(tables)
        return options
