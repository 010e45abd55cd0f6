"""Windowed state of several subtasks that are not equally far in event time, at one parallelism after another."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
from lockgate_proto.key_groups import key_group_range
from lockgate_proto.messages import KeyedAggregate

from taskmanager.state import stored
from taskmanager.state.sessions import SessionState
from taskmanager.state.store import Merged
from taskmanager.state.windowed import WindowedState

GROUPS = 16
KEYS = ("a", "b", "c", "dd", "e", None, "gg", "h")
State = WindowedState | SessionState


def hash_of(key: str | None) -> int:
    """Over many key groups; two keys share one hash."""
    return zlib.crc32(("a" if key == "b" else str(key)).encode()) * 0x9E3779B97F4A7C15 % 2**64 - 2**63


def group_of(key: str | None) -> int:
    """The key group of a key."""
    return hash_of(key) % GROUPS


class Fleet:
    """Subtasks that share the key groups of one operator."""

    def __init__(self, kind: type[State], operator: KeyedAggregate, schema: pa.Schema, parallelism: int) -> None:
        self._kind, self._operator, self._schema = kind, operator, schema
        self._ranges = self._dealt(parallelism)
        self.subtasks: list[State] = [kind(operator, schema, GROUPS, one) for one in self._ranges]

    def keys(self, subtask: int, keys: Iterable[str | None] = KEYS) -> list[str | None]:
        """Those of a subtask."""
        return [key for key in keys if group_of(key) in self._ranges[subtask]]

    def merge(self, told: list[Any], partial: Callable[[list[Any]], pa.Table]) -> list[Merged]:
        """Each subtask gets what `partial` makes of its records. told: all, each with its key first."""
        shares = [[one for one in told if one[0] in self.keys(number)] for number in range(len(self.subtasks))]
        return [one.merge(self._hashed(partial(share))) for one, share in zip(self.subtasks, shares, strict=True)]

    def rescale(self, parallelism: int) -> None:
        """Out of a snapshot: every subtask gets what those had that held some of its key groups."""
        mark = stored.signature(self._operator)
        before = [(owned, one.freeze().to_buffer()) for owned, one in zip(self._ranges, self.subtasks, strict=True)]
        self._ranges = self._dealt(parallelism)
        self.subtasks = []
        for owned in self._ranges:
            pieces = [
                stored.read(data, "f", signature=mark, max_parallelism=GROUPS, wanted=owned)
                for then, data in before
                if max(then.start, owned.start) < min(then.stop, owned.stop)
            ]
            state = self._kind(self._operator, pieces[0].partial_schema, GROUPS, owned)
            state.restore(pieces)
            self.subtasks.append(state)

    @staticmethod
    def _dealt(parallelism: int) -> list[range]:
        return [key_group_range(number, parallelism, GROUPS) for number in range(parallelism)]

    @staticmethod
    def _hashed(partial: pa.Table) -> pa.Table:
        hashes = pa.array([hash_of(key) for key in partial.column("k").to_pylist()], pa.int64())
        return partial.set_column(partial.schema.get_field_index("__hash"), "__hash", hashes)
