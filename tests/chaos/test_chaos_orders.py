"""The leader dies while a job is rescaled or stopped with a savepoint: done or undone, never half; results exact."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from lockgate_coordinator.runtime import faults
from lockgate_proto.messages import LeaderFailover

from lockgate.client.rescale import rescale
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S
from tests.ledger_job import LedgerJob

pytestmark = pytest.mark.chaos


class _Order:
    """Something that a client does on a thread of its own while the test kills."""

    def __init__(self, do: Callable[[], object]) -> None:
        self._do = do
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._do()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        if self._error is not None:
            raise self._error


def _rescale(testing: TestingCluster, job: LedgerJob, parallelism: int) -> Callable[[], object]:
    def do() -> None:
        status = rescale(testing.client, job.key, {"ledger": parallelism, "totals": parallelism})
        counts = Counter(subtask.vertex_id for subtask in status.subtasks)
        assert (counts["generate"], counts["ledger"], counts["totals"]) == (2, parallelism, parallelism)

    return do


@pytest.mark.rotating
def test_a_leader_killed_while_it_rescales_up_and_down_changes_no_result(testing: TestingCluster) -> None:
    choice = random.Random(11)
    with testing.history() as history, testing.ledger() as job:
        job.wait_checkpoints(1)
        for attempt, parallelism in ((2, 3), (3, 2)):
            order = _Order(_rescale(testing, job, parallelism))
            job.pause(choice.uniform(0, 0.4))
            number = testing.kill_leader()
            order.join()
            job.wait_attempt(attempt)
            job.wait_checkpoints(1)
            testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        job.check_exact()
    history.check()


@pytest.mark.parametrize(
    "point",
    [
        faults.ORDER_POINTS[0],
        *(pytest.param(order_point, marks=pytest.mark.soak) for order_point in faults.ORDER_POINTS[1:]),
    ],
)
def test_a_leader_that_dies_at_this_point_of_a_rescale_leaves_it_done_or_undone(
    testing: TestingCluster, point: str
) -> None:
    armed = testing.arm_standby(f"{point}:1")
    before = testing.cluster.pids()[f"coordinator-{armed}"]
    with testing.ledger() as job:
        job.wait_checkpoints(1)
        testing.kill_leader()  # now the armed one leads
        job.wait_attempt(2)
        order = _Order(_rescale(testing, job, 3))
        testing.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)  # it has died at its point
        order.join()
        job.check_exact()


@pytest.mark.parametrize("failover", [LeaderFailover.LEADER_FAILOVER_RESTART, LeaderFailover.LEADER_FAILOVER_REATTACH])
def test_a_stop_that_the_leader_does_not_survive_is_carried_out_and_its_savepoint_is_whole(
    testing: TestingCluster, failover: LeaderFailover
) -> None:
    pointers: list[str] = []
    with testing.ledger(failover=failover) as job:
        job.wait_checkpoints(1)
        order = _Order(lambda: pointers.append(job.stop().pointer))
        job.pause(0.05)
        number = testing.kill_leader()
        order.join()
        job.check_exact()
        testing.cluster.wait_ready("coordinator", number, PATIENCE_S)
        assert [savepoint.pointer for savepoint in testing.client.savepoints(job.key)] == pointers
        metadata = Path(pointers[0].removeprefix("file://"))
        assert metadata.is_file()
        testing.client.dispose_savepoint(job.key, testing.client.savepoints(job.key)[0].checkpoint_id)
        assert not testing.client.savepoints(job.key)
        assert not metadata.parent.exists()


@pytest.mark.parametrize("drain", [pytest.param(False, marks=pytest.mark.soak), True])
def test_a_job_that_starts_from_a_stop_continues_without_a_gap_or_a_repeat(
    testing: TestingCluster, drain: bool
) -> None:
    with testing.ledger() as job:
        job.wait_checkpoints(2)
        savepoint = testing.client.stop(job.key, drain=drain)
        ended = job.wait_end()
    assert ended.last_checkpoint == savepoint, "nothing was committed after it"
    with testing.ledger(follows=(job, savepoint.pointer)) as successor:
        successor.wait_checkpoints(2)
        successor.check_exact()
