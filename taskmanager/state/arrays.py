"""Columns of Arrow tables as numpy arrays."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

Array = Any  # numpy.ndarray


def numpy_of(batch: pa.RecordBatch, name: str) -> Array:
    """A column by its name."""
    return batch.column(name).to_numpy(zero_copy_only=False)
