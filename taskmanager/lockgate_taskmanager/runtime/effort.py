"""How much a subtask has processed, and the time its operators needed: tells a slow machine from a large workload."""

from __future__ import annotations

import time

import pyarrow as pa
from lockgate_common.metrics.family import Histogram
from lockgate_proto.messages import OperatorCounters, SubtaskEffort

from lockgate_taskmanager.task.program import Batch, Poll, SubtaskProgram

COUNTERS_EVERY_MS = 100


class EffortMeter:
    """Calls a program and measures each batch that has records. On the subtask's thread.

    The first batch is excluded: it includes making the plans. So is event time that fires windows: its cost depends on
    the window contents, not on the records received.
    """

    def __init__(self) -> None:
        self.total: SubtaskEffort | None = None  # replaced as a whole, so that any thread may read it
        self.counters: tuple[OperatorCounters, ...] = ()  # as above, for each operator, as last noted
        self.is_behind = False
        """Whether the newest counters are not noted yet: `count` has to be called again, batch or not."""
        self.durations = Histogram()
        """Of the batches, in seconds."""
        self._is_first = True
        self._counted_ms = 0

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

    def count(self, program: SubtaskProgram, now_ms: int, is_forced: bool) -> None:
        """Notes the program's counters; unless forced, no more often than heartbeats are sent."""
        self.is_behind = not is_forced and now_ms - self._counted_ms < COUNTERS_EVERY_MS
        if not self.is_behind:
            self._counted_ms = now_ms
            self.counters = program.counters()

    def _note(self, records: int, size_bytes: int, started_ns: int) -> None:
        if not records:
            return
        if self._is_first:
            self._is_first = False
            return
        took_us = max(1, (time.monotonic_ns() - started_ns) // 1_000)
        self.durations.observe(took_us / 1e6)
        before = self.total or SubtaskEffort(quickest_us=took_us)
        self.total = SubtaskEffort(
            busy_us=before.busy_us + took_us,
            batches=before.batches + 1,
            records=before.records + records,
            size_bytes=before.size_bytes + size_bytes,
            quickest_us=min(before.quickest_us, took_us),
        )
