"""A full snapshot and its increments made into one: the last word on every key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taskmanager.state.keys import KeyIndex
from taskmanager.state.stored import DELETED, Stored

Array = Any  # numpy.ndarray


def latest(chain: Sequence[Stored], keys: int) -> Stored:
    """What the pieces of a chain come to. chain: the full one, then increments, in order; keys: number of key columns.

    Of a key that is in several pieces the last one counts, and a key that was deleted last is not there.
    """
    first = chain[0]
    if len(chain) == 1:
        return first
    table = pa.concat_tables([_with_deleted(one) for one in chain]).combine_chunks()
    index = KeyIndex(pa.schema(list(first.schema)[:keys]))
    names = table.column_names
    last = np.zeros(0, np.int64)
    at = 0
    for batch in table.to_batches(max_chunksize=1 << 20):
        rows = index.rows_of(batch.select(names[:keys]), batch.column(keys).to_numpy(zero_copy_only=False))
        if len(index) > len(last):
            last = np.concatenate([last, np.zeros(len(index) - len(last), np.int64)])
        last[rows] = np.arange(at, at + batch.num_rows)  # of several the last one is written last
        at += batch.num_rows
    kept = table.take(pa.array(np.sort(last)))
    kept = kept.filter(pc.invert(kept.column(DELETED))).drop_columns([DELETED])
    return Stored(first.schema, first.partial_schema, tuple(kept.combine_chunks().to_batches()))


def deletions(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of an increment that say that keys are gone. keys: key columns and `__hash`; schema: of the increment."""
    missing = [pa.nulls(keys.num_rows, field.type) for field in list(schema)[keys.num_columns : -1]]
    gone = pa.array(np.ones(keys.num_rows, np.bool_))
    return pa.Table.from_arrays([*keys.columns, *missing, gone], schema=schema)


def _with_deleted(one: Stored) -> pa.Table:
    table = pa.Table.from_batches(one.batches, one.schema)
    if one.is_increment:
        return table
    return table.append_column(pa.field(DELETED, pa.bool_()), pa.array(np.zeros(table.num_rows, np.bool_)))
