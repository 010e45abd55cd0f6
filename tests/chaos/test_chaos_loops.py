"""A task manager dies while records circle in a loop, and every lap is counted once."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from lockgate_proto.messages import JobState

from lockgate import Job, count
from lockgate.drill.observer import JobObserver
from tests.chaos.ground import PATIENCE_S, Ground

pytestmark = pytest.mark.chaos

ROWS, RATE, LAPS = 4_000, 1_000.0, 12


def _job(folder: str) -> Job:
    job = Job("laps", parallelism=2, checkpoint_interval_ms=300)
    loop = job.generate(ROWS, rate=RATE).select("*", "0 AS laps").loop()
    lap = loop.select("partition", "sequence", "laps + 1 AS laps")
    loop.close_with(lap.filter(f"laps < 1 + sequence % {LAPS}").rebalance())
    ends = lap.select("partition", "sequence % 100 AS part", f"IF(laps >= 1 + sequence % {LAPS}, 1, NULL) AS ended")
    totals = ends.key_by("partition", "part").aggregate(laps=count(), rows=count("ended"))
    totals.write_sql(f"sqlite:///{folder}/laps.db", "laps", key=("partition", "part"))
    return job


def test_a_task_manager_killed_while_records_circle(ground: Ground) -> None:
    key = "laps"
    folder = ground.make_folder(key)
    ground.client.submit(key, _job(str(folder)).graph())
    observer = JobObserver(ground.client, key)

    def holds_a_log() -> bool:
        last = ground.client.job(key).last_checkpoint
        return last is not None and last.channel_state_bytes > 0

    try:
        ground.wait_until(holds_a_log, "a snapshot holds what circles")
        ground.cluster.kill("taskmanager", 0)
        assert observer.wait_for(lambda: observer.has_ended, PATIENCE_S + 30), "the loop has not ended"
    finally:
        observer.close()
    status = ground.client.job(key)
    assert status.state is JobState.FINISHED, f"{status.state.name} {status.error}"
    assert status.attempt >= 2
    wanted = {
        (partition, part): (sum(1 + row % LAPS for row in range(part, ROWS, 100)), ROWS // 100)
        for partition in (0, 1)
        for part in range(100)
    }
    with contextlib.closing(sqlite3.connect(folder / "laps.db")) as database:
        rows = database.execute("SELECT partition, part, laps, rows FROM laps").fetchall()
    assert {(partition, part): (laps, ended) for partition, part, laps, ended in rows} == wanted
