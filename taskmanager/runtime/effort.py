"""How much a subtask has done, and how long its operators took for it: what tells a slow place from much to do."""

from __future__ import annotations

import time

import pyarrow as pa
from lockgate_proto.messages import SubtaskEffort

from taskmanager.task.program import Batch, Poll, SubtaskProgram


class EffortMeter:
    """Calls a program, and takes the time of each batch that had records in it. On the subtask's thread.

    The first one is left out: it pays for the plans. Event time that fires windows is, too: what that takes goes by
    what they hold, not by records that came.
    """

    def __init__(self) -> None:
        self.total: SubtaskEffort | None = None  # replaced whole, so that any thread may read it
        self._is_first = True

    def poll(self, program: SubtaskProgram) -> Poll:
        """As SubtaskProgram.poll."""
        started_ns = time.monotonic_ns()
        polled = program.poll()
        if isinstance(polled, Batch):
            self._note(polled.read_rows, polled.read_bytes, started_ns)
        return polled

    def process(self, program: SubtaskProgram, source_vertex: str, table: pa.Table) -> Batch:
        """As SubtaskProgram.process."""
        started_ns = time.monotonic_ns()
        batch = program.process(source_vertex, table)
        self._note(table.num_rows, table.nbytes, started_ns)
        return batch

    def _note(self, records: int, size_bytes: int, started_ns: int) -> None:
        if not records:
            return
        if self._is_first:
            self._is_first = False
            return
        took_us = max(1, (time.monotonic_ns() - started_ns) // 1_000)
        before = self.total or SubtaskEffort(quickest_us=took_us)
        self.total = SubtaskEffort(
            busy_us=before.busy_us + took_us,
            batches=before.batches + 1,
            records=before.records + records,
            size_bytes=before.size_bytes + size_bytes,
            quickest_us=min(before.quickest_us, took_us),
        )
