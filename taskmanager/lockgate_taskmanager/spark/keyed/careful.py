"""Calls a process function on records of which some fail. Runs in Spark's Python workers, like `runner`.

out: that of `runner`, and batches of FAILED: the number of a record that the function failed on, with the error
A failed call leaves the state and the timers of its key unchanged, and emits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from lockgate_taskmanager.spark.functions.rows import UnreadableRecord
from lockgate_taskmanager.spark.keyed.runner import Runner, array_of, flushed
from lockgate_taskmanager.spark.outages import is_outage
from lockgate_taskmanager.spark.raised import raised

NUMBER, ERROR = "__lockgate_failed", "__lockgate_error"
FAILED = pa.schema([(NUMBER, pa.int64()), (ERROR, pa.string())])


class Noted(NamedTuple):
    """How a call has found its key. rows: of the output so far; numbers: of each state in columns."""

    rows: int
    content: dict[str, Any]
    numbers: list[tuple[Any, int]]
    event: list[int]
    wall: list[int]
    is_changed: bool
    has_other_timers: bool


class CarefulRunner(Runner):
    """One function over the batches of one task."""

    def __init__(self, function: Any, *about: Any) -> None:
        """about: as for Runner."""
        super().__init__(function, *about)
        self._careless = function
        self._function = self  # Runner's calls are redirected here
        self._calls = 0
        self._failed: list[tuple[int, str]] = []

    def process(self, context: Any, row: dict[str, Any]) -> None:
        """Processes a record; its output is held here."""
        number, self._calls = self._calls, self._calls + 1
        noted = self._noted()
        try:
            self._emit(self._careless.process(context, row), row)
            for column, field in zip(self._out, self._result, strict=True):
                array_of(column[noted.rows :], field)
        except Exception as error:  # the author's code
            if is_outage(error):
                raise
            self._undo(noted)
            self._failed.append((number, raised(error)))

    def _refuse(self, record: UnreadableRecord) -> None:
        self._failed.append((self._calls, record.reason))
        self._calls += 1

    def on_timer(self, context: Any, timer: Any) -> Any:
        """Not a record: an error fails the batch."""
        return self._careless.on_timer(context, timer)

    def _noted(self) -> Noted:
        timers, cells = self._timers, self._cells
        content = {
            name: found.copy() if isinstance(found, list | dict) else found for name, found in cells.content.items()
        }
        numbers = [(state.column[cells.row], state.expiries[cells.row]) for state in self._numbers.values()]
        return Noted(
            len(self._causes),
            content,
            numbers,
            list(timers.event),
            list(timers.wall),
            cells.is_changed,
            timers.is_changed,
        )

    def _undo(self, noted: Noted) -> None:
        for column in (*self._out, self._causes, self._keys_of_rows):
            del column[noted.rows :]
        cells = self._cells
        cells.content, cells.is_changed = noted.content, noted.is_changed
        for state, entry in zip(self._numbers.values(), noted.numbers, strict=True):
            state.column[cells.row], state.expiries[cells.row] = entry
        self._timers.event, self._timers.wall, self._timers.is_changed = noted.event, noted.wall, noted.has_other_timers

    def _flush(self) -> Iterator[pa.RecordBatch]:
        yield from super()._flush()
        yield from flushed(self._failed, FAILED)
