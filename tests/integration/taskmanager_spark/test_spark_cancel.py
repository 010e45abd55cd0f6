"""Cancelling a subtask interrupts its Spark job and no other; an engine that cannot start says why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto.messages import AttemptId, PythonTransform, SubtaskId
from lockgate_taskmanager.spark import session as sessions
from lockgate_taskmanager.spark.engine import EngineError, SparkEngine
from lockgate_taskmanager.task.program import Canceled, ProgramContext
from pyspark import cloudpickle

from .graphs import WORDS, graph, sql, text, vertex

pytestmark = pytest.mark.integration

WAIT_S = 120.0
SLOW = sql("SELECT count(*) AS n FROM input CROSS JOIN range(0, 3000000000, 1, 1) WHERE sha2(value, 256) <> string(id)")


def poll_in_thread(program: Any, failures: list[BaseException]) -> threading.Thread:
    def work() -> None:
        try:
            program.poll()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="subtask")
    thread.start()
    return thread


def wait_for_job(engine: SparkEngine) -> None:
    tracker = engine._session.sparkContext.statusTracker()
    done = threading.Event()
    deadline = time.monotonic() + WAIT_S
    while not tracker.getActiveStageIds():
        assert time.monotonic() < deadline, "the job never started"
        done.wait(0.05)


def cancel_until_ended(program: Any, thread: threading.Thread) -> None:
    """As the task manager does: a query is several Spark jobs, and an interruption between two of them stops none."""
    deadline = time.monotonic() + WAIT_S
    while thread.is_alive():
        assert time.monotonic() < deadline, "the subtask's thread did not end"
        program.cancel()
        thread.join(0.5)


def test_cancel_interrupts_the_running_job(engine: SparkEngine, job: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x\n")
    run = job(graph(vertex("v", text(tmp_path / "f"), SLOW)), start=False)
    run.start()
    program = run.programs["v", 0]
    failures: list[BaseException] = []
    thread = poll_in_thread(program, failures)
    wait_for_job(engine)
    cancel_until_ended(program, thread)
    assert [type(failure) for failure in failures] == [Canceled]
    with pytest.raises(Canceled):
        program.poll()
    other = job(graph(vertex("v", text(tmp_path / "f"), WORDS)))
    other.to_end()
    assert other.programs["v", 0].counters()[1].records_out == 1


def test_a_planning_function_without_end_is_ended_and_named(
    engine: SparkEngine, job: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "f").write_text("x\n")

    def endless(frame: Any) -> Any:
        while frame is not None:
            pass

    run = job(graph(vertex("v", text(tmp_path / "f"), PythonTransform(cloudpickle.dumps(endless)))), start=False)
    program = engine.build(ProgramContext(SubtaskId(AttemptId("job", "run", 1), "v", 0), run.graph, run.directory))
    failures: list[BaseException] = []

    def work() -> None:
        try:
            program.open()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work, name="subtask", daemon=True)
    thread.start()
    pause = threading.Event()
    for _ in range(600):
        at_work = program.at_work()
        if at_work is not None and "operator 'v1'" in at_work.what:
            break
        pause.wait(0.1)
    assert at_work is not None
    cancel_until_ended(program, thread)
    assert [type(failure) for failure in failures] == [Canceled]
    program.close()


def test_no_java_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EngineError, match="Java was not found: install Java 17"):
        sessions.start("local[1]", {}, 1, ".")
    monkeypatch.setenv("JAVA_HOME", "/nowhere/java")
    with pytest.raises(EngineError, match=r"JAVA_HOME is /nowhere/java"):
        sessions.start("local[1]", {}, 1, ".")


@pytest.mark.parametrize("master", ["locl[2]", "local[x]", "http://x"])
def test_a_bad_master_is_named(master: str) -> None:
    with pytest.raises(EngineError, match=r"is not a Spark master: use local\[N\]"):
        sessions.start(master, {}, 1, ".")
