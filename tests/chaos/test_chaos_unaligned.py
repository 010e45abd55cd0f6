"""A task manager dies while every queue is full and snapshots hold what is in flight."""

from __future__ import annotations

import pytest

from benchmarks.unaligned import graph, watch, wrong_rows
from tests.chaos.ground import Ground

pytestmark = pytest.mark.chaos

ROWS = 40_000


def test_a_task_manager_killed_under_back_pressure_loses_no_record_in_flight(ground: Ground) -> None:
    folder = ground.directory / "overloaded"
    client, key = ground.client, "overloaded"
    client.submit(key, graph("unaligned", folder, ROWS, rate=15_000, row_us=250, checkpoint_interval_ms=300))

    def has_snapshot_in_flight() -> bool:
        last = client.job(key).last_checkpoint
        return last is not None and last.unaligned and last.channel_state_bytes > 4 << 20

    ground.wait_until(has_snapshot_in_flight, "a snapshot holds 4 MiB in flight")
    ground.cluster.kill("taskmanager", 0)
    watch(client, key)
    assert client.job(key).attempt >= 2
    assert wrong_rows(folder, ROWS) == (0, 0)
