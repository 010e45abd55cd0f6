"""A call that hangs in Spark is explained in the log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from lockgate_taskmanager.spark.engine import SparkEngine
from lockgate_taskmanager.spark.jobs import Jobs
from lockgate_taskmanager.spark.session import is_connect

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
HANGS = "java_method('java.lang.Thread', 'sleep', 600000L)"


def test_the_log_has_the_stack_of_the_call_and_of_the_task_that_it_waits_for(
    engine: SparkEngine, caplog: pytest.LogCaptureFixture
) -> None:
    session = engine._session
    if is_connect(session):
        pytest.skip("the JVM is on another host")
    jobs = Jobs(session, "lockgate:hangs", "wedged counts[0] attempt 1")

    def hang() -> None:
        jobs.adopt_thread()
        with pytest.raises(Exception, match="cancelled"):
            session.range(1).selectExpr(HANGS).collect()

    thread = threading.Thread(target=hang)
    thread.start()
    try:
        _until(lambda: bool(session.sparkContext.statusTracker().getActiveJobsIds()))
        _until(lambda: _logged(jobs, thread, caplog))
    finally:
        jobs.interrupt()
        thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert "wedged counts[0] attempt 1: a call is cancelled after 270 s; its stack:" in caplog.text
    assert "in hang" in caplog.text


def _logged(jobs: Jobs, thread: threading.Thread, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the task that sleeps is among Spark's threads, which it may not have been at the first look."""
    assert thread.ident is not None
    jobs.log_stacks(thread.ident, 270.0)
    _until(lambda: "Spark's threads:" in caplog.text)
    return "java.lang.Thread.sleep" in caplog.text and "TIMED_WAITING" in caplog.text


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
