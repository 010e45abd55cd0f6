"""Columns of Arrow tables as numpy arrays, and arrays made of these."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

Array = Any  # numpy.ndarray


def numpy_of(batch: pa.RecordBatch, name: str) -> Array:
    """A column by its name."""
    return batch.column(name).to_numpy(zero_copy_only=False)


def require_types(found: Sequence[pa.DataType], wanted: Sequence[pa.DataType]) -> None:
    """Raises TypeError where stored columns have other types than the state that they are to become."""
    for stored, own in zip(found, wanted, strict=True):
        if stored != own:
            raise TypeError(f"it has a column of type {stored} where the state has {own}")


def require_values(batch: pa.RecordBatch, *names: str) -> None:
    """Raises ValueError where a stored column has a NULL, and should not."""
    for name in names:
        if batch.column(name).null_count:
            raise ValueError(f"its column {name} has a NULL")


def distinct(values: Array) -> Array:
    """Each integer once, in order. np.unique puts them into a hash table, which takes up to ten times as long."""
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


def by_value(values: Array, *others: Array) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """The distinct values, in order, each with the corresponding elements of the other arrays, in their order."""
    if not len(values):
        return
    order = np.argsort(values, kind="stable")
    present, starts = np.unique(values[order], return_index=True)
    pieces = zip(*(np.split(other[order], starts[1:]) for other in others), strict=True)
    yield from zip(present.tolist(), pieces, strict=True)


def expanded(starts: Array, counts: Array, at_once: int) -> Iterator[tuple[Array, Array]]:
    """For each i the numbers from starts[i] on, counts[i] of them: pairs (number, i), about `at_once` at a time."""
    bounds = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = int(bounds[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(bounds, done + at_once, "right")))
        here = counts[begin:end]
        which = np.repeat(np.arange(begin, end), here)
        within = np.arange(len(which)) - np.repeat(bounds[begin:end] - here - done, here)
        yield starts[which] + within, which
        begin = end


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table as one batch. Its text has to fit: see `pieces.cut`. Raises ValueError where it does not."""
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in table.schema], schema=table.schema)
    raise ValueError(
        f"{table.num_rows} rows have {table.nbytes >> 20} MiB, which one batch cannot hold: cut them before"
    )
