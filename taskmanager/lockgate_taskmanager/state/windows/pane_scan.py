"""Reads several ranges of a database side by side and groups the rows whose names have equal suffixes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

Row = tuple[bytes, bytes]
_LEAST_ROWS = 64  # of one range at a time


class _Side:
    """One range: the rows that were read and not yet returned."""

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix
        self.is_at_end = False
        self._rows: list[Row] = []
        self._names: list[bytes] = []  # of `_rows`, without the prefix
        self._next = prefix

    def fill(self, read: Callable[[bytes, bytes, int], list[Row]], end: bytes, limit: int) -> None:
        """Reads more rows when none are left."""
        if self._rows or self.is_at_end:
            return
        self._rows = read(self._next, end, limit)
        self._names = [name[len(self.prefix) :] for name, _ in self._rows]
        self.is_at_end = len(self._rows) < limit
        if self._rows:
            self._next = self._rows[-1][0] + b"\0"

    @property
    def last(self) -> bytes:
        """The last name that was read, without the prefix."""
        return self._names[-1]

    def take(self, until: bytes | None) -> list[Row]:
        """The rows up to and including a name; None: all."""
        count = len(self._rows) if until is None else bisect_right(self._names, until)
        taken = self._rows[:count]
        del self._rows[:count], self._names[:count]
        return taken


def side_by_side(
    read: Callable[[bytes, bytes, int], list[Row]], ranges: Sequence[tuple[bytes, bytes]], at_once: int
) -> Iterator[list[Row]]:
    """Rows in portions of about `at_once`; rows with equal name suffixes are in the same portion.

    read: see BarrierBufferedDatabase.rows; ranges: the prefix of all names in it, and the first name behind it.
    """
    sides = [(_Side(prefix), end) for prefix, end in ranges]
    limit = max(_LEAST_ROWS, at_once // max(1, len(sides)))
    while sides:
        for side, end in sides:
            side.fill(read, end, limit)
        until = min((side.last for side, _ in sides if not side.is_at_end), default=None)
        portion = [row for side, _ in sides for row in side.take(until)]
        sides = [(side, end) for side, end in sides if not side.is_at_end] if until is None else sides
        if portion:
            yield portion
