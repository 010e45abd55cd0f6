"""Calls a function with the records of each window. Runs in Spark's Python workers.

in: the records' columns, and INPUT; the records of one call are adjacent
out: the columns of the result
"""

from __future__ import annotations

import pickle
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from lockgate_taskmanager.spark.functions.rows import (
    UNREADABLE,
    Record,
    Results,
    UnreadableRecord,
    WrongResult,
    careful_records,
    described,
    records_of,
    shown,
)
from lockgate_taskmanager.spark.keyed.ipc_batches import batches_of
from lockgate_taskmanager.spark.raised import mark

CALL, START, END = "__call", "__start", "__end"
INPUT = pa.schema([(CALL, pa.int64()), (START, pa.int64()), (END, pa.int64())])
_ROWS_AT_ONCE = 10_000  # of the output
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bounds:
    """A window, as the function sees it: `lockgate.TimeWindow`."""

    start_ms: int
    end_ms: int

    @property
    def start(self) -> datetime:
        """In UTC."""
        return _EPOCH + timedelta(milliseconds=self.start_ms)

    @property
    def end(self) -> datetime:
        """The first moment behind it, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.end_ms)

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M:%S.%f} to {self.end:%Y-%m-%d %H:%M:%S.%f} UTC"


@dataclass(frozen=True)
class Numbers:
    """A count window, as the function sees it: `lockgate.CountWindow`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"of records {self.start} to {self.end}"


Window = Bounds | Numbers


class WindowRunner:
    """One function over the batches of one task."""

    def __init__(
        self,
        function: Callable[..., Any],
        keys: tuple[str, ...],
        records: tuple[str, ...],
        result: pa.Schema,
        window: Callable[[int, int], Window] = Bounds,
    ) -> None:
        """keys, records: the columns of the records; result: the columns that the function emits.

        window: makes what the function sees of a window, from its start and end.
        """
        self._function, self._keys, self._records = function, keys, records
        self._records_of, self._results = records_of(records), Results(result)
        self._rows: list[tuple[Any, ...]] = []  # emitted
        self._firsts: list[int] = []  # of each call with output, the first of its rows
        self._called: list[tuple[Any, Window]] = []  # its key and window
        self._call: int | None = None
        self._given: list[Record] = []  # of the current call
        self._window_of = window
        self._window = window(0, 0)

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for Spark."""
        for batch in batches:
            given = batch.select(list(self._records))
            try:
                records = self._records_of(given)
            except UNREADABLE:
                unreadable = (record for record in careful_records(given) if isinstance(record, UnreadableRecord))
                raise next(unreadable).error() from None
            about = (batch.column(name).to_pylist() for name in INPUT.names)
            for row, call, start, end in zip(records, *about, strict=True):
                if call != self._call:
                    self._finish()
                    self._call, self._window = call, self._window_of(start, end)
                    if len(self._rows) >= _ROWS_AT_ONCE:
                        yield from self._flush()
                self._given.append(row)
        self._finish()
        yield from self._flush()

    def _finish(self) -> None:
        """Calls the function with the records of one window."""
        if not self._given:
            return
        records, self._given = self._given, []
        first = records[0]
        key = first[self._keys[0]] if len(self._keys) == 1 else tuple(first[name] for name in self._keys)
        self._firsts.append(len(self._rows))
        self._called.append((key, self._window))
        number = 0
        try:
            emitted = self._function(key, self._window, records)
            for result in _each(emitted):
                number += 1
                self._rows.append(self._results.taken(result))
        except WrongResult as error:
            self._converted()  # an earlier record may be wrong, too
            raise self._wrong(error, key, self._window, number) from None
        except Exception as error:  # the author's code
            mark(error)
            raise

    def _flush(self) -> Iterator[pa.RecordBatch]:
        yield from batches_of(pa.Table.from_batches(self._converted(), self._results.schema))
        for collected in (self._rows, self._firsts, self._called):
            collected.clear()

    def _converted(self) -> list[pa.RecordBatch]:
        """What was emitted. Raises TypeError for the first record that does not fit."""
        try:
            return self._results.batches(self._rows)
        except WrongResult as error:
            place = bisect_right(self._firsts, error.index) - 1
            raise self._wrong(error, *self._called[place], error.index - self._firsts[place] + 1) from None

    def _wrong(self, error: WrongResult, key: Any, window: Window, number: int) -> TypeError:
        """The first record that shows the mistake. number: of the record among those of the call, 0: of none."""
        record = f", record {number} of its output" if number else ""
        return TypeError(f"the function of windows {error} (key {shown(key)}, window {window}{record})")


def _each(emitted: Any) -> Iterator[Any]:
    """The records that a call has emitted. Raises WrongResult."""
    if emitted is None:
        return
    if isinstance(emitted, Mapping | tuple):
        yield emitted
        return
    if isinstance(emitted, str | bytes) or not hasattr(emitted, "__iter__"):
        raise WrongResult(
            f"returned {described(emitted)}; it has to return a dict, a tuple, or a list of them, or yield"
        )
    yield from emitted


def calling(
    function: bytes,
    keys: tuple[str, ...],
    records: tuple[str, ...],
    result: pa.Schema,
    window: Callable[[int, int], Window] = Bounds,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for Spark. function: pickled; other arguments as for WindowRunner."""

    def call(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return WindowRunner(pickle.loads(function), keys, records, result, window).run(batches)

    return call
