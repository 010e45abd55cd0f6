"""A full snapshot and its increments made into one: the last word on every key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskmanager.state.diff_column import undone
from taskmanager.state.keys import KeyIndex
from taskmanager.state.pieces import FrozenPieces, fitting
from taskmanager.state.row_store import PAYLOAD
from taskmanager.state.stored import BASE, DELETED, Stored
from taskmanager.task.program import StateUnreadable
from taskmanager.task.watermarks import MIN_WATERMARK

Array = Any  # numpy.ndarray
_DIFFS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class Increment:
    """What has changed, as a file. diff_values: how many values are differences; diff_saved_bytes: saved by these."""

    data: pa.Buffer
    diff_values: int = 0
    diff_saved_bytes: int = 0


def latest(chain: Sequence[Stored], keys: int) -> Stored:
    """What the pieces of a chain come to. chain: the full one, then increments, in order; keys: number of key columns.

    Of a key that is in several pieces the last one counts, and a key that was deleted last is not there. Raises
    StateUnreadable when the first is not a full one, or a difference is not from what stands in front of it.
    """
    first = _full(chain)
    if len(chain) == 1:
        return first
    has_diffs = any(BASE in one.schema.names for one in chain)
    pieces = [_alike(one, has_diffs) for one in chain]
    last, earlier = _succession(pieces, keys)
    table = pa.concat_tables(pieces)
    rows = np.sort(last)
    rows = rows[~table.column(DELETED).to_numpy()[rows]]
    found = FrozenPieces(table.schema, table.to_batches())
    kept = _undone(found, table, rows, earlier, _Places(chain)) if has_diffs else found.each(rows)
    return Stored(first.schema, first.partial_schema, tuple(one.select(first.schema.names) for one in kept))


def latest_in_time(chain: Sequence[Stored], keys: int, time: str) -> Stored:
    """The same of rows that event time purges: each piece first forgets what it has purged, which one time tells.

    keys: number of key columns: the rows that a piece has of a key, one or for sessions several, replace all that the
    pieces before have of it. time: the column of the time by which rows are purged.
    """
    first = _full(chain)
    if len(chain) == 1:
        return first
    tables = [_alike(one, has_diffs=False) for one in chain]
    pieces = np.repeat(np.arange(len(chain)), [table.num_rows for table in tables])
    table = pa.concat_tables(tables)
    kept = table.column(time).to_numpy() > _purged_later(chain)[pieces]
    kept &= pieces == _last_pieces(table, pieces, keys)
    found = FrozenPieces(table.schema, table.to_batches()).each(np.flatnonzero(kept))
    batches = tuple(one.select(first.schema.names) for one in found)
    return replace(chain[-1], schema=first.schema, batches=batches, is_increment=False)


def only_added(chain: Sequence[Stored], time: str) -> Iterator[pa.RecordBatch]:
    """The same of rows that no later piece replaces, a batch of one piece after the other."""
    names = _full(chain).schema.names
    for one, purged_until in zip(chain, _purged_later(chain).tolist(), strict=True):
        for batch in one.batches:
            is_kept = batch.column(time).to_numpy(zero_copy_only=False) > purged_until
            kept = batch if one is chain[-1] or is_kept.all() else batch.filter(pa.array(is_kept))
            yield kept.select(names).replace_schema_metadata(None)


def _full(chain: Sequence[Stored]) -> Stored:
    """The first piece. Raises StateUnreadable when it is no full snapshot."""
    first = chain[0]
    if first.is_increment:
        raise StateUnreadable(
            f"the state file {first.where} holds only what has changed since another one, which is not named; restore"
            " from another checkpoint"
        )
    return first


def _last_pieces(table: pa.Table, pieces: Array, keys: int) -> Array:
    """For each row the last piece that has its key."""
    names = table.column_names
    index = KeyIndex(pa.schema([table.schema.field(name) for name in names[:keys]]))
    numbers = [np.zeros(0, np.int64)]
    for batch in table.to_batches(max_chunksize=1 << 20):
        hashes = batch.column(keys).to_numpy(zero_copy_only=False)
        numbers.append(index.rows_of(batch.select(names[:keys]), hashes))
    number = np.concatenate(numbers)
    last = np.zeros(len(index), np.int64)
    last[number] = pieces  # which rise: of several the last one is written last
    return last[number]


def _purged_later(chain: Sequence[Stored]) -> Array:
    """For each piece until when the pieces behind it have purged."""
    times = np.array([*(one.purged_until for one in chain[1:]), MIN_WATERMARK], np.int64)
    return np.maximum.accumulate(times[::-1])[::-1]


def _succession(pieces: Sequence[pa.Table], keys: int) -> tuple[Array, Array]:
    """For each key its last row, and for each row the one that has its key before, -1 for none: rows of all pieces."""
    index = KeyIndex(pa.schema(list(pieces[0].schema)[:keys]))
    last = np.zeros(0, np.int64)
    earlier = np.full(sum(piece.num_rows for piece in pieces), -1)
    at = 0
    for piece in pieces:  # each has a key once
        for batch in piece.to_batches(max_chunksize=1 << 20):
            columns = batch.select(batch.schema.names[:keys])
            rows = index.rows_of(columns, batch.column(keys).to_numpy(zero_copy_only=False))
            if len(index) > len(last):
                last = np.concatenate([last, np.full(len(index) - len(last), -1)])
            earlier[at : at + batch.num_rows] = last[rows]
            last[rows] = np.arange(at, at + batch.num_rows)
            at += batch.num_rows
    return last, earlier


def _undone(
    found: FrozenPieces, table: pa.Table, rows: Array, earlier: Array, places: _Places
) -> Iterator[pa.RecordBatch]:
    """Some rows, in another order, with the whole value where there is a difference. found, table: all rows."""
    payloads, bases = table.column(PAYLOAD), table.column(BASE)
    is_whole = pc.is_null(bases).to_numpy()[rows]
    yield from found.each(rows[is_whole])
    column = table.schema.get_field_index(PAYLOAD)

    def take(diffs: Array) -> pa.RecordBatch:
        whole = pa.array([undone(payloads, bases, earlier, row, places.name_of) for row in diffs.tolist()], pa.binary())
        if isinstance(whole, pa.ChunkedArray):
            raise pa.ArrowInvalid("the values are more than one array can hold")
        return found.take(diffs).set_column(column, PAYLOAD, whole)

    diffs = rows[~is_whole]
    for start in range(0, len(diffs), _DIFFS_AT_ONCE):
        yield from fitting(take, diffs[start : start + _DIFFS_AT_ONCE])


class _Places:
    """Which piece of a chain a row is in, of the rows of all pieces."""

    def __init__(self, chain: Sequence[Stored]) -> None:
        self._chain = chain
        self._ends = np.cumsum([sum(batch.num_rows for batch in one.batches) for one in chain])

    def name_of(self, row: int) -> str:
        """The piece's name."""
        return self._chain[int(np.searchsorted(self._ends, row, "right"))].where


def _alike(one: Stored, has_diffs: bool) -> pa.Table:
    """A piece with the columns that all of them have."""
    table = pa.Table.from_batches(one.batches, one.schema)
    if not one.is_increment:
        table = table.append_column(pa.field(DELETED, pa.bool_()), pa.array(np.zeros(table.num_rows, np.bool_)))
    if has_diffs and BASE not in table.column_names:
        place = table.num_columns - 1
        table = table.add_column(place, pa.field(BASE, pa.int64()), pa.nulls(table.num_rows, pa.int64()))
    return table
