"""Windowed state of several subtasks that are not equally far in event time, at one parallelism after another."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
from lockgate_proto.key_groups import key_group_range
from lockgate_taskmanager.state.store import Merged
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.property.taskmanager.state.windows.window_homes import GROUPS, Home

KEYS = ("a", "b", "c", "dd", "e", None, "gg", "h")


def hash_of(key: str | None) -> int:
    """Over many key groups; two keys share one hash."""
    return zlib.crc32(("a" if key == "b" else str(key)).encode()) * 0x9E3779B97F4A7C15 % 2**64 - 2**63


def group_of(key: str | None) -> int:
    """The key group of a key."""
    return hash_of(key) % GROUPS


class Fleet:
    """Subtasks that share the key groups of one operator.

    broken: how many portions of a firing are put out before a failure, firing by firing; 0: there is none. What then
    goes on has restored a snapshot that was taken behind that portion.
    """

    def __init__(self, home: Home, parallelism: int, broken: Sequence[int] = ()) -> None:
        self._home = home
        self._broken = list(broken)
        self.failures = 0  # in the middle of a firing
        self._ranges = self._dealt(parallelism)
        self.subtasks: list[Any] = [home.fresh(range_) for range_ in self._ranges]

    def keys(self, subtask: int, keys: Iterable[str | None] = KEYS) -> list[str | None]:
        """Those of a subtask."""
        return [key for key in keys if group_of(key) in self._ranges[subtask]]

    def merge(self, records: list[Any], partial: Callable[[list[Any]], pa.Table]) -> list[Merged]:
        """Each subtask gets what `partial` makes of its records. records: all, each with its key first."""
        shares = [[item for item in records if item[0] in self.keys(number)] for number in range(len(self.subtasks))]
        return [
            subtask.merge(self._hashed(partial(share))) for subtask, share in zip(self.subtasks, shares, strict=True)
        ]

    def advance(self, number: int, watermark: int) -> pa.Table:
        """What a subtask puts out."""
        store, last = self.subtasks[number], self._broken.pop(0) if self._broken else 0
        portions = [store.advance(watermark)]
        while store.has_more:
            if len(portions) >= last > 0 and store.is_settled and watermark != MAX_WATERMARK:
                last = 0
                self.failures += 1
                store = self.subtasks[number] = self._home.restored([self._home.stored(store)], self._ranges[number])
                portions.append(store.advance(watermark))
            else:
                portions.append(store.go_on())
        return pa.concat_tables(portions)

    def rescale(self, parallelism: int) -> None:
        """Out of a snapshot: every subtask gets what those had that held some of its key groups."""
        before = [
            (owned, self._home.stored(subtask)) for owned, subtask in zip(self._ranges, self.subtasks, strict=True)
        ]
        self._ranges = self._dealt(parallelism)
        self.subtasks = []
        for owned in self._ranges:
            pieces = [item for then, item in before if max(then.start, owned.start) < min(then.stop, owned.stop)]
            self.subtasks.append(self._home.restored(pieces, owned))

    def held(self) -> int:
        """How many rows there are."""
        return sum(map(self._home.held, self.subtasks))

    @staticmethod
    def _dealt(parallelism: int) -> list[range]:
        return [key_group_range(number, parallelism, GROUPS) for number in range(parallelism)]

    @staticmethod
    def _hashed(partial: pa.Table) -> pa.Table:
        hashes = pa.array([hash_of(key) for key in partial.column("k").to_pylist()], pa.int64())
        return partial.set_column(partial.schema.get_field_index("__hash"), "__hash", hashes)
