"""A leader dies or stands still in the middle of a submission: the job is there once, runs, and has a result."""

from __future__ import annotations

import pytest
from lockgate_coordinator.runtime import faults
from lockgate_proto.messages import JobState

from tests.chaos.testing_cluster import CONTINUE, TestingCluster
from tests.drained import PATIENCE_S

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("point", faults.SUBMISSION_POINTS)
def test_a_leader_that_dies_in_the_middle_of_a_submission_leaves_one_job(testing: TestingCluster, point: str) -> None:
    """The client asks the next leader; whether the dead one had written the job, only that one can know."""
    armed, before = _armed_leader(testing, point)
    with testing.history() as history, testing.ledger() as job:
        testing.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)
        assert job.submission.created == (point == faults.SUBMISSION_POINTS[0])
        assert testing.client.submit(job.key, job.graph).run_id == job.submission.run_id
        testing.wait_until(lambda: bool(history.completed), "a checkpoint is in ZooKeeper")
        job.check_exact()
        again = testing.client.submit(job.key, job.graph)
        assert (again.run_id, again.created) == (job.submission.run_id, False), "it has a result, and is not run again"
    assert len(history.epochs) > 1, "the armed leader has died before it was looked at"
    assert history.submitted[job.key].run_id == job.submission.run_id
    history.check()


def test_a_submission_that_a_replaced_leader_had_on_its_lips_creates_nothing(testing: TestingCluster) -> None:
    """Another leader has taken the job in meanwhile."""
    armed, pid = _armed_leader(testing, f"stop:{faults.SUBMISSION_POINTS[0]}")
    try:
        with testing.history() as history, testing.ledger() as job:  # returns when the other one has answered
            testing.wait_until(lambda: not testing.is_in_line(pid), "the frozen leader's session is over")
            testing.cluster.kill("coordinator", armed, CONTINUE)
            testing.wait_until(lambda: testing.is_in_line(pid), "the zombie should live on as a standby")
            job.wait_checkpoints(2)  # while the zombie is back
            status = job.check_exact()
    finally:
        if testing.cluster.pids().get(f"coordinator-{armed}") == pid:
            testing.cluster.kill("coordinator", armed, CONTINUE)
    history.check()
    submitted = history.submitted[job.key]
    assert (submitted.run_id, submitted.token) == (job.submission.run_id, history.epochs[-1])
    assert (status.state, status.attempt) == (JobState.FINISHED, 1)


def _armed_leader(testing: TestingCluster, fault: str) -> tuple[int, int]:
    """The number and process id of a leader in which the fault waits for a submission."""
    armed = testing.arm_standby(f"{fault}:1")
    pid = testing.cluster.pids()[f"coordinator-{armed}"]
    testing.kill_leader()
    testing.wait_until(lambda: testing.cluster.leader_number() == armed, "the armed one leads")
    return armed, pid
