"""Two versions in one cluster: upgraded process by process under a running job, and what does not fit is refused."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_proto.messages import JobState
from lockgate_proto.release import own_version

from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S
from tests.future_version import VERSION, FutureVersion

pytestmark = [pytest.mark.chaos, pytest.mark.rotating, pytest.mark.first]


@pytest.fixture
def upgrading(tmp_path: Path) -> Iterator[TestingCluster]:
    """A cluster of its own: what the next version has written, this one cannot read."""
    with TestingCluster(tmp_path / "two-versions", coordinator={"heartbeat_timeout_ms": 20_000}) as testing:
        yield testing


def restart(testing: TestingCluster, role: str, *numbers: int) -> None:
    """Stops processes, all at once; the cluster starts them again in the version that PYTHONPATH names."""
    before = {number: testing.cluster.kill(role, number, signal.SIGTERM) for number in numbers}
    for number, pid in before.items():
        testing.cluster.wait_ready(role, number, PATIENCE_S, other_than=pid)


def version_of(testing: TestingCluster, process: str) -> str:
    """As its page of metrics says."""
    with urllib.request.urlopen(f"http://{testing.cluster.metrics[process]}/metrics", timeout=30) as page:
        line = next(line for line in page.read().decode().splitlines() if line.startswith("lockgate_process_info{"))
    return str(line.partition('version="')[2].partition('"')[0])


def log_of(testing: TestingCluster, process: str) -> str:
    return (testing.directory / "cluster/logs" / f"{process}.log").read_text(encoding="utf-8")


def test_a_running_job_survives_an_upgrade_and_an_older_version_leaves_it_alone(
    upgrading: TestingCluster, tmp_path: Path
) -> None:
    testing, future = upgrading, FutureVersion(tmp_path / "future")
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        testing.environment["PYTHONPATH"] = future.path
        leader = testing.leader_number()
        restart(testing, "coordinator", 1 - leader)
        testing.wait_complete()
        assert (version_of(testing, f"coordinator-{1 - leader}"), version_of(testing, f"coordinator-{leader}")) == (
            VERSION,
            own_version(),
        )
        job.wait_checkpoints(1)
        restart(testing, "coordinator", leader)
        testing.wait_complete()
        job.wait_attempt(2)  # the new leader, with the old task managers
        restart(testing, "taskmanager", 0)
        testing.wait_complete()
        job.wait_attempt(3)
        future.work_only_with_itself()
        restart(testing, "taskmanager", 1)
        testing.wait_complete()
        job.wait_attempt(4)
        assert {version_of(testing, process) for process in testing.cluster.metrics} == {VERSION}

        del testing.environment["PYTHONPATH"]  # a mistake: back to the older version, which cannot read the records
        restart(testing, "coordinator", 0, 1)
        testing.wait_until(lambda: testing.client.job(job.key).state is JobState.HELD_BACK, "the job is held back")
        reads = f"has format 3, and Lockgate {own_version()} reads formats up to 2: a newer version has written it"
        assert reads in testing.client.job(job.key).message
        why = f"runs Lockgate {VERSION}, which works with revision 3 of the messages and later, but this coordinator"
        testing.wait_until(lambda: why in log_of(testing, "taskmanager-1"), "the task manager logs why it is refused")

        testing.environment["PYTHONPATH"] = future.path
        restart(testing, "coordinator", 0, 1)
        testing.wait_complete()
        job.wait_attempt(5)
        job.check_exact()
    history.check()
