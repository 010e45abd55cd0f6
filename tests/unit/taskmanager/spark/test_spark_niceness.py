"""Spark's JVM yields to the task manager's own threads, if its operator wants it to."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest
from lockgate_taskmanager.spark import gateway
from pyspark import java_gateway

HERE = os.getpriority(os.PRIO_PROCESS, 0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes in place of a JVM."""
    processes: list[subprocess.Popen[bytes]] = []

    def launch(conf: object) -> object:
        processes.append(subprocess.Popen(["sleep", "60"]))
        return conf

    monkeypatch.setattr(java_gateway, "launch_gateway", launch)
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("niceness", "expected"), [(0, HERE), (10, min(19, HERE + 10)), (19, 19)])
def test_only_the_jvm_is_nicer(started: list[subprocess.Popen[bytes]], niceness: int, expected: int) -> None:
    assert gateway.launched("conf", niceness) == "conf"
    assert os.getpriority(os.PRIO_PROCESS, started[0].pid) == expected
    mine = [os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) for thread in threading.enumerate()]
    assert set(mine) <= {HERE, expected}
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == HERE


def test_the_reason_why_no_jvm_starts_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_conf: object) -> object:
        raise RuntimeError("no Java")

    monkeypatch.setattr(java_gateway, "launch_gateway", fails)
    with pytest.raises(RuntimeError, match="no Java"):
        gateway.launched("conf", 5)
