"""Task managers whose Spark is a standalone cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_devtools.drill import run_drill

from .servers import OF_CLUSTER, standalone, stop
from .word_count import PATIENCE_S, STARTED_BY_US, answer, word_count

pytestmark = [pytest.mark.integration, pytest.mark.rotating, pytest.mark.first, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def standalone_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    url, servers = standalone(tmp_path_factory.mktemp("standalone"), workers=2)
    yield url
    stop(servers)


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
    """The leader is killed; nothing may be lost or duplicated."""
    spark = {"spark_master": standalone_master, "spark_options": {"spark.executor.memory": "512m", **OF_CLUSTER}}
    options = {"slots": 1, "taskmanager": spark, "start_timeout_ms": int(PATIENCE_S * 1000)}
    code = run_drill(times=1, every_s=1.0, seed=5, directory=str(tmp_path), cluster_options=options)
    out, err = capsys.readouterr()
    assert code == 0, out + err
    assert " 0 lost, 0 duplicated" in out
    assert "verdict:     pass" in out


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


def test_a_server_that_is_not_spark_connect_is_named_soon(standalone_master: str, tmp_path: Path) -> None:
    pytest.importorskip("grpc_status", reason="pip install 'lockgate[connect]'")
    url = standalone_master.replace("spark://", "sc://")
    done = word_count(url, tmp_path, tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"error: the server at {url} does not speak Spark Connect")
