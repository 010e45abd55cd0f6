"""Processing time of process functions and deduplication, when the clock was ahead and jumps back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import StateBackend
from lockgate_taskmanager.spark.keyed import runner
from lockgate_taskmanager.spark.keyed.process import Made, ProcessStore, Visits
from lockgate_taskmanager.state.factory import DeduplicateStores, StoreFactory
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.rows.row_store import RowSpec
from lockgate_taskmanager.state.scratch import ScratchFolder

RECORDS = pa.schema([("k", pa.string()), (HASH, pa.int64())])
SPEC = RowSpec("once", "deduplicate", ("k",), 128, range(128))
HOUR = 3_600_000
NOON = 1_800_000_000_000


@pytest.fixture
def rows(tmp_path: Path) -> StoreFactory:
    return StoreFactory(StateBackend(), ScratchFolder(tmp_path / "work", "state-"))


def record(key: str) -> pa.Table:
    return pa.table([[key], [5]], schema=RECORDS)


def test_deduplication_forgets_at_half_speed_and_says_so(rows: StoreFactory, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    store = DeduplicateStores(rows, SPEC, ttl_ms=1_000).fresh(RECORDS)
    store.tick(NOON + HOUR)
    assert store.merge(record("a")).changed.num_rows == 1
    for later, is_forgotten in ((0, False), (1_990, False), (2_000, True)):
        store.tick(NOON + later)
        assert bool(store.merge(record("a")).changed.num_rows) is is_forgotten, later
    assert "operator 'once': the clock is 3600.0 s behind processing time" in caplog.text


class Timers:
    """Stands for the plan: each record sets a timer in a second."""

    schema = pa.schema([("fired", pa.int64())])

    def compile(self, records: pa.Schema, *, by_element: bool = False) -> None:
        pass

    def run(self, visits: Visits, records: pa.Table) -> Made:
        is_record, never = bool(records.num_rows), runner.NEVER
        wall = visits.now_ms + 1_000 if is_record else never
        state = [[0], [b"state" if is_record else None], [never], [wall], [never]]
        fired = pa.table([[] if is_record else [visits.now_ms]], schema=self.schema)
        return Made(fired, pa.table(state, schema=runner.ROWS), runner.ELEMENTS.empty_table())


def test_timers_fire_at_half_speed_and_the_subtask_wakes_for_them(
    rows: StoreFactory, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    plan: Any = Timers()
    store = ProcessStore(SPEC, rows.fresh(SPEC, RECORDS), plan)
    assert store.tick(NOON + HOUR) is None
    store.merge(record("a"))
    assert store.wakes_at() == NOON + HOUR + 1_000
    assert store.tick(NOON) is None
    assert store.wakes_at() == NOON + 2_000
    assert store.tick(NOON + 1_990) is None
    fired = store.tick(NOON + 2_000)
    assert fired is not None
    assert fired.to_pydict() == {"fired": [NOON + HOUR + 1_000]}
    assert "operator 'once': the clock is 3600.0 s behind processing time" in caplog.text
