"""A job is prepared on a spare task manager: the plans are there when it comes, and nothing else has happened."""

from __future__ import annotations

import dataclasses
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_common.security import Credentials
from lockgate_proto.messages import (
    AttemptId,
    ConsoleSink,
    Edge,
    FileFormat,
    FileSink,
    FileSource,
    ForeachBatchSink,
    GeneratorSource,
    JobGraph,
    MemoryBackend,
    PrepareJob,
    PythonTransform,
    SqlSink,
    StateBackend,
    SubtaskId,
    SubtaskPhase,
)
from lockgate_taskmanager.runtime import warmup
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.task_manager import TaskManager
from lockgate_taskmanager.runtime.warmup import Warmup
from lockgate_taskmanager.runtime.warmup_jobs import warm_up_job
from lockgate_taskmanager.spark import leaf, workbench
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.program import ChainProgram
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.task.program import ProgramContext
from pyspark import cloudpickle

from tests.committed import rows_of
from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator
from tests.integration.taskmanager_spark.conftest import Run
from tests.integration.taskmanager_spark.graphs import HASH, WORDS, count_by, graph, sql, text, vertex

pytestmark = pytest.mark.integration

WAIT_S = 120.0
SECRET = Credentials(secret="a secret of this test")


@dataclass
class Made:
    """What was made in Spark so far, and how often a plan was run."""

    benches: int = 0
    plans: list[str] = field(default_factory=list)
    runs: list[Any] = field(default_factory=list)

    def take(self) -> tuple[int, int]:
        """Benches and plans since the last time."""
        taken = (self.benches, len(self.plans))
        self.benches = 0
        self.plans.clear()
        return taken


@pytest.fixture
def made(engine: SparkEngine, monkeypatch: pytest.MonkeyPatch) -> Made:
    counts = Made()
    new_bench: Callable[[], Workbench] = engine._benches._make

    def bench() -> Workbench:
        counts.benches += 1
        return new_bench()

    class CountedPlan(Plan):
        def __init__(self, leaf: Any, build: Any, where: str, *more: Any) -> None:
            counts.plans.append(where)
            super().__init__(leaf, build, where, *more)

        def run(self, content: Any) -> pa.Table:
            counts.runs.append(content)
            return super().run(content)

    monkeypatch.setattr(engine._benches, "_make", bench)
    monkeypatch.setattr(workbench, "Plan", CountedPlan)
    return counts


def always() -> bool:
    return True


def advice(run: Run, slots: int = 1) -> PrepareJob:
    """What the leader says while attempt 1 of the run is elsewhere."""
    return PrepareJob(AttemptId("job", run.run_id, 1), run.graph, slots)


def word_count(folder: Path, parallelism: int = 1) -> JobGraph:
    """words -> totals (key counts, made text, upserted) and -> long (a plain hash edge, to files)."""
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("to be or not to be\nbe\n")
    labels = sql("SELECT word, n, concat(word, '=', n) AS label FROM input")
    return graph(
        vertex("words", text(folder / "in"), WORDS, parallelism=parallelism),
        vertex(
            "totals",
            count_by("word"),
            labels,
            SqlSink(f"sqlite:///{folder / 'out.db'}", "totals", ("word",)),
            parallelism=parallelism,
        ),
        vertex(
            "long",
            sql("SELECT word FROM input WHERE length(word) > 2"),
            FileSink(str(folder / "out"), FileFormat.PARQUET),
            parallelism=parallelism,
        ),
        edges=(Edge("words", "totals", HASH, ("word",)), Edge("words", "long", HASH, ("word",))),
    )


def totals(folder: Path) -> dict[str, str]:
    with sqlite3.connect(folder / "out.db") as connection:
        rows = connection.execute("SELECT word, label FROM totals").fetchall()
    connection.close()
    return dict(rows)


@pytest.mark.parametrize("order", ["upstream first", "downstream first"])
def test_an_attempt_of_the_run_takes_the_plans_over(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made, order: str
) -> None:
    wanted = word_count(tmp_path)
    if order == "downstream first":
        wanted = dataclasses.replace(wanted, vertices=wanted.vertices[::-1])
    run = job(wanted, start=False)
    assert warm_up_job(engine, advice(run), tmp_path / "nowhere", always)
    benches, plans = made.take()
    assert benches == 3
    assert plans == 4  # words, its partial aggregate, the labels, the long words
    run.start()
    run.to_end()
    run.checkpoint(1)
    assert made.take() == (0, 0), "every plan was there"
    assert totals(tmp_path) == {"to": "to=2", "be": "be=3", "or": "or=1", "not": "not=1"}
    assert rows_of(tmp_path / "out") == [{"word": "not"}]


def test_nothing_is_written_and_no_record_is_read(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = word_count(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.setattr(ChainProgram, "poll", lambda _self: pytest.fail("a source was polled"))
    monkeypatch.setattr(ChainProgram, "assign", lambda *_: pytest.fail("a split was assigned"))
    monkeypatch.setattr(ChainProgram, "commit", lambda *_: pytest.fail("a sink committed"))
    run = job(wanted, start=False)
    assert warm_up_job(engine, advice(run), tmp_path / "nowhere", always)
    assert sorted(tmp_path.rglob("*")) == before
    assert made.plans
    assert [len(run) for run in made.runs] == [0] * len(made.runs), "only nothing was run"
    assert len(made.runs) == 3 * len(made.plans)


def test_sinks_that_call_or_print_are_left_alone(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    marker = str(tmp_path / "called")

    def call(_frame: Any, _checkpoint: int) -> None:
        Path(marker).write_text("called")

    wanted = graph(
        vertex("rows", GeneratorSource(1, 5), sql("SELECT sequence AS n FROM input"), ConsoleSink(20)),
        vertex("calls", sql("SELECT n FROM input"), ForeachBatchSink(cloudpickle.dumps(call))),
        edges=(Edge("rows", "calls", HASH, ("n",)),),
    )
    assert warm_up_job(engine, advice(job(wanted, start=False)), tmp_path, always)
    assert capfd.readouterr().out == ""
    assert not Path(marker).exists()


def test_an_authors_function_meets_no_record(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made
) -> None:
    seen = tmp_path / "seen"
    seen.touch()
    file = str(seen)

    def double(frame: Any) -> Any:
        def each(batches: Any) -> Any:
            for batch in batches:
                if batch.num_rows:
                    with open(file, "a") as out:
                        out.write(f"{batch.num_rows}\n")
                yield batch

        return frame.mapInArrow(each, frame.schema)

    wanted = graph(vertex("rows", GeneratorSource(1, 5), PythonTransform(cloudpickle.dumps(double)), ConsoleSink(20)))
    run = job(wanted, start=False)
    assert warm_up_job(engine, advice(run), tmp_path, always)
    assert seen.read_text() == ""
    made.take()
    run.start()
    run.to_end()
    assert sum(map(int, seen.read_text().split())) == 5
    assert made.take() == (0, 0)


def test_a_subtask_reuses_the_workbench_of_another_one_of_its_vertex(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made
) -> None:
    run = job(word_count(tmp_path, parallelism=2), start=False)
    assert warm_up_job(engine, advice(run, slots=1), tmp_path, always)
    assert made.take()[0] == 3, "one of each vertex for one free slot"
    parallelism = {vertex.id: 2 for vertex in run.graph.vertices}
    here = SubtaskId(AttemptId("job", run.run_id, 2), "words", 1)
    program = engine.build(ProgramContext(here, run.graph, run.directory, parallelism=parallelism))
    try:
        program.open()
        assert made.take() == (0, 0)
    finally:
        program.close()


def test_the_plans_are_made_for_as_many_subtasks_as_there_are_slots(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made
) -> None:
    run = job(word_count(tmp_path, parallelism=2), start=False)
    assert warm_up_job(engine, advice(run, slots=5), tmp_path, always)
    assert made.take()[0] == 6
    run.start()
    assert made.take()[0] == 0


@pytest.mark.parametrize("other", ["run", "graph"])
def test_another_run_or_graph_does_not_get_the_plans(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made, other: str
) -> None:
    wanted = graph(vertex("rows", GeneratorSource(1, 5), sql("SELECT sequence AS n FROM input"), ConsoleSink(20)))
    run = job(wanted, start=False)
    assert warm_up_job(engine, advice(run), tmp_path, always)
    made.take()
    if other == "run":
        run = job(wanted, start=False)
    else:
        run.graph = dataclasses.replace(wanted, name="another")
    run.start()
    assert made.take() == (1, 1)


def test_schemas_are_checked_as_far_as_they_are_known(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, made: Made
) -> None:
    """A Parquet source without files: its columns are not known yet."""
    (tmp_path / "in").mkdir()
    wanted = graph(
        vertex("rows", FileSource(str(tmp_path / "in"), FileFormat.PARQUET), sql("SELECT n FROM input")),
        vertex("copy", sql("SELECT n FROM input"), ConsoleSink(20)),
        edges=(Edge("rows", "copy", HASH, ("n",)),),
    )
    assert warm_up_job(engine, advice(job(wanted, start=False)), tmp_path, always)
    assert made.plans == []


def test_a_plan_that_is_made_again_forevery_batch_works(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path
) -> None:
    query = "SELECT sequence, (SELECT max(sequence) FROM input) AS most FROM input"
    wanted = graph(vertex("rows", GeneratorSource(1, 5), sql(query)), vertex("out", sql("SELECT most FROM input")))
    wanted = dataclasses.replace(wanted, edges=(Edge("rows", "out", HASH, ("most",)),))
    run = job(wanted, start=False)
    assert warm_up_job(engine, advice(run), tmp_path, always)
    run.start()
    run.to_end()
    assert {row["most"] for row in run.rows("out")} == {4}


def test_without_files_that_executors_share_it_works_as_well(
    engine: SparkEngine, job: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_slots", None)
    new_leaf = engine._new_leaf
    used: list[type] = []

    def noted(session: Any, spec: leaf.LeafSpec) -> leaf.Leaf:
        made_leaf = new_leaf(session, spec)
        used.append(type(made_leaf))
        return made_leaf

    monkeypatch.setattr(engine, "_new_leaf", noted)
    run = job(word_count(tmp_path), start=False)
    assert warm_up_job(engine, advice(run), tmp_path, always)
    assert set(used) == {leaf.TableLeaf}
    run.start()
    run.to_end()
    run.checkpoint(1)
    assert totals(tmp_path) == {"to": "to=2", "be": "be=3", "or": "or=1", "not": "not=1"}


@pytest.fixture
def coordinator() -> Iterator[ScriptedCoordinator]:
    scripted_coordinator = ScriptedCoordinator(SECRET)
    yield scripted_coordinator
    scripted_coordinator.die()


def test_a_deployment_finds_the_plans_prepared_on_the_leaders_advice(
    engine: SparkEngine,
    tmp_path: Path,
    made: Made,
    coordinator: ScriptedCoordinator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Wired as in the process, and over the wire: one message's graph gives the key of the other one's plans."""
    monkeypatch.setattr(warmup, "STOP_S", WAIT_S)
    caplog.set_level("INFO", logger=warmup.__name__)
    rows = sql("SELECT CAST(sequence % 3 AS STRING) AS word FROM input")
    wanted = graph(
        vertex("words", GeneratorSource(2, 10), rows, parallelism=2),
        vertex("totals", count_by("word"), sql("SELECT word, n + 1 AS n FROM input"), ConsoleSink(20), parallelism=2),
        edges=(Edge("words", "totals", HASH, ("word",)),),
    )
    wanted = dataclasses.replace(wanted, state_backend=StateBackend(MemoryBackend(1 << 20)))
    settings = TaskManagerSettings(
        zookeeper="unused:1", work_dir=str(tmp_path), credentials=SECRET, task_manager_id="spare"
    )
    manager = TaskManager(settings, engine)
    prepares = Warmup(engine, str(tmp_path), manager.deployments.running, 0)
    manager.on_prepare = prepares.learn
    manager.start()
    prepares.start()
    try:
        manager.on_leader(coordinator.record)
        leader = Leader(coordinator, wanted, ("spare",))
        coordinator.wait(coordinator.messages)
        coordinator.send("spare", PrepareJob(AttemptId("job", "run", 1), wanted, 2))
        deadline = time.monotonic() + WAIT_S
        while "warmed up job job: its plans are warm" not in caplog.messages:
            assert time.monotonic() < deadline, caplog.messages
            time.sleep(0.01)
        assert made.take() == (4, 4)
        leader.deploy(2)
        leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
        leader.assign(10)
        leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
        assert made.take() == (0, 0)
    finally:
        manager.stop()
        prepares.stop()
