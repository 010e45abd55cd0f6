"""Before-images of changed values, kept as long as an increment may build on the snapshot that holds them.

    snapshot 1 --changes--> snapshot 2 --changes--> now
            [layer of 1    ][layer of 2           ]

The layer of a snapshot holds the value in that snapshot of each row that changed before the next one. So the value of
a row in snapshot 1 is that of the first layer from 1 on that has the row; if none has, the row has not changed.
Recording a change costs in proportion to the change, and copies no bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any  # numpy.ndarray
MOST_FOLD = 2
"""Before images take at most this many times the space of the values themselves."""

_ROW_BYTES = 64  # that a value takes beside its bytes, with its place in a layer


@dataclass(frozen=True, slots=True)
class Before:
    """Rows that have changed between two snapshots, rising, each once, and what they were. values: bytes or None."""

    rows: Array
    values: Array


@dataclass(slots=True)
class _Layer:
    """rows: pieces, without a row in two of them; values: in the same pieces."""

    version: int
    rows: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    size_bytes: int = 0


class Layers:
    """The layers between two snapshots. Can be read on any thread.

    Also takes the layers that are no longer needed: freeing a million values takes a while, so it is done in `before`,
    in the background, and not when the snapshot is taken, which would delay the stream.
    """

    def __init__(self, layers: Iterable[_Layer], over: list[_Layer]) -> None:
        self._layers = tuple(layers)
        self._over = over

    def before(self) -> Before:
        """The rows that changed since the base, with their values in it. Costs in proportion to those rows."""
        self._over.clear()
        rows = [piece for layer in self._layers for piece in layer.rows]
        values = [piece for layer in self._layers for piece in layer.values]
        if not rows:
            return Before(np.zeros(0, np.int64), np.zeros(0, np.object_))
        found, first = np.unique(np.concatenate(rows), return_index=True)  # of several the first, which is the oldest
        return Before(found, np.concatenate(values)[first])


class BeforeImages:
    """Before images of the values of one store. Used from the subtask's own thread."""

    def __init__(self) -> None:
        self.live_bytes = 0  # of the values as they are now
        self._live_rows = 0
        self._layers: deque[_Layer] = deque()  # oldest first
        self._bytes = 0

    def begin(self, version: int) -> None:
        """A snapshot of this version was taken, and later ones may build on it."""
        self._layers.append(_Layer(version))

    def note(self, rows: Array, before: Array, after: Array, changed_at: Array) -> None:
        """Values are about to change. rows: distinct; before, after: bytes or None.

        changed_at: the version in which each was changed last.
        """
        self.live_bytes += _size(after) - _size(before)
        self._live_rows += _count(after) - _count(before)
        if self._layers:
            self._keep(rows, before, changed_at <= self._layers[-1].version)
        while self._layers and self._bytes > MOST_FOLD * (self.live_bytes + self._live_rows * _ROW_BYTES):
            self._drop()

    def since(self, version: int) -> Layers | None:
        """The layers from that snapshot until now, for a snapshot that builds on it; None when they are not known.

        Call `begin` before the next change. No later snapshot builds on an older one than this one does.
        """
        over = []
        while self._layers and self._layers[0].version < version:
            over.append(self._drop())
        if not self._layers or self._layers[0].version != version:
            return None
        return Layers(self._layers, over)

    def clear(self) -> None:
        """Rows were renumbered: discards all before-images."""
        self._layers.clear()
        self._bytes = 0

    def _keep(self, rows: Array, values: Array, is_first: Array) -> None:
        """is_first: mask of the rows that change for the first time since the newest layer began."""
        layer, values = self._layers[-1], values[is_first]
        layer.rows.append(rows[is_first])
        layer.values.append(values)
        size = _size(values) + len(values) * _ROW_BYTES
        layer.size_bytes += size
        self._bytes += size

    def _drop(self) -> _Layer:
        layer = self._layers.popleft()
        self._bytes -= layer.size_bytes
        return layer


def _size(values: Array) -> int:
    return sum(map(len, filter(None, values.tolist())))


def _count(values: Array) -> int:
    return int(np.count_nonzero(values != None))  # noqa: E711  element by element
