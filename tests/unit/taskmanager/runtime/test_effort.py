"""What counts as a subtask's effort."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa
import pytest
from lockgate_proto.messages import OperatorCounters
from lockgate_taskmanager.runtime import effort
from lockgate_taskmanager.runtime.effort import COUNTERS_EVERY_MS, EffortMeter
from lockgate_taskmanager.task.program import Batch, Idle, Poll, SubtaskProgram


class Worker:
    """A program whose next call takes so long and gives that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now_ns = 0
        monkeypatch.setattr(effort.time, "monotonic_ns", lambda: self._now_ns)
        self.meter = EffortMeter()

    def does(self, answer: Any, took_us: int) -> SubtaskProgram:
        def call(*_: Any) -> Any:
            self._now_ns += took_us * 1_000
            return answer

        self.poll = self.process = call
        return cast(SubtaskProgram, self)

    def read(self, answer: Poll, took_us: int) -> None:
        assert self.meter.poll(self.does(answer, took_us)) is answer

    def take(self, table: pa.Table, took_us: int) -> None:
        answer = Batch()
        assert self.meter.process(self.does(answer, took_us), "v", table) is answer


def test_batches_with_records_are_counted_from_the_second_on(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(monkeypatch)
    worker.read(Idle(5), 9_000)
    worker.read(Batch(), 9_000)  # a prologue
    worker.read(Batch(read_rows=5, read_bytes=50), 900_000)  # pays for the plans
    assert worker.meter.total is None
    worker.read(Batch(read_rows=10, read_bytes=100), 400)
    worker.read(Idle(5), 9_000)
    worker.read(Batch(read_rows=30, read_bytes=200), 300)
    worker.read(Batch(read_rows=20, read_bytes=100), 500)
    total = worker.meter.total
    assert total is not None
    assert (total.busy_us, total.batches, total.records, total.size_bytes, total.quickest_us) == (
        1_200,
        3,
        60,
        400,
        300,
    )


def test_counters_that_were_not_noted_with_their_batch_are_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted:
        records = 0

        def counters(self) -> tuple[OperatorCounters, ...]:
            return (OperatorCounters("o", self.records),)

    worker, counted = Worker(monkeypatch), Counted()
    meter, program = worker.meter, cast(SubtaskProgram, counted)
    meter.count(program, 1_000, is_forced=True)
    counted.records = 5
    meter.count(program, 1_000 + COUNTERS_EVERY_MS - 1, is_forced=False)
    assert (meter.is_behind, meter.counters[0].records_in) == (True, 0)
    meter.count(program, 1_000 + COUNTERS_EVERY_MS, is_forced=False)
    assert (meter.is_behind, meter.counters[0].records_in) == (False, 5)


def test_received_tables_are_measured_by_their_rows_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, table = Worker(monkeypatch), pa.table({"n": pa.array([1, 2, 3], pa.int64())})
    worker.take(table.slice(0, 0), 9_000)
    worker.take(table, 9_000)
    worker.take(table, 70)
    total = worker.meter.total
    assert total is not None
    assert (total.busy_us, total.batches, total.records, total.size_bytes) == (70, 1, 3, 24)
