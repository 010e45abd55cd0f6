"""Task managers whose Spark is a Connect server, and its death: one server for all, which keeps its address."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_devtools.cluster.ports import choose
from lockgate_devtools.drill import run_drill

from tests.chaos.testing_cluster import TestingCluster

from . import connect_process, foreach_process
from .foreach_process import descriptions
from .servers import TOKEN_NAME, SparkServer, connect, stop
from .word_count import PATIENCE_S, STARTED_BY_US, answer, word_count

pytest.importorskip("grpc_status", reason="pip install 'lockgate[connect]'")
pytestmark = [pytest.mark.integration, pytest.mark.rotating, pytest.mark.first, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
ENGINE = Path(__file__).parent.with_name("taskmanager_spark")
THROUGH_CONNECT = [  # event time, files of JSON without options, joins, functions with state, confined SQL, plans
    f"{ENGINE}/test_spark_windows.py::test_windows_fire_while_the_stream_continues",
    f"{ENGINE}/test_spark_windows.py::test_sessions_are_exact_across_attempts",
    f"{ENGINE}/test_spark_windows.py::test_the_highest_time_is_known_behind_a_view_that_the_author_has_made",
    f"{ENGINE}/test_spark_interval_join.py::test_pairs_are_exact_across_attempts_and_in_time_for_windows_behind_them",
    f"{ENGINE}/test_spark_process.py::test_state_of_all_shapes_and_timers_survive_a_restart",
    f"{ENGINE}/test_spark_programs.py::test_edges_of_every_kind_at_once",
    f"{ENGINE}/test_spark_confined.py::test_sql_does_not_read_files",
    f"{ENGINE}/test_spark_reproducible.py",
]


class Server:
    """A Connect server that keeps its address from one life to the next."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = choose(2)
        self._running: list[SparkServer] = []
        self.url = self.ui = ""

    def start(self) -> None:
        """Until it serves."""
        (self.url, self.ui), self._running = connect(self._folder, self._ports)

    def kill(self) -> None:
        """SIGKILL."""
        stop(self._running)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It serves. A test that kills it starts it again."""
    server = Server(tmp_path_factory.mktemp("connect"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cluster(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestingCluster]:
    """Two task managers that work in the server; for the last tests, because it uses the server all the time."""
    spark = {"spark_master": server.url}
    folder = tmp_path_factory.mktemp("cluster")
    with TestingCluster(folder, taskmanager=spark) as testing:
        yield testing


def test_word_count_through_spark_connect(server: Server, words: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    found = answer(word_count(server.url, words[0], tmp_path))
    assert found["counts"] == found["plain"] == words[1]
    await_descriptions(server.ui, STARTED_BY_US + "before the first checkpoint", STARTED_BY_US + "after checkpoint 1")


def test_a_connect_server_admits_no_client_without_its_token(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_NAME, "of-somebody-else")
    done = word_count(server.url, tmp_path, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"error: the Spark Connect server {server.url} cannot open a session: "
    )
    assert "of-somebody-else" not in done.stderr


def test_foreach_batch_through_spark_connect_is_named_and_cancelled_with_its_subtask(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "in").write_text("a\nb\n")
    spec = json.dumps({"master": server.url, "ui": server.ui, "input": str(tmp_path / "in"), "work": str(tmp_path)})
    command = [sys.executable, foreach_process.__file__, spec]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert answer(done) == {"failure": "Canceled", "next": ["a", "b"]}
    await_descriptions(server.ui, *(f"calls v[0] attempt {number}, after checkpoint 1" for number in (1, 2)))


def test_features_beyond_queries_work_through_spark_connect(server: Server) -> None:
    """The engine's own tests in a process of their own, because a process has one kind of session."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *THROUGH_CONNECT]
    variables = {**os.environ, "LOCKGATE_TEST_SPARK": server.url}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]


def await_descriptions(ui: str, *wanted: str) -> None:
    """The UI shows a job a moment after its start."""
    turn, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    while missing := set(wanted) - set(descriptions(ui)):
        assert time.monotonic() < deadline, missing
        turn.wait(0.1)


def test_a_session_that_the_next_server_does_not_know_is_named_and_ends_the_process(
    server: Server, tmp_path: Path
) -> None:
    """The process is frozen in between, so that it meets the new server before it has missed the old one.

    That server would make a bare session of any id: no setting of ours is in it.
    """
    spec = json.dumps({"master": server.url, "work": str(tmp_path)})
    command = [sys.executable, connect_process.__file__, spec]
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
        printed = process.stdout.read().splitlines()
        assert process.wait(120) == 1
    lost = "has lost the session (it was restarted, or has ended it)"
    assert printed == [
        f"query: the Spark Connect server {lost}",
        f"the Spark Connect server {lost}",
        f"the Spark Connect server {server.url} {lost}",
    ]


def test_a_drill_through_spark_connect_is_exact(
    cluster: TestingCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leader is killed; nothing may be lost or duplicated."""
    cluster.wait_complete()
    code = run_drill(times=1, every_s=1.0, seed=5, cluster=str(cluster.cluster.directory), directory=str(tmp_path))
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert " 0 lost, 0 duplicated" in out
    assert "verdict:     pass" in out


def test_a_job_outlives_the_connect_server(server: Server, cluster: TestingCluster) -> None:
    cluster.wait_complete()
    first = cluster.pids("taskmanager")
    with cluster.ledger() as job:
        job.wait_checkpoints(2)
        server.kill()
        cluster.wait_until(lambda: not first & cluster.pids("taskmanager"), "the task managers have ended")
        server.start()
        cluster.wait_complete()
        job.wait_checkpoints(2)
        status = job.check_exact()
    assert status.restarts <= 2, "waiting for slots is no failure, but one task manager may be lost before the other"
    for number in range(2):
        log = (cluster.cluster.directory / "logs" / f"taskmanager-{number}.log").read_text()
        assert f"the Spark Connect server {server.url} has not answered for 10 s; this task manager exits" in log
        assert "Exception in thread" not in log
