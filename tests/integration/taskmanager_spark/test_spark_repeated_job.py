"""A plan's later executions start no SQL execution, and otherwise work as the first one does."""

from __future__ import annotations

import logging
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.spark import plan as plans
from lockgate_taskmanager.spark import repeated_job
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.errors import EngineError
from lockgate_taskmanager.spark.jobs import Jobs
from lockgate_taskmanager.spark.leaf import DataFrame, Form, LeafSpec, SlotLeaf
from lockgate_taskmanager.spark.plan import Plan
from lockgate_taskmanager.spark.session import driver_process
from lockgate_taskmanager.task.program import DataError, UserCodeFailed

pytestmark = [pytest.mark.integration, pytest.mark.first]

SETTING = "spark.sql.session.timeZone"
MakePlan = Callable[[Callable[[DataFrame], DataFrame]], Plan]


@pytest.fixture
def session(engine: SparkEngine) -> Any:
    return engine._session.newSession()


@pytest.fixture
def plan(session: Any, tmp_path: Path) -> Iterator[MakePlan]:
    made: list[Plan] = []

    def make(build: Callable[[DataFrame], DataFrame]) -> Plan:
        path = str(tmp_path / f"{len(made)}.slot")
        made.append(Plan(SlotLeaf(session, LeafSpec(Form.TEXT), path), build, "operator 'o'"))
        return made[-1]

    yield make
    for item in made:
        item.close()
    assert not list(tmp_path.iterdir())


def _newest_execution(session: Any) -> int:
    """Its id: Spark keeps the last 20 alone, so that their number says nothing."""
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    kept = session._jsparkSession.sharedState().statusStore().executionsList()
    return int(kept.last().executionId()) if kept.nonEmpty() else -1


def test_only_the_first_one_is_an_sql_execution(plan: MakePlan, session: Any) -> None:
    made = plan(lambda frame: frame.selectExpr("upper(value) AS v"))
    before = _newest_execution(session)
    assert made.run([b"a\n"]).to_pylist() == [{"v": "A"}]
    assert _newest_execution(session) == before + 1
    for text in ("b", "c"):
        assert made.run([f"{text}\n".encode()]).to_pylist() == [{"v": text.upper()}]
    assert _newest_execution(session) == before + 1


def test_several_record_batches_keep_their_order(plan: MakePlan) -> None:
    made = plan(lambda frame: frame.selectExpr("CAST(value AS BIGINT) AS n"))
    made.run([b"1\n"])
    rows = 300_000
    found = made.run([b"".join(b"%d\n" % number for number in range(rows))])
    assert found.column("n").num_chunks > 1
    assert found.column("n").to_pylist() == list(range(rows))
    assert made.run([b"7\n"]).to_pylist() == [{"n": 7}], "what a larger batch has left is not read"


def test_tasks_have_the_settings_of_their_own_session(plan: MakePlan, engine: SparkEngine, tmp_path: Path) -> None:
    def reads(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for batch in batches:
            value = TaskContext.get().getLocalProperty(SETTING)  # type: ignore[union-attr]
            yield pa.record_batch({"zone": [value] * batch.num_rows})

    other = engine._session.newSession()
    other.conf.set(SETTING, "Asia/Kolkata")
    spec, build = LeafSpec(Form.TEXT), lambda frame: frame.mapInArrow(reads, "zone STRING")
    made, elsewhere = plan(build), Plan(SlotLeaf(other, spec, str(tmp_path / "x")), build, "operator 'o'")
    for _ in range(3):
        assert made.run([b"a\n"]).to_pylist() == [{"zone": "UTC"}]
        assert elsewhere.run([b"a\n"]).to_pylist() == [{"zone": "Asia/Kolkata"}]
    elsewhere.close()


@pytest.mark.parametrize("earlier", [0, 1, 2])
def test_errors_are_the_same_sentence_in_every_execution(plan: MakePlan, earlier: int) -> None:
    made = plan(lambda frame: frame.selectExpr("CAST(value AS INT) AS n"))
    for _ in range(earlier):
        made.run([b"1\n"])
    with pytest.raises(DataError) as caught:
        made.run([b"x\n"])
    assert caught.value.text.startswith('The value \'x\' of the type "STRING" cannot be cast to "INT"')
    assert made.run([b"2\n"]).to_pylist() == [{"n": 2}], "the next batch is not affected"


@pytest.mark.parametrize("earlier", [0, 2])
def test_so_are_those_of_functions(plan: MakePlan, earlier: int) -> None:
    def fails(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if "x" in batch.column("value").to_pylist():
                raise OSError("the model is away")
            yield batch

    made = plan(lambda frame: frame.mapInArrow(fails, "value STRING"))
    for _ in range(earlier):
        made.run([b"a\n"])
    with pytest.raises(UserCodeFailed, match=r"operator 'o': .*OSError: the model is away"):
        made.run([b"x\n"])


@contextmanager
def _file_limit(process: int, size_bytes: int) -> Iterator[None]:
    """Another process cannot write files beyond a size: it gets an error, as from a full file system."""
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))


def test_a_result_without_room_arrives_once(plan: MakePlan, session: Any, caplog: pytest.LogCaptureFixture) -> None:
    from pyspark.sql import Observation, functions

    seen = Observation()
    made = plan(lambda frame: frame.observe(seen, functions.count(functions.lit(1)).alias("rows")))
    made.run([b"a\n"])
    process = driver_process(session)
    assert process is not None
    lines = [f"{number:05d}" for number in range(300_000)]
    content = "".join(f"{line}\n" for line in lines).encode()
    with caplog.at_level(logging.WARNING), _file_limit(process.pid, 4096):
        for _ in range(2):
            jobs = _newest_job(session)
            assert made.run([content]).column("value").to_pylist() == lines
            assert _newest_job(session) == jobs + 1, "it was not executed again"
            metrics = made.frame._jdf.queryExecution().observedMetrics()
            assert metrics.apply(metrics.keys().head()).getLong(0) == len(lines)
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1, "they are not repeated for every batch"
    assert "could not be written to" in warnings[0]
    assert "more room" in warnings[0]
    assert made.run([b"b\n"]).to_pylist() == [{"value": "b"}]
    assert made._job is not None
    assert not made._job._is_full, "with room again it goes through the file"


def _newest_job(session: Any) -> int:
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    return int(session.sparkContext._jsc.sc().statusStore().jobsList(None).head().jobId())


def test_settings_changed_by_a_later_plan_reach_tasks(plan: MakePlan) -> None:
    first = plan(lambda frame: frame.mapInArrow(_zone, "zone STRING"))
    for _ in range(2):
        assert first.run([b"a\n"]).to_pylist() == [{"zone": "UTC"}]

    def build(frame: DataFrame) -> DataFrame:
        frame.sparkSession.conf.set(SETTING, "Asia/Tokyo")
        return frame.mapInArrow(_zone, "zone STRING")

    second = plan(build)
    for made in (first, second, first):
        assert made.run([b"a\n"]).to_pylist() == [{"zone": "Asia/Tokyo"}]


def test_settings_changed_between_batches_reach_tasks_and_are_sent_once(
    plan: MakePlan, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    clear = repeated_job.clear_properties

    def counted(context: Any) -> None:  # before other settings are sent
        sent.append(context)
        clear(context)

    monkeypatch.setattr(repeated_job, "clear_properties", counted)
    made = plan(lambda frame: frame.mapInArrow(_zone, "zone STRING"))
    anew = plan(lambda frame: frame.selectExpr("rand() AS r"))
    assert made.repeatable
    assert not anew.repeatable
    for zone in ("UTC", "Asia/Tokyo", "Asia/Kolkata"):
        session.conf.set(SETTING, zone)
        for _ in range(2):
            assert made.run([b"a\n"]).to_pylist() == [{"zone": zone}]
        assert sent
        sent.clear()
        anew.run([b"a\n"])
        made.run([b"a\n"])
        assert not sent


def _zone(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    for batch in batches:
        value = TaskContext.get().getLocalProperty("spark.sql.session.timeZone")  # type: ignore[union-attr]
        yield pa.record_batch({"zone": [value] * batch.num_rows})


def test_only_settings_of_spark_that_the_session_has_now_reach_tasks(plan: MakePlan, session: Any) -> None:
    context, made = session.sparkContext, plan(lambda frame: frame.selectExpr("upper(value) AS v"))
    session.conf.set("spark.sql.some.setting", "x")
    session.conf.set("fs.some.secret", "y")
    for _ in range(2):
        made.run([b"a\n"])
    assert context.getLocalProperty("spark.sql.some.setting") == "x"
    assert context.getLocalProperty("fs.some.secret") is None
    session.conf.unset("spark.sql.some.setting")
    session.conf.unset("fs.some.secret")
    made.run([b"a\n"])
    assert context.getLocalProperty("spark.sql.some.setting") is None


def test_a_thread_that_was_left_has_no_settings(plan: MakePlan, session: Any) -> None:
    jobs, context = Jobs(session, "lockgate:left", "left"), session.sparkContext
    made = plan(lambda frame: frame.selectExpr("upper(value) AS v"))
    jobs.adopt_thread()
    for _ in range(2):
        made.run([b"a\n"])
    assert context.getLocalProperty(SETTING) == "UTC"
    jobs.leave_thread()
    assert context.getLocalProperty(SETTING) is None
    assert context.getLocalProperty("callSite.short") is None
    jobs.adopt_thread()
    made.run([b"a\n"])
    assert context.getLocalProperty(SETTING) == "UTC", "another attempt has them again"
    jobs.leave_thread()


def test_a_batch_is_delivered_when_no_job_can_be_made(
    plan: MakePlan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no room")

    monkeypatch.setattr(plans, "RepeatedJob", fails)
    made = plan(lambda frame: frame.selectExpr("upper(value) AS v"))
    with caplog.at_level(logging.WARNING):
        for text in ("a", "b", "c"):
            assert made.run([f"{text}\n".encode()]).to_pylist() == [{"v": text.upper()}]
    assert [record.getMessage() for record in caplog.records] == [
        "operator 'o': micro-batches take a slower way: no room"
    ]


def test_large_types_in_arrow_change_no_result(plan: MakePlan, session: Any) -> None:
    session.conf.set("spark.sql.execution.arrow.useLargeVarTypes", "true")
    made = plan(lambda frame: frame.selectExpr("value AS v", "CAST(value AS BINARY) AS b"))
    for text in ("a", "b", "c"):
        found = made.run([f"{text}\n".encode()])
        assert found.to_pylist() == [{"v": text, "b": text.encode()}]
        assert found.schema == made.schema
    assert made._job is None, "its results would have another schema"


@pytest.mark.parametrize("earlier", [0, 2])
@pytest.mark.parametrize("moment", ["before the task runs", "in the task"])
def test_a_cancelled_job_is_the_same_error(
    plan: MakePlan, session: Any, earlier: int, moment: str, tmp_path: Path
) -> None:
    started = tmp_path.parent / f"{tmp_path.name}.started"

    def waits(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("value").to_pylist() == ["wait"]:
                started.touch()
                time.sleep(600)  # the cancellation ends it
            yield batch

    jobs = Jobs(session, "lockgate:cancelled", "cancelled")
    made = plan(lambda frame: frame.mapInArrow(waits, "value STRING"))
    for _ in range(earlier):
        made.run([b"a\n"])
    failed: list[BaseException] = []

    def run() -> None:
        jobs.adopt_thread()
        try:
            made.run([b"wait\n"])
        except EngineError as error:
            failed.append(error)
        finally:
            jobs.leave_thread()

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():  # the caller of `cancel` repeats it, too: a job may be just starting
        if moment != "in the task" or started.exists():
            jobs.interrupt()
        thread.join(0.02)
    assert [type(error) for error in failed] == [EngineError]
    assert "cancelled" in str(failed[0])
    assert made.run([b"b\n"]).to_pylist() == [{"value": "b"}], "the plan works on"


@pytest.mark.parametrize("earlier", [0, 2])
def test_a_dead_python_worker_is_an_engine_error(plan: MakePlan, earlier: int) -> None:
    def dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.column("value").to_pylist() == ["x"]:
                os._exit(3)
            yield batch

    made = plan(lambda frame: frame.mapInArrow(dies, "value STRING"))
    for _ in range(earlier):
        made.run([b"a\n"])
    with pytest.raises(EngineError, match="operator 'o': Spark failed: Python worker exited unexpectedly"):
        made.run([b"x\n"])
    assert made.run([b"b\n"]).to_pylist() == [{"value": "b"}]


def test_a_killed_jvm_leaves_nothing_behind(tmp_path: Path) -> None:
    program = Path(__file__).with_name("killed_jvm_process.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["nothing left"]), done.stdout + done.stderr
