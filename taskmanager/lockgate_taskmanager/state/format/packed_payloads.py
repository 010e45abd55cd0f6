"""The packed payloads of many keys as columns: one for each of their states. See `packed` in `key_payload`.

Also used in Spark's Python workers, which need no installation of Lockgate: the module travels with the function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.state.format.key_payload import packed_head

Array = Any  # numpy.ndarray
NEVER = (1 << 63) - 1
_TYPES = {"q": np.int64, "d": np.float64, "?": np.bool_}
_STORED = {"q": "<i8", "d": "<f8", "?": "u1"}


class Unpacked(NamedTuple):
    """values, expiries: a list for each state, with None and 0 where a row has none; lasts: whether all expiries are 0.

    others: the payloads that are not packed so; None for those that are, and where there is none.
    """

    values: list[list[Any]]
    expiries: list[list[int]]
    lasts: bool
    others: list[bytes | None]


class Packed(NamedTuple):
    """Payloads of keys, and when the last state of each expires: NEVER if one does not."""

    payloads: pa.Array
    expiries: Array


class Packing:
    """Of some states, in their order."""

    def __init__(self, codes: Mapping[str, str]) -> None:
        """codes: of the values of each state, by name: of `struct`."""
        self.head = packed_head(codes)
        self._types = [_TYPES[code] for code in codes.values()]
        entries = ((f"value {index}", _STORED[code]) for index, code in enumerate(codes.values()))
        fields = [field for number, entry in enumerate(entries) for field in (entry, (f"expiry {number}", "<i8"))]
        self._layout = np.dtype([("head", "u1", (len(self.head),)), *fields])

    def read(self, payloads: pa.Array) -> Unpacked:
        """payloads: BINARY."""
        places, rows = self._packed_among(payloads)
        are_there = np.zeros(len(payloads), np.bool_)
        are_there[places] = True
        values = [rows[f"value {number}"].astype(kind) for number, kind in enumerate(self._types)]
        times = [rows[f"expiry {number}"] for number in range(len(self._types))]
        lasts = not any(map(np.any, times))
        return Unpacked(
            [_spread(column, are_there).to_pylist() for column in values],
            [[0] * len(payloads) if lasts else _spread(column, are_there).fill_null(0).to_pylist() for column in times],
            lasts,
            pc.if_else(pa.array(are_there), None, payloads).to_pylist(),
        )

    def written(
        self, columns: Sequence[Sequence[Any]], expiries: Sequence[Sequence[int]], places: Sequence[int]
    ) -> Packed:
        """The keys at some places of all columns, which have a value there."""
        rows = np.empty(len(places), self._layout)
        rows["head"] = np.frombuffer(self.head, np.uint8)
        first, last = np.full(len(places), NEVER), np.zeros(len(places), np.int64)
        for number, (column, times, kind) in enumerate(zip(columns, expiries, self._types, strict=True)):
            rows[f"value {number}"] = np.array([column[place] for place in places], kind)
            expiry = rows[f"expiry {number}"] = np.array([times[place] for place in places], np.int64)
            np.minimum(first, expiry, out=first)
            np.maximum(last, expiry, out=last)
        offsets = np.arange(len(places) + 1, dtype=np.int32) * self._layout.itemsize
        buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(rows.tobytes())]
        return Packed(pa.Array.from_buffers(pa.binary(), len(places), buffers), np.where(first == 0, NEVER, last))

    def _packed_among(self, payloads: pa.Array) -> tuple[Array, Array]:
        """The places of the payloads that are packed so, and these as rows of the layout."""
        are_long = pc.fill_null(pc.equal(pc.binary_length(payloads), self._layout.itemsize), False)
        places = np.flatnonzero(are_long)
        if not len(places):
            return places, np.empty(0, self._layout)
        long = payloads.filter(are_long)
        _, offsets, data = long.buffers()
        start = int(np.frombuffer(offsets, np.int32)[long.offset])
        rows = np.frombuffer(data, self._layout, len(long), start)
        are_packed = (rows["head"] == np.frombuffer(self.head, np.uint8)).all(axis=1)
        return (places, rows) if are_packed.all() else (places[are_packed], rows[are_packed])


def _spread(values: Array, are_there: Array) -> pa.Array:
    """NULL where there is none."""
    every = np.zeros(len(are_there), values.dtype)
    every[are_there] = values
    return pa.array(every, mask=~are_there, from_pandas=False)
