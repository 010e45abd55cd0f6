"""`lockgate top` against scripted coordinators, on a terminal and without one."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lockgate_proto import messages as m

from lockgate.cli import run
from tests.integration.lockgate_client.fake_cluster import Cluster, status

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("user_folder")]

PATIENCE_S = 60.0
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def reading(key: str, read: int, state: m.JobState = m.JobState.RUNNING, **fields: Any) -> m.JobStatus:
    """A job that has read so many records, and written them all."""
    load = m.SubtaskLoad(370, 0, backlog_records=5, has_backlog_records=True)
    subtasks = (m.SubtaskStatusView("v", 0, "tm-0", "RUNNING", load),) if state is m.JobState.RUNNING else ()
    totals = {"records_read": read, "records_written": read, "subtasks": subtasks}
    return replace(status(key, state), **totals, **fields)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        own, its = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
        command = [sys.executable, "-m", "lockgate", *arguments]
        self._process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment)
        os.close(its)
        self._fd = own
        self._seen = ""

    def until(self, fits: Callable[[str], object]) -> None:
        """Reads what is drawn from here on, until it fits."""
        deadline, self._seen = time.monotonic() + PATIENCE_S, ""
        while not fits(self._seen):
            ready, _, _ = select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, self._seen
            self._seen += _CONTROL.sub("", os.read(self._fd, 65_536).decode(errors="replace"))

    def interrupt(self) -> int:
        """Ctrl-C; returns the exit code."""
        self._process.send_signal(signal.SIGINT)
        try:
            while os.read(self._fd, 65_536):
                pass
        except OSError:  # the other end is closed
            pass
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._fd)


def test_without_a_terminal_there_is_one_view(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.task_managers = (m.TaskManagerStatus("tm-0", "h:1", 7, 4, 1),)
    ended = reading("old", 5, m.JobState.FAILED, submitted_unix_ms=2000, error="disk full\nat line 1")
    cluster.jobs = {"old": (m.JobGraph(), ended), "words": (m.JobGraph(), reading("words", 1234, submitted_unix_ms=1))}
    assert run(["top"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:6] == [
        f"leader: {cluster.addresses[0]} (pid 4242, token 1), standbys: 1",
        "task managers: 1, slots: 4, free: 1",
        "jobs: 1 FAILED, 1 RUNNING",
        "zookeeper: the leader reports no trouble",
        "storage: no job reports trouble",
        "",
    ]
    assert lines[7].split() == ["tm-0", "h:1", "7", "4", "1"]
    running, failed = (line.split() for line in lines[10:])
    assert (running[0], running[1], running[3:9]) == (
        "words",
        "RUNNING",
        ["0", "1,234", "1,234", "5", "records", "37%"],
    )
    assert (failed[0], failed[1], failed[3], failed[-2:]) == ("old", "FAILED", "-", ["disk", "full"])


def test_a_terminal_shows_rates_and_the_next_leader_until_it_is_interrupted(cluster: Cluster) -> None:
    cluster.jobs["words"] = (m.JobGraph(), reading("words", 1000))
    terminal = Terminal("top", "--every", "0.6")
    try:
        terminal.until(lambda seen: "words" in seen and "1,000" in seen)
        cluster.jobs["words"] = (m.JobGraph(), reading("words", 1_000_000))
        terminal.until(lambda seen: re.search(r"words +RUNNING +\d+ +[\d,]{4,} +1,000,000", seen))
        cluster.lead(None)
        terminal.until(lambda seen: "As last seen:" in seen)
        cluster.lead(cluster.coordinators[1])
        terminal.until(lambda seen: f"leader: {cluster.addresses[1]}" in seen)
        assert terminal.interrupt() == 0
    finally:
        terminal.close()
