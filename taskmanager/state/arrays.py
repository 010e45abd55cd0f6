"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Array = Any  # numpy.ndarray


def numpy_of(batch: pa.RecordBatch, name: str) -> Array:
    """A column by its name."""
    return batch.column(name).to_numpy(zero_copy_only=False)


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
