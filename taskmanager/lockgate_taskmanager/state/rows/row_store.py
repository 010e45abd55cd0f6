"""Rows by key: the state of each key of a process function or a deduplication, as opaque bytes.

    key --> payload (bytes), event (ms), wall (ms), expiry (ms)

event: the event time of the next visit, that of the earliest timer; wall: the same by the wall clock; expiry: the wall
time at which the row expires. NEVER stands for none. All times are milliseconds since 1970, because they outlive
processes. An expired row is never found again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.arrays import numpy_of, one_batch, require_values
from lockgate_taskmanager.state.columns.deadlines import NEVER
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.format.increments import latest
from lockgate_taskmanager.state.format.state_file import PAYLOAD, Stored
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.spec import StateSpec
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

Array = Any  # numpy.ndarray
__all__ = ["NEVER", "Keys", "RowSpec", "RowStore", "Rows", "adopted", "distinct", "is_kept", "portions", "rows_of"]
KEYS_AT_ONCE = 50_000  # of those whose timers are due, which bounds the memory of a firing
_BYTES_AT_ONCE = 64 << 20  # of their payloads
PROCESS = "process"  # owner of the rows of process functions
EVENT, WALL, EXPIRY = "__event", "__wall", "__expiry"
PARTS = pa.schema([(PAYLOAD, pa.binary()), (EVENT, pa.int64()), (WALL, pa.int64()), (EXPIRY, pa.int64())])


@dataclass(frozen=True, slots=True)
class RowSpec(StateSpec):
    """The identity of the rows. owner: kind of operator, so that no other reads them; key_groups: of the subtask."""

    operator_id: str
    owner: str
    keys: tuple[str, ...]
    max_parallelism: int
    key_groups: range

    @property
    def signature(self) -> str:
        return json.dumps({"keys": [key.casefold() for key in self.keys], "rows": self.owner})

    def within(self, schema: pa.Schema) -> RowSpec:
        """The spec with the key names as the records spell them: Spark ignores case."""
        names = {name.casefold(): name for name in schema.names}
        return replace(self, keys=tuple(names[key.casefold()] for key in self.keys))

    def read(self, data: pa.Buffer, where: str) -> Stored:
        stored = StateSpec.read(self, data, where)
        if any(field not in list(stored.schema) for field in PARTS):
            raise StateUnreadable(f"the state file {where} cannot be read as rows by key: it has other columns")
        return stored

    def latest(self, chain: Sequence[Stored]) -> Stored:
        return latest(chain, len(self.keys))


@dataclass(frozen=True, slots=True)
class Keys:
    """Distinct keys, each with its hash (see `layout`)."""

    columns: pa.RecordBatch
    hashes: Array

    def __len__(self) -> int:
        return len(self.hashes)

    def take(self, places: Array) -> Keys:
        """Some of them, in that order."""
        return Keys(self.columns.take(pa.array(places, pa.int64())), self.hashes[places])


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of some keys, in their order. payloads: binary, NULL for no row; times: int64."""

    payloads: pa.Array
    event: Array
    wall: Array
    expiry: Array

    def take(self, places: Array) -> Rows:
        """Some of them, in that order."""
        payloads = self.payloads.take(pa.array(places, pa.int64()))
        return Rows(payloads, self.event[places], self.wall[places], self.expiry[places])

    def parts(self) -> list[pa.Array]:
        """As they are stored, see PARTS."""
        return [self.payloads, *map(pa.array, (self.event, self.wall, self.expiry))]


class ElementRows(Protocol):
    """The elements of large maps and lists of process functions, a row each, beside the row of their key.

    Payloads that are found have them behind what the key's own row holds, see `key_payload`.
    """

    def put(self, keys: Keys, names: pa.Array, payloads: pa.Array) -> None:
        """Writes elements, after the rows of their keys. keys: of each; payloads: binary, NULL removes the element."""
        ...


class RowStore(Protocol):
    """Rows of one operator in one subtask. Used from the subtask's own thread.

    record_schema: of the records that the keys come from; clock: event time. Both are part of snapshots. elements: None
    where payloads are whole.
    """

    record_schema: pa.Schema
    clock: EventClock

    @property
    def elements(self) -> ElementRows | None: ...

    def find(self, keys: Keys, now_ms: int) -> pa.Array:
        """The payload of each key, NULL where there is no row. Cost grows with `keys`."""
        ...

    def put(self, keys: Keys, rows: Rows) -> None:
        """Replaces the rows of these keys; a NULL payload deletes the row."""
        ...

    def due(self, event_ms: int, wall_ms: int) -> Iterator[tuple[Keys, pa.Array]]:
        """The keys that are due at or before these times, with payloads, in portions.

        Cost grows with the due keys. The caller puts each of them again, and no other key before the last portion. A
        key that is put to be due at once is returned by the next call.
        """
        ...

    def next_due(self, event_ms: int) -> int:
        """The wall time before which nothing becomes due or expires; 0 when an event time timer is due already.

        May be too early: then there is nothing to do at that time.
        """
        ...

    def expire(self, now_ms: int) -> None:
        """Deletes expired rows. Cost grows with those."""
        ...

    def snapshot(self, order: SnapshotOrder) -> FrozenStore:
        """The rows as they are now. Raises OSError."""
        ...

    def close(self) -> None:
        """Releases memory and scratch files. Idempotent."""
        ...


def distinct(table: pa.Table, names: tuple[str, ...]) -> tuple[Keys, Array]:
    """The keys of a table of records with HASH, each once, and for each record the number of its key."""
    batch = one_batch(table.select([*names, HASH]))
    index = KeyIndex(pa.schema([batch.schema.field(name) for name in names]))
    numbers = index.rows_of(batch.select(list(names)), numpy_of(batch, HASH))
    return Keys(index.keys_at(np.arange(len(index))), index.hashes), numbers


def adopted(spec: RowSpec, before: pa.Schema, now: pa.Schema) -> pa.Schema:
    """The schema of the present input, with the metadata of the restored one.

    Raises UserError when a key has another type, or is spelled in another case.
    """
    for name in spec.keys:
        if name not in now.names:
            raise UserError(
                f"the restored state of operator '{spec.operator_id}' has the key '{name}', the records that come in"
                f" have {', '.join(now.names)}; keep the case of the name"
            )
        was, found = before.field(name).type, now.field(name).type
        if was != found:
            raise UserError(
                f"the restored state of operator '{spec.operator_id}' has the key '{name}' as {was}, the records that"
                f" come in have it as {found}; keep the type of the key, with CAST where it has changed"
            )
    return now.with_metadata(before.metadata)


def portions(payloads: Sequence[bytes | None] | Array) -> Iterator[slice]:
    """Cuts rows into portions that are neither too many nor too large."""
    count = len(payloads)
    ends = np.cumsum(np.fromiter((0 if payload is None else len(payload) for payload in payloads), np.int64, count))
    start = 0
    while start < count:
        held = int(ends[start - 1]) if start else 0
        fitting = int(np.searchsorted(ends, held + _BYTES_AT_ONCE, "right"))
        stop = max(start + 1, min(start + KEYS_AT_ONCE, fitting))
        yield slice(start, stop)
        start = stop


def rows_of(batch: pa.RecordBatch) -> Rows:
    """Columns as PARTS as rows. Raises ValueError for a row without a time."""
    names = (EVENT, WALL, EXPIRY)
    require_values(batch, *names)
    return Rows(batch.column(PAYLOAD), *(numpy_of(batch, name) for name in names))


def is_kept(payloads: pa.Array) -> Array:
    """Mask of the rows that exist."""
    return pc.is_valid(payloads).to_numpy(zero_copy_only=False)
