"""How the JVM is ended: in its own time, but not for ever. Other programs stand in for it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_taskmanager.spark import session as sessions
from lockgate_taskmanager.spark.engine import SparkEngine

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program whose input is a pipe, as PySpark starts its gateway."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*command: str) -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def test_a_process_that_ends_with_its_input_is_not_killed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    assert sessions.end(start("sh", "-c", "cat; exit 7")) == 7
    assert caplog.messages == []


@pytest.mark.timeout(30)
def test_a_hanging_process_is_killed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    process = start("sleep", "600")
    assert sessions.end(process, 0.1) == -signal.SIGKILL
    assert caplog.messages == ["the JVM did not exit within 0.1 s; killing it"]


def test_the_default_grace_is_ten_seconds(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    process = start("cat")
    limits: list[float | None] = []
    wait = process.wait
    monkeypatch.setattr(process, "wait", lambda limit_s=None: limits.append(limit_s) or wait())
    sessions.end(process)
    sessions.end(process, None)
    assert limits == [10.0, None]


def test_a_jvm_that_writes_its_class_archive_is_given_all_the_time_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On slow hosts that takes longer than ten seconds."""
    limits: list[float | None] = []
    monkeypatch.setattr(sessions, "driver_process", lambda _session: object())
    monkeypatch.setattr(sessions, "end", lambda _process, limit_s=sessions.END_S: limits.append(limit_s) or 0)
    engine: Any = SimpleNamespace(close=lambda: None, _session=None)
    assert SparkEngine.close_jvm(engine) == 0
    assert limits == [None]
