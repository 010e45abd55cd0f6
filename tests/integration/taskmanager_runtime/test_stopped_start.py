"""SIGTERM while Spark starts: the process ends at once, and its JVM with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.taskmanager_runtime.scripted_coordinator import until

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

PROGRAM = """
import logging, sys
from lockgate_common.security import Credentials
from lockgate_taskmanager.runtime.process import run
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.spark.engine import SparkEngine
logging.basicConfig(level=logging.INFO)
warm_up = SparkEngine.warm_up
def announced(engine):
    print("warming up", flush=True)
    warm_up(engine)
SparkEngine.warm_up = announced
sys.exit(run(TaskManagerSettings("127.0.0.1:1", sys.argv[1], "stopped", credentials=Credentials(secret="s"))))
"""
PATIENCE_S = 200.0


def has_child(pid: int) -> bool:
    """It has started another process: Spark's launcher, then its JVM."""
    return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def is_group_gone(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("when", ["the JVM starts", "Spark is warmed up"])
def test_sigterm_during_the_start_ends_the_process_and_its_jvm(when: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        if when == "the JVM starts":
            until(lambda: has_child(process.pid), when)
        else:
            assert process.stdout.readline() == "warming up\n", log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
        assert "ready" not in process.stdout.read()
        assert "error" not in log.read_text()
        until(lambda: is_group_gone(process.pid), "the JVM has ended")
    finally:
        process.stdout.close()
        if not is_group_gone(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
