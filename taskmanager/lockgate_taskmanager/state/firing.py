"""What a store has to put out when time goes on, in portions: as much as is due may be more than memory holds.

    advance --> portion --> portion --> ... --> last portion
                        ^ settled: a snapshot may be taken here

Rows are put out by key group, one after the other. Where a portion ends with its key group the state is settled: the
groups that are done have come as far as event time has, the others have not (see EventClock.come_to). So a snapshot
holds just what is not put out yet, and who restores it puts that out when event time comes so far again.
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
    """Some of what is due. is_settled: a snapshot taken behind it holds the rest; is_last: there is certainly none."""

    rows: pa.Table
    is_settled: bool
    is_last: bool = False


class Firing:
    """What of the portions is still to come. Used from the subtask's own thread."""

    _rest: Iterator[Portion] | None = None
    _portion_schema = pa.schema([])
    _is_settled = True

    @property
    def is_settled(self) -> bool:
        """Whether a snapshot may be taken now."""
        return self._is_settled

    @property
    def has_more(self) -> bool:
        """Whether some of it is still to come, or may be."""
        return self._rest is not None

    def begin(self, portions: Iterator[Portion], schema: pa.Schema) -> pa.Table:
        """The first portion; an empty table where nothing is due. schema: of the rows."""
        assert self._rest is None, "what was due before is put out first"
        self._rest, self._portion_schema = portions, schema
        return self.go_on()

    def go_on(self) -> pa.Table:
        """The next portion, perhaps empty."""
        assert self._rest is not None, "there is more"
        portion = next(self._rest, None)
        if portion is None:
            portion = Portion(self._portion_schema.empty_table(), is_settled=True, is_last=True)
        self._is_settled = portion.is_settled or portion.is_last
        if portion.is_last:
            self._rest = None
        return portion.rows


class FiringInTime(Firing):
    """A store that has results when event time goes on, see Fires. schema: of these."""

    clock: EventClock
    schema: pa.Schema

    def advance(self, watermark_ms: int) -> pa.Table:
        """Event time has come to `watermark_ms`: the first portion of what is due. Raises DataError on overflow."""
        return self.begin(self._fires(max(watermark_ms, self.clock.now)), self.schema)

    def _fires(self, now_ms: int) -> Iterator[Portion]:
        """What is due at that time. Ends with `clock` there."""
        raise NotImplementedError


def runs(owned: range, groups: Sequence[Array], most: int) -> list[range]:
    """Cuts key groups into ranges, in order, with about `most` rows in each or, of a single group, more.

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
