"""What a job's sources had read, second by second, for the last minutes. Pure: time is passed in as monotonic ms."""

from __future__ import annotations

from array import array

from lockgate_proto.messages import ReadHistory

KEPT = 600
"""Moments: ten minutes."""

EVERY_MS = 1_000


class ReadRecorder:
    """The newest moments in two arrays of fixed size: 9.6 kB, however long the job runs."""

    def __init__(self) -> None:
        self._at_ms = array("q")
        self._totals = array("q")
        self._count = 0  # of all moments so far

    def note(self, total: int, now_ms: int) -> None:
        """total: records read so far; counts when the last moment was a second ago."""
        if self._count and now_ms - self._at_ms[(self._count - 1) % KEPT] < EVERY_MS:
            return
        if self._count < KEPT:
            self._at_ms.append(now_ms)
            self._totals.append(total)
        else:
            place = self._count % KEPT
            self._at_ms[place], self._totals[place] = now_ms, total
        self._count += 1

    def history(self, unix_offset_ms: int) -> ReadHistory:
        """From old to new. unix_offset_ms: to be added to monotonic milliseconds."""
        first = self._count % KEPT if self._count > KEPT else 0
        at_ms = (*self._at_ms[first:], *self._at_ms[:first])
        return ReadHistory(tuple(at + unix_offset_ms for at in at_ms), (*self._totals[first:], *self._totals[:first]))
