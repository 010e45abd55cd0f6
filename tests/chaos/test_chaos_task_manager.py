"""A task manager dies: at random moments, and at each of its named points."""

from __future__ import annotations

import random
import signal

import pytest
from lockgate_taskmanager.runtime import faults

from tests.chaos.testing_cluster import TestingCluster
from tests.ledger_job import NEVER
from tests.share import SHARE, of_today

pytestmark = pytest.mark.chaos

PAIRS = [*zip(faults.POINTS[::2], faults.POINTS[1::2], strict=True)]
PASSAGES = {"on-deploy": 1, "before-commit": 2, "after-commit": 2}


@pytest.mark.parametrize(("first", "second"), of_today(PAIRS, min(SHARE, len(PAIRS))))
def test_task_managers_that_die_at_these_points_change_no_result(
    testing: TestingCluster, first: str, second: str
) -> None:
    """One is started again while the job runs on the other, which dies next."""
    before = testing.arm("taskmanager", 0, f"{first}:{PASSAGES.get(first, 5)}")
    with testing.ledger() as job:
        job.wait_attempt(2)
        assert before not in testing.pids("taskmanager")
        other = testing.arm("taskmanager", 1, f"{second}:{PASSAGES.get(second, 5)}")
        job.wait_attempt(3)
        assert other not in testing.pids("taskmanager")
        job.check_exact()


def test_a_job_that_is_never_restarted_survives_that_every_task_manager_is_stopped(testing: TestingCluster) -> None:
    with testing.ledger(restart=NEVER) as job:
        for number in (0, 1):  # then none is left, and it waits for the first one that returns
            job.wait_attempt(number + 1)
            testing.cluster.kill("taskmanager", number, signal.SIGTERM)
        job.wait_attempt(3)
        assert job.check_exact().restarts == 2


@pytest.mark.soak  # in every run at its points, above, and at random moments under jobs with windows and joins
@pytest.mark.parametrize("seed", [1, 2])
def test_a_task_manager_killed_at_a_random_moment_changes_no_result(testing: TestingCluster, seed: int) -> None:
    choice = random.Random(seed)
    with testing.ledger() as job:
        job.wait_checkpoints(1)
        job.pause(choice.uniform(0, 1.0))
        testing.cluster.kill("taskmanager", choice.randrange(2))
        job.wait_attempt(2)
        job.check_exact()
