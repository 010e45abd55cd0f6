"""Task managers whose Spark is elsewhere: a standalone cluster, a Connect server."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.drill import run_drill

from .foreach_process import descriptions
from .servers import OF_CLUSTER, TOKEN_NAME

pytestmark = [pytest.mark.integration, pytest.mark.first, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).with_name("word_count_process.py")
FOREACH = Path(__file__).with_name("foreach_process.py")
ROOT = Path(__file__).resolve().parents[3]
ENGINE = Path(__file__).parent.with_name("taskmanager_spark")
THROUGH_CONNECT = [  # event time, files of JSON without options, joins, functions with state
    f"{ENGINE}/test_spark_windows.py::test_windows_fire_while_the_stream_goes_on",
    f"{ENGINE}/test_spark_windows.py::test_sessions_are_exact_across_attempts",
    f"{ENGINE}/test_spark_windows.py::test_the_highest_time_is_known_behind_a_view_that_the_author_has_made",
    f"{ENGINE}/test_spark_interval_join.py::test_pairs_are_exact_across_attempts_and_in_time_for_windows_behind_them",
    f"{ENGINE}/test_spark_process.py::test_state_of_all_shapes_and_timers_survive_a_restart",
    f"{ENGINE}/test_spark_programs.py::test_edges_of_every_kind_at_once",
]
PATIENCE_S = 500.0
STARTED_BY_US = "words source[0] attempt 1, "


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """A folder of text files, and its word counts."""
    folder = tmp_path_factory.mktemp("words")
    choice = random.Random(3)
    counted: Counter[str] = Counter()
    for number in range(4):
        lines = [" ".join(f"w{int(choice.paretovariate(0.8))}" for _ in range(8)) for _ in range(4000)]
        counted.update(word for line in lines for word in line.split(" "))
        (folder / f"{number}.txt").write_text("\n".join(lines))
    return folder, dict(counted)


def word_count(
    master: str, folder: Path, work: Path, executors: int = 0, **options: str
) -> subprocess.CompletedProcess[str]:
    """Runs the engine in a process of its own, once it has so many executors."""
    spec = {"master": master, "options": options, "input": str(folder), "work": str(work), "executors": executors}
    command = [sys.executable, str(SCRIPT), json.dumps(spec)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What it printed."""
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def drill(spark: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The leader is killed; nothing may be lost or duplicated."""
    options = {"slots": 1, "taskmanager": spark, "start_timeout_ms": int(PATIENCE_S * 1000)}
    code = run_drill(times=1, every_s=1.0, seed=5, directory=str(folder), cluster_options=options)
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert " 0 lost, 0 duplicated" in out
    assert "verdict:     pass" in out


def test_word_count_runs_on_the_executors(
    standalone_master: str, words: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    options = {"spark.executor.memory": "512m", "spark.ui.enabled": "true", **OF_CLUSTER}
    options["spark.ui.retainedJobs"] = "1000"  # all, however many a slow one makes
    found = answer(word_count(standalone_master, words[0], tmp_path, 2, **options))
    assert found["counts"] == found["plain"] == words[1]
    assert found["application"] == "lockgate tm-1"
    tasks = found["tasks"]
    assert tasks.pop("driver") == 0
    assert len(tasks) == 2, "one on each worker"
    assert sum(tasks.values()) >= len(found["jobs"])
    named = set(found["jobs"])
    assert {STARTED_BY_US + "before the first checkpoint", STARTED_BY_US + "after checkpoint 1"} <= named
    assert "warm-up of the task manager" in named
    assert all(name.startswith(("words source[", "warm-up")) for name in named)
    assert found["ui"].startswith("http://127.0.0.1:"), "at the address by which the master was reached"
    assert found["bound"]
    assert all(address.endswith("0100007F") for address in found["bound"]), "and at no other"


def test_a_drill_on_that_cluster_is_exact(
    standalone_master: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drill(
        {"spark_master": standalone_master, "spark_options": {"spark.executor.memory": "512m", **OF_CLUSTER}},
        tmp_path,
        capsys,
    )


def test_a_driver_without_the_secret_of_the_cluster_does_not_start(standalone_master: str, tmp_path: Path) -> None:
    done = word_count(standalone_master, tmp_path, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"error: there is no secret for the Spark master {standalone_master}, so anyone who reaches this driver could"
    )


def test_no_executor_is_one_sentence_and_no_hang(standalone_master: str, tmp_path: Path) -> None:
    options = {"spark.executor.memory": "64g", "spark.scheduler.maxRegisteredResourcesWaitingTime": "2s"}
    done = word_count(standalone_master, tmp_path, tmp_path, **options, **OF_CLUSTER)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"error: the Spark master {standalone_master} has given no executor (no worker has a free core and 64g,"
        " spark.executor.memory) for 2 s; start workers, or free some of them"
    )


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pip install 'lockgate[connect]'")
def test_word_count_through_spark_connect(
    connect_server: tuple[str, str], words: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    url, ui = connect_server
    found = answer(word_count(url, words[0], tmp_path))
    assert found["counts"] == found["plain"] == words[1]
    await_descriptions(ui, STARTED_BY_US + "before the first checkpoint", STARTED_BY_US + "after checkpoint 1")


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pip install 'lockgate[connect]'")
def test_a_connect_server_admits_no_client_without_its_token(
    connect_server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_NAME, "of-somebody-else")
    done = word_count(connect_server[0], tmp_path, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"error: the Spark Connect server {connect_server[0]} cannot open a session: "
    )
    assert "of-somebody-else" not in done.stderr


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pip install 'lockgate[connect]'")
def test_foreach_batch_through_spark_connect_is_named_and_cancelled_with_its_subtask(
    connect_server: tuple[str, str], tmp_path: Path
) -> None:
    url, ui = connect_server
    (tmp_path / "in").write_text("a\nb\n")
    spec = json.dumps({"master": url, "ui": ui, "input": str(tmp_path / "in"), "work": str(tmp_path)})
    done = subprocess.run(
        [sys.executable, str(FOREACH), spec], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert answer(done) == {"failure": "Canceled", "next": ["a", "b"]}
    await_descriptions(ui, *(f"calls v[0] attempt {number}, after checkpoint 1" for number in (1, 2)))


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pip install 'lockgate[connect]'")
def test_what_rests_on_more_than_a_query_works_through_spark_connect(connect_server: tuple[str, str]) -> None:
    """The engine's own tests in a process of their own, because a process has one kind of session."""
    url, _ = connect_server
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *THROUGH_CONNECT]
    variables = {**os.environ, "LOCKGATE_TEST_SPARK": url}
    done = subprocess.run(
        command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:]


def await_descriptions(ui: str, *wanted: str) -> None:
    """The UI hears of a job a moment after whoever has started it."""
    turn, deadline = threading.Event(), time.monotonic() + PATIENCE_S
    while missing := set(wanted) - set(descriptions(ui)):
        assert time.monotonic() < deadline, missing
        turn.wait(0.1)


@pytest.mark.skipif(importlib.util.find_spec("grpc_status") is None, reason="pip install 'lockgate[connect]'")
def test_a_drill_through_spark_connect_is_exact(
    connect_server: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drill({"spark_master": connect_server[0]}, tmp_path, capsys)


def test_a_server_that_is_not_spark_connect_is_named_soon(standalone_master: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="pip install 'lockgate[connect]'")
    url = standalone_master.replace("spark://", "sc://")
    done = word_count(url, tmp_path, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: the server at {url} does not speak Spark Connect")
