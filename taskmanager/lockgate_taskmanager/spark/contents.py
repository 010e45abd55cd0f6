"""The records of a batch's content, individually addressable: any of them can be passed to a plan as a batch.

For text a record ends at a newline, or, in CSV with newlines in values, at a newline outside quotes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lockgate_taskmanager.spark.framing import quoted_records
from lockgate_taskmanager.spark.leaf import Content, Form, LeafSpec

Positions = Any  # numpy.ndarray
Spans = Sequence[tuple[int, int]]


class Records(Protocol):
    """A batch's content. Records are numbered from 0."""

    @property
    def count(self) -> int:
        """The number of records."""
        ...

    def of(self, spans: Spans) -> Content:
        """The content of some records. spans: start and end of each range, not empty, in order."""
        ...


def records_of(content: Content, spec: LeafSpec) -> Records:
    """The records of a batch for a leaf like `spec`."""
    if isinstance(content, pa.Table):
        return Rows(content)
    text = b"".join(content)
    if spec.form is Form.RANGES:
        return Ranges(text)
    quoted = quoted_records(dict(spec.options)) if spec.form is Form.CSV else None
    return Pieces(text, _newlines(text) if quoted is None else quoted.ends(text))


def without(numbers: Iterable[int], first: int, end: int) -> list[tuple[int, int]]:
    """The ranges of records first .. end - 1 without some. numbers: those to leave out, in order."""
    spans = []
    for number in (*numbers, end):
        if first < number:
            spans.append((first, number))
        first = number + 1
    return spans


class Rows:
    """Records that are the rows of a table."""

    def __init__(self, table: pa.Table) -> None:
        self._table, self.count = table, table.num_rows

    def of(self, spans: Spans) -> Content:
        parts = [self._table.slice(first, end - first) for first, end in spans]
        return pa.concat_tables([self._table.slice(0, 0), *parts])


class Pieces:
    """Records that are lines of text."""

    def __init__(self, text: bytes, ends: Positions) -> None:
        """ends: the position of the newline after each record; the last one may have none."""
        self._text = memoryview(text)
        bounds = np.concatenate(([0], np.asarray(ends, np.int64) + 1))
        self._bounds = bounds if bounds[-1] == len(text) else np.append(bounds, len(text))
        self.count = len(self._bounds) - 1

    def of(self, spans: Spans) -> Content:
        return [bytes(self._text[self._bounds[first] : self._bounds[end]]) for first, end in spans]


class Ranges:
    """Records that are the rows that lines `partition,first,last` stand for."""

    def __init__(self, text: bytes) -> None:
        lines = [tuple(map(int, line.split(b","))) for line in text.splitlines() if line]
        self._lines = lines
        self._starts = np.cumsum([0, *(last - first + 1 for _, first, last in lines)])
        self.count = int(self._starts[-1])

    def of(self, spans: Spans) -> Content:
        return [b"%d,%d,%d\n" % line for first, end in spans for line in self._within(first, end)]

    def _within(self, first: int, end: int) -> Iterable[tuple[int, int, int]]:
        for (partition, begin, last), start in zip(self._lines, self._starts, strict=False):
            low, high = max(begin, begin + first - start), min(last, begin + end - 1 - start)
            if low <= high:
                yield partition, int(low), int(high)


def _newlines(text: bytes) -> Positions:
    return np.flatnonzero(np.frombuffer(text, np.uint8) == ord("\n"))
