"""A column of values of which some are stored as differences from earlier snapshots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lockgate_taskmanager.state.format.difference import applied, difference, mark
from lockgate_taskmanager.task.program import StateUnreadable

Array = Any  # numpy.ndarray


@dataclass(frozen=True, slots=True)
class DiffColumn:
    """values: bytes or None, as stored; bases: int64, NULL for a complete value.

    size_bytes: of all values as stored; diff_values: number of differences; saved_bytes: how much they save.
    """

    values: Array
    bases: pa.Array
    size_bytes: int
    diff_values: int
    saved_bytes: int


def encoded(before: Array, after: Array, most_bytes: int | None) -> DiffColumn | None:
    """The difference of each value, or the value if a difference does not pay. before, after: bytes or None, by row.

    Returns None, early, when the total exceeds `most_bytes`.
    """
    values = after.copy()
    bases: list[int | None] = [None] * len(after)
    size = diffs = saved = 0
    for row, (old, new) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        if not new:
            continue
        made = difference(old, new) if old else None
        if made is not None:
            values[row], bases[row] = made, mark(old)
            diffs += 1
            saved += len(new) - len(made)
        size += len(values[row])
        if most_bytes is not None and size > most_bytes:
            return None
    return DiffColumn(values, pa.array(bases, pa.int64()), size, diffs, saved)


def undone(values: Any, bases: Any, earlier: Array, row: int, name_of: Callable[[int], str]) -> bytes:
    """The complete value of one row. Raises StateUnreadable when a difference does not fit the preceding value.

    values, bases: concatenated columns of all pieces of a chain; earlier: for each row the preceding row of its key, -1
    for none; name_of: the name of a row's piece.
    """
    steps = []
    while row >= 0 and (base := bases[row].as_py()) is not None:
        steps.append((row, base))
        row = int(earlier[row])
    value: bytes | None = values[row].as_py() if row >= 0 else None
    for step, base in reversed(steps):
        try:
            if value is None or mark(value) != base:
                raise ValueError("they were computed from a different state")
            value = applied(value, values[step].as_py())
        except ValueError as error:
            raise StateUnreadable(
                f"the differences in the state file {name_of(step)} do not fit: {error}; restore from another"
                " checkpoint"
            ) from error
    assert value is not None  # a row without a base has its value
    return value
