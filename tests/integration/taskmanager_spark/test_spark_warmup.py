"""An idle task manager's warm-up: it really runs on Spark, leaves nothing behind, and makes way for a real job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from lockgate_proto.messages import AttemptId, GeneratorSource, PrepareJob
from lockgate_taskmanager.runtime import warmup
from lockgate_taskmanager.runtime.warmup import Running, Warmup
from lockgate_taskmanager.runtime.warmup_budget import Budget
from lockgate_taskmanager.runtime.warmup_jobs import LINES, run_batches, run_sample
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.repeated_job import RepeatedJob

from tests.integration.taskmanager_spark.conftest import await_listeners
from tests.integration.taskmanager_spark.graphs import graph, sql, vertex

pytestmark = pytest.mark.integration

WAIT_S = 120.0
BUSY: Running = (AttemptId("busy", "run", 1),)
New = Callable[..., Warmup]


@pytest.fixture
def new(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[New]:
    """Starts warm-ups; `caplog` has what they say."""
    monkeypatch.setattr(warmup, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(warmup, "BUSY_PAUSE_S", 0.0)
    monkeypatch.setattr(warmup, "STOP_S", WAIT_S)  # a slow machine takes its time to start the Python worker
    caplog.set_level("INFO", logger=warmup.__name__)
    made: list[Warmup] = []

    def make(
        *jobs: PrepareJob, running: Sequence[AttemptId] = (), samples: int = 1, budget: Budget | None = None
    ) -> Warmup:
        made.append(Warmup(engine, str(tmp_path), lambda: tuple(running), samples, budget))
        for job in jobs:
            made[-1].learn(job)
        made[-1].start()
        return made[-1]

    yield make
    for item in made:
        item.stop()
    assert not list(tmp_path.iterdir())


def wait_for_messages(caplog: pytest.LogCaptureFixture, count: int) -> list[str]:
    deadline = time.monotonic() + WAIT_S
    while len(caplog.messages) < count:
        assert time.monotonic() < deadline, caplog.messages
        time.sleep(0.01)
    return caplog.messages


def job(key: str, query: str = "SELECT sequence + 1 AS n FROM input") -> PrepareJob:
    return PrepareJob(AttemptId(key, f"run of {key}", 1), graph(vertex("rows", GeneratorSource(1, 10), sql(query))), 1)


def test_a_warm_up_runs_from_plans_to_committed_output(engine: SparkEngine, tmp_path: Path) -> None:
    run_sample(engine, tmp_path, "run-1", lambda: True)
    assert list((tmp_path / "files").glob("part-run-1-1-*.parquet"))
    assert (tmp_path / "totals.db").exists()


def test_small_micro_batches_are_executed_as_repeated_jobs(
    engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    run = RepeatedJob.run

    def counted(self: RepeatedJob) -> pa.Table:
        table = run(self)
        rows.append(table.num_rows)
        return table

    monkeypatch.setattr(RepeatedJob, "run", counted)
    before = engine._benches._in_use.copy()
    took: list[float] = []
    assert run_batches(engine, tmp_path, "batches-1", lambda: len(took) < 3, took.append) == 3
    assert rows == [LINES, LINES], "the first execution makes the RDD for the others; every line has a key of its own"
    assert not list((tmp_path / "batches-1").iterdir())
    assert engine._benches._in_use == before


def test_small_micro_batches_make_way_for_an_attempt(new: New, caplog: pytest.LogCaptureFixture) -> None:
    running: list[AttemptId] = []

    class Watched(Budget):
        """Something is deployed after the second one."""

        count = 0

        def spend(self, took_s: float) -> None:
            super().spend(took_s)
            self.count += 1
            if self.count == 2:
                running.extend(BUSY)

    budget = Watched()
    new(running=running, samples=0, budget=budget)
    assert wait_for_messages(caplog, 1) == ["warmed up with 2 small micro-batches"]
    assert budget.count == 2


def test_it_leaves_nothing_behind(new: New, caplog: pytest.LogCaptureFixture) -> None:
    new()
    assert wait_for_messages(caplog, 1) == ["warmed up with the sample, 0 more runs to come"]


def test_a_job_whose_graph_fails_does_not_harm_later_jobs(new: New, caplog: pytest.LogCaptureFixture) -> None:
    new(job("bad", "SELECT nothing FROM input"), job("good"), running=BUSY)
    bad, good = wait_for_messages(caplog, 2)
    assert bad.startswith("the warm-up of job bad failed: operator 'rows1'")
    assert "nothing" in bad
    assert good == "warmed up job good: its plans are warm"


def test_a_busy_task_manager_does_not_perform_the_sample(new: New, caplog: pytest.LogCaptureFixture) -> None:
    warmer = new(running=BUSY)
    for number, key in enumerate(("first", "second"), 1):
        warmer.learn(job(key))
        wait_for_messages(caplog, number)
    assert caplog.messages == [f"warmed up job {key}: its plans are warm" for key in ("first", "second")]


def test_stopping_before_it_began_is_fine(engine: SparkEngine, tmp_path: Path) -> None:
    Warmup(engine, str(tmp_path), lambda: (), 1).stop()
    started = Warmup(engine, str(tmp_path), lambda: (), 1)
    started.start()
    started.stop()
    assert not list(tmp_path.iterdir())


def test_a_python_worker_starts_on_one_slot_and_leaves_the_others_to_subtasks(engine: SparkEngine) -> None:
    tracker = engine._session.sparkContext.statusTracker()
    await_listeners(engine)
    before = set(tracker.getJobIdsForGroup(None))
    engine.warm_python()
    await_listeners(engine)
    (job,) = set(tracker.getJobIdsForGroup(None)) - before
    stages = [tracker.getStageInfo(stage) for stage in tracker.getJobInfo(job).stageIds]
    assert [stage.numTasks for stage in stages] == [1], "one for each core would hold up every job for a second"
