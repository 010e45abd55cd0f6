"""Merges a full snapshot with its increments: the newest value of every key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.columns.hashing import mixed
from lockgate_taskmanager.state.columns.keys import KeyIndex
from lockgate_taskmanager.state.columns.pieces import FrozenPieces, Pieces, fitting
from lockgate_taskmanager.state.format.diff_column import undone
from lockgate_taskmanager.state.format.state_file import BASE, DELETED, PAYLOAD, Stored
from lockgate_taskmanager.task.program import StateUnreadable
from lockgate_taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
_DIFFS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Increment:
    """The changes as a file. diff_values: number of values stored as differences; diff_saved_bytes: saved by these."""

    data: pa.Buffer
    diff_values: int = 0
    diff_saved_bytes: int = 0


def latest(chain: Sequence[Stored], keys: int, time: str | None = None) -> Stored:
    """Merges the pieces of a chain. chain: the full one, then increments, in order; keys: number of key columns.

    The rows of a key in its last piece (one, or several for sessions) replace its rows in all earlier pieces; a key
    whose last change is a deletion is dropped. time: the column by which event time purges rows, None if it does not;
    each piece has one purge time, which applies to the earlier pieces.

    Raises StateUnreadable when the first is not a full one, or a difference does not fit the preceding value.
    """
    first = _full(chain)
    if len(chain) == 1:
        return first
    has_diffs = any(BASE in stored.schema.names for stored in chain)
    tables = [_alike(stored, has_diffs) for stored in chain]
    pieces = np.repeat(np.arange(len(chain)), [table.num_rows for table in tables])
    table = _joined_behind(tables[0].num_rows, pa.concat_tables(tables))
    numbers = _numbers(table, tables[0].num_rows, keys, time)
    is_kept = numbers < 0
    changed = np.flatnonzero(~is_kept)
    last = np.zeros(numbers.max(initial=-1) + 1, np.int64)
    last[numbers[changed]] = pieces[changed]  # which rise: of several the last one is written last
    is_kept[changed] = pieces[changed] == last[numbers[changed]]
    is_kept &= ~table.column(DELETED).to_numpy()
    if time is not None:
        is_kept &= table.column(time).to_numpy() > _purged_later(chain)[pieces]
    kept = _undone(table, is_kept, _earlier(numbers), _Places(chain)) if has_diffs else _filtered(table, is_kept)
    together = Pieces(first.schema)
    together.extend(batch.select(first.schema.names) for batch in kept)
    return replace(chain[-1], schema=first.schema, batches=together.frozen().batches, is_increment=False)


def only_added(chain: Sequence[Stored], time: str) -> Iterator[pa.RecordBatch]:
    """The same for rows that no later piece replaces, batch by batch, piece by piece. time: see `latest`."""
    names = _full(chain).schema.names
    for stored, purged_until in zip(chain, _purged_later(chain).tolist(), strict=True):
        for batch in stored.batches:
            is_kept = batch.column(time).to_numpy(zero_copy_only=False) > purged_until
            kept = batch if stored is chain[-1] or is_kept.all() else batch.filter(pa.array(is_kept))
            yield kept.select(names).replace_schema_metadata(None)


def _full(chain: Sequence[Stored]) -> Stored:
    """The first piece. Raises StateUnreadable when it is no full snapshot."""
    first = chain[0]
    if first.is_increment:
        raise StateUnreadable(
            f"the state file {first.where} contains only the changes since another one, which is not named; restore"
            " from another checkpoint"
        )
    return first


def _joined_behind(first: int, table: pa.Table) -> pa.Table:
    """The same rows; those behind the first `first` in few batches, as each of an increment has few rows."""
    later = Pieces(table.schema)
    later.extend(table.slice(first).to_batches())
    return pa.concat_tables([table.slice(0, first), pa.Table.from_batches(later.frozen().batches, table.schema)])


def _numbers(table: pa.Table, first: int, keys: int, time: str | None) -> Array:
    """For each row the number of its key; -1 for a key that only the first `first` rows have.

    So the costs of looking keys up grow with what the later pieces hold, not with the state.
    """
    names = table.column_names[:keys]
    index = KeyIndex(pa.schema([table.schema.field(name) for name in names]))

    def keyed(rows: pa.Table) -> Iterator[tuple[pa.RecordBatch, Array]]:
        for batch in rows.to_batches(max_chunksize=1 << 20):
            hashes = batch.column(keys).to_numpy(zero_copy_only=False)
            if time in names:  # of a key's windows all have its hash
                hashes = mixed(hashes, batch.column(time).to_numpy(zero_copy_only=False))
            yield batch.select(names), hashes

    changed = [index.rows_of(some, hashes) for some, hashes in keyed(table.slice(first))]
    known = [index.known_rows_of(some, hashes) for some, hashes in keyed(table.slice(0, first))]
    return np.concatenate([np.zeros(0, np.int64), *known, *changed])


def _filtered(table: pa.Table, is_kept: Array) -> Iterator[pa.RecordBatch]:
    """Some rows, in their order."""
    start = 0
    for batch in table.to_batches():
        mine = is_kept[start : start + batch.num_rows]
        start += batch.num_rows
        if mine.all():
            yield batch
        elif mine.any():
            yield batch.filter(pa.array(mine))


def _earlier(numbers: Array) -> Array:
    """For each row the preceding one with the same number, -1 for none."""
    changed = np.flatnonzero(numbers >= 0)
    order = changed[np.argsort(numbers[changed], kind="stable")]
    earlier = np.full(len(numbers), -1)
    earlier[order[1:]] = np.where(numbers[order[1:]] == numbers[order[:-1]], order[:-1], -1)
    return earlier


def _purged_later(chain: Sequence[Stored]) -> Array:
    """For each piece the latest purge time of the pieces after it."""
    times = np.array([*(stored.about.purged_until for stored in chain[1:]), MIN_WATERMARK], np.int64)
    return np.maximum.accumulate(times[::-1])[::-1]


def _undone(table: pa.Table, is_kept: Array, earlier: Array, places: _Places) -> Iterator[pa.RecordBatch]:
    """Some rows with their differences applied, in another order."""
    payloads, bases = table.column(PAYLOAD), table.column(BASE)
    is_whole = pc.is_null(bases).to_numpy()
    yield from _filtered(table, is_kept & is_whole)
    column = table.schema.get_field_index(PAYLOAD)
    found = FrozenPieces(table.schema, table.to_batches())

    def take(diffs: Array) -> pa.RecordBatch:
        whole = pa.array([undone(payloads, bases, earlier, row, places.name_of) for row in diffs.tolist()], pa.binary())
        if isinstance(whole, pa.ChunkedArray):
            raise pa.ArrowInvalid("the values are more than one array can hold")
        return found.take(diffs).set_column(column, PAYLOAD, whole)

    diffs = np.flatnonzero(is_kept & ~is_whole)
    for start in range(0, len(diffs), _DIFFS_AT_ONCE):
        yield from fitting(take, diffs[start : start + _DIFFS_AT_ONCE])


class _Places:
    """Maps row numbers over all pieces of a chain to pieces."""

    def __init__(self, chain: Sequence[Stored]) -> None:
        self._chain = chain
        self._ends = np.cumsum([sum(batch.num_rows for batch in stored.batches) for stored in chain])

    def name_of(self, row: int) -> str:
        """The piece's name."""
        return self._chain[int(np.searchsorted(self._ends, row, "right"))].where


def _alike(stored: Stored, has_diffs: bool) -> pa.Table:
    """A piece with the columns that all of them have."""
    table = pa.Table.from_batches(stored.batches, stored.schema)
    if not stored.is_increment:
        table = table.append_column(pa.field(DELETED, pa.bool_()), pa.array(np.zeros(table.num_rows, np.bool_)))
    if has_diffs and BASE not in table.column_names:
        place = table.num_columns - 1
        table = table.add_column(place, pa.field(BASE, pa.int64()), pa.nulls(table.num_rows, pa.int64()))
    return table
