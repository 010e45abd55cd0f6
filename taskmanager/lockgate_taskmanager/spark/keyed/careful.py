"""Calls a process function on records of which some fail. Runs in Spark's Python workers, like `runner`.

out: that of `runner`, and batches of FAILED: the number of a record that the function failed on, with the error
A failed call leaves the state and the timers of its key unchanged, and emits nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lockgate_taskmanager.spark.functions.rows import UnreadableRecord
from lockgate_taskmanager.spark.keyed.runner import Runner, array_of, flushed
from lockgate_taskmanager.spark.outages import is_outage
from lockgate_taskmanager.spark.raised import raised

NUMBER, ERROR = "__lockgate_failed", "__lockgate_error"
FAILED = pa.schema([(NUMBER, pa.int64()), (ERROR, pa.string())])


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
        undo = self._noted()
        try:
            self._emit(self._careless.process(context, row), row)
            for column, field, start in zip(self._out, self._result, undo[0], strict=True):
                array_of(column[start:], field)
        except Exception as error:  # the author's code
            if is_outage(error):
                raise
            self._undo(*undo)
            self._failed.append((number, raised(error)))

    def _refuse(self, record: UnreadableRecord) -> None:
        self._failed.append((self._calls, record.reason))
        self._calls += 1

    def on_timer(self, context: Any, timer: Any) -> Any:
        """Not a record: an error fails the batch."""
        return self._careless.on_timer(context, timer)

    def _noted(self) -> tuple[list[int], dict[str, Any], list[int], list[int], bool, bool]:
        content = {
            name: found.copy() if isinstance(found, list | dict) else found
            for name, found in self._cells.content.items()
        }
        timers = self._timers
        lengths = [len(column) for column in self._out]
        return lengths, content, list(timers.event), list(timers.wall), self._cells.is_changed, timers.is_changed

    def _undo(
        self,
        lengths: list[int],
        content: dict[str, Any],
        event: list[int],
        wall: list[int],
        cells_changed: bool,
        timers_changed: bool,
    ) -> None:
        for column, length in zip(self._out, lengths, strict=True):
            del column[length:]
        for collected in (self._causes, self._keys_of_rows):
            del collected[lengths[0] :]
        self._cells.content, self._cells.is_changed = content, cells_changed
        self._timers.event, self._timers.wall, self._timers.is_changed = event, wall, timers_changed

    def _flush(self) -> Iterator[pa.RecordBatch]:
        yield from super()._flush()
        yield from flushed(self._failed, FAILED)
