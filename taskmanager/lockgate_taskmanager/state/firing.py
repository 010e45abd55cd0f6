"""Emits the due results of a store in portions, because they may not fit into memory.

    advance --> portion --> portion --> ... --> last portion
                        ^ settled: a snapshot may be taken here

Rows are emitted key group by key group. The state is settled where a portion ends with a key group: the finished groups
have reached the new event time, the others have not (see EventClock.come_to). So a snapshot holds just the results that
were not emitted yet, and a restored store emits them when event time gets there again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.state.event_clock import EventClock

Array = Any  # numpy.ndarray
ROWS_AT_ONCE = 1 << 17  # put out together, or somewhat more


@dataclass(frozen=True, slots=True)
class Portion:
    """Some due results. is_settled: a snapshot taken after it holds the rest; is_last: nothing follows."""

    rows: pa.Table
    is_settled: bool
    is_last: bool = False


class Firing:
    """The remaining portions. Used from the subtask's own thread."""

    _rest: Iterator[Portion] | None = None
    _portion_schema = pa.schema([])
    _is_settled = True

    @property
    def is_settled(self) -> bool:
        """Whether a snapshot may be taken now."""
        return self._is_settled

    @property
    def has_more(self) -> bool:
        """Whether there are, or may be, more portions."""
        return self._rest is not None

    def begin(self, portions: Iterator[Portion], schema: pa.Schema) -> pa.Table:
        """The first portion; an empty table when nothing is due. schema: of the rows."""
        assert self._rest is None, "what was due before is put out first"
        self._rest, self._portion_schema = portions, schema
        return self.go_on()

    def go_on(self) -> pa.Table:
        """The next portion; may be empty."""
        assert self._rest is not None, "there is more"
        portion = next(self._rest, None)
        if portion is None:
            portion = Portion(self._portion_schema.empty_table(), is_settled=True, is_last=True)
        self._is_settled = portion.is_settled or portion.is_last
        if portion.is_last:
            self._rest = None
        return portion.rows


class FiringInTime(Firing):
    """The part of `Fires` that emits results when event time advances. schema: of the results."""

    clock: EventClock
    schema: pa.Schema

    def advance(self, watermark_ms: int) -> pa.Table:
        """Advances event time to `watermark_ms`; returns the first portion of results. Raises DataError on overflow."""
        return self.begin(self._fires(max(watermark_ms, self.clock.now)), self.schema)

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        """The results due at that time. Leaves `clock` at that time."""
        raise NotImplementedError


def runs(owned: range, groups: Sequence[Array], most: int) -> list[range]:
    """Cuts key groups into ranges, in order, each with about `most` rows; a single group may have more.

    owned: all groups; groups: the group of each row, in any number of pieces.
    """
    counts = np.zeros(len(owned), np.int64)
    for some in groups:
        counts += np.bincount(some - owned.start, minlength=len(owned))
    found: list[range] = []
    start, held = owned.start, 0
    for group, count in zip(owned, counts.tolist(), strict=True):
        if held and held + count > most:
            found.append(range(start, group))
            start, held = group, 0
        held += count
    return [*found, range(start, owned.stop)]
