"""The death of the Spark Connect server that task managers work in."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_devtools.cluster.ports import choose

from tests.chaos.testing_cluster import TestingCluster

from .servers import SparkServer, connect, stop

pytest.importorskip("grpc_status", reason="pip install 'lockgate[connect]'")
pytestmark = [pytest.mark.integration, pytest.mark.first, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("connect_process.py")


class Server:
    """A Connect server that keeps its address from one life to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = choose(2)
        self._running: list[SparkServer] = []
        self.url = ""

    def start(self) -> None:
        """Until it serves."""
        (self.url, _), self._running = connect(self._folder, self._ports)

    def kill(self) -> None:
        """SIGKILL."""
        stop(self._running)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


def test_a_job_outlives_the_connect_server(server: Server, tmp_path: Path) -> None:
    with TestingCluster(tmp_path, taskmanager={"spark_master": server.url}) as testing:
        testing.wait_complete()
        first = task_managers(testing)
        with testing.ledger() as job:
            job.wait_checkpoints(2)
            server.kill()
            testing.wait_until(lambda: not first & task_managers(testing), "the task managers have ended")
            server.start()
            testing.wait_complete()
            job.wait_checkpoints(2)
            status = job.check_exact()
        assert status.restarts <= 2, (
            "waiting for slots is no failure, but one task manager may be lost before the other"
        )
        for number in range(2):
            log = (testing.cluster.directory / "logs" / f"taskmanager-{number}.log").read_text()
            assert f"the Spark Connect server {server.url} has not answered for 10 s; this task manager exits" in log
            assert "Exception in thread" not in log


def task_managers(testing: TestingCluster) -> set[int]:
    """The process ids of those that run."""
    return {pid for name, pid in testing.cluster.pids().items() if name.startswith("taskmanager-")}


def test_a_session_that_the_next_server_does_not_know_is_named_and_ends_the_process(
    server: Server, tmp_path: Path
) -> None:
    """The process is frozen in between, so that it meets the new server before it has missed the old one.

    That server would make a bare session of any id: no setting of ours is in it.
    """
    spec = json.dumps({"master": server.url, "work": str(tmp_path)})
    command = [sys.executable, str(SCRIPT), spec]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        server.kill()
        server.start()
        process.stdin.write("go\n")
        process.stdin.flush()
        process.send_signal(signal.SIGCONT)
        told = process.stdout.read().splitlines()
        assert process.wait(120) == 1
    lost = "has lost the session (it was restarted, or has ended it)"
    assert told == [
        f"query: the Spark Connect server {lost}",
        f"the Spark Connect server {lost}",
        f"the Spark Connect server {server.url} {lost}",
    ]
