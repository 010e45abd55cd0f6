"""Spark's JVM yields to the task manager's own threads, if its operator wants it to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from lockgate_taskmanager.spark.errors import EngineError
from lockgate_taskmanager.spark.niceness import raise_niceness

HERE = os.getpriority(os.PRIO_PROCESS, 0)
# Threads that start threads, forever
BUSY = """
import threading, time
def go_on():
    time.sleep(0.001)
    threading.Thread(target=go_on).start()
for _ in range(20):
    threading.Thread(target=go_on).start()
print(flush=True)
"""


@pytest.fixture
def other() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def niceness(pid: int) -> set[int]:
    found = set()
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            found.add(os.getpriority(os.PRIO_PROCESS, int(thread)))
        except ProcessLookupError:
            continue
    return found


@pytest.mark.parametrize("more", [1, 10, 19])
def test_all_threads_of_the_process_are_nicer_and_none_here(other: subprocess.Popen[bytes], more: int) -> None:
    assert niceness(other.pid) == {HERE}
    raise_niceness(other.pid, more)
    assert niceness(other.pid) == {min(19, HERE + more)}
    assert niceness(os.getpid()) == {HERE}


def test_a_process_that_has_ended_is_no_error(other: subprocess.Popen[bytes]) -> None:
    other.kill()
    other.wait()
    raise_niceness(other.pid, 10)


def test_another_system_is_an_error_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(EngineError, match="spark_niceness needs Linux"):
        raise_niceness(1, 10)


def test_a_system_that_forbids_it_is_an_error_in_a_sentence(
    other: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_arguments: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", forbidden)
    with pytest.raises(EngineError, match=r"spark_niceness cannot be set: .*Permission denied"):
        raise_niceness(other.pid, 10)
