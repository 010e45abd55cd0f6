"""A leader dies or stands still in the middle of a submission: the job is there once, runs, and has a result."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier

import pytest
from lockgate_coordinator.job.local_copies import files_of
from lockgate_coordinator.runtime import faults
from lockgate_ha.paths import Paths
from lockgate_proto.codec import decode
from lockgate_proto.messages import CheckpointMetadata, JobGraph, JobState, NoRestart, RestartStrategy, SubmitResponse

from lockgate.client import Client
from tests.chaos.keyed_job import KeyedJob
from tests.chaos.test_chaos_increments import BACKENDS
from tests.chaos.testing_cluster import CONTINUE, TestingCluster
from tests.drained import PATIENCE_S, path_of

pytestmark = pytest.mark.chaos

_CLIENTS = 10


@pytest.mark.soak  # ten clients at once, below, make the same demands
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


@pytest.mark.parametrize("point", faults.SUBMISSION_POINTS)
def test_ten_clients_that_submit_one_key_through_a_failover_make_one_job(testing: TestingCluster, point: str) -> None:
    armed, before = _armed_leader(testing, point)
    with ExitStack() as stack, testing.history() as history:
        clients = [stack.enter_context(testing.new_client()) for _ in range(_CLIENTS)]
        answers: list[SubmitResponse] = []

        def submit(key: str, graph: JobGraph, restore_from: str) -> SubmitResponse:
            together = Barrier(_CLIENTS)

            def one_of_them(client: Client) -> SubmitResponse:
                together.wait(PATIENCE_S)
                return client.submit(key, graph, restore_from)

            with ThreadPoolExecutor(_CLIENTS) as pool:
                answers.extend(pool.map(one_of_them, clients))
            return answers[0]

        job = stack.enter_context(testing.ledger(submit=submit))
        testing.cluster.wait_ready("coordinator", armed, PATIENCE_S, other_than=before)
        assert {answer.run_id for answer in answers} == {job.submission.run_id}
        created = sum(answer.created for answer in answers)
        assert created == (point == faults.SUBMISSION_POINTS[0]), (
            "the leader that had written the job answered no client"
        )
        assert testing.client.submit(job.key, job.graph).run_id == job.submission.run_id
        testing.wait_until(lambda: bool(history.completed), "a checkpoint is in ZooKeeper")
        job.wait_checkpoints(1)
        job.check_exact()
        again = testing.client.submit(job.key, job.graph)
        assert (again.run_id, again.created) == (job.submission.run_id, False), "it has a result, and is not run again"
    assert len(history.epochs) > 1, "the armed leader has died before it was looked at"
    assert history.submitted[job.key].run_id == job.submission.run_id
    history.check()


@pytest.mark.parametrize("end", [JobState.CANCELED, JobState.FINISHED, JobState.FAILED], ids=lambda end: end.name)
def test_an_ended_job_leaves_its_result_and_nothing_else(testing: TestingCluster, end: JobState) -> None:
    """In ZooKeeper, in the storage and on the task managers, though a leader and a task manager died while it ran.

    One that has failed leaves its newest checkpoint, too, until that is disposed of.
    """
    nodes, files = testing.nodes(), testing.stored_files()
    changes = {"restart": RestartStrategy(NoRestart())} if end is JobState.FAILED else {}
    key = f"leaves-{end.name.lower()}"
    with KeyedJob(testing, key, BACKENDS["filesystem"], standby_replicas=1, **changes) as job:
        job.wait_checkpoints(2)
        leader = testing.kill_leader()
        job.wait_checkpoints(2, attempt=2)
        testing.wait_until(lambda: bool(testing.local_files()), "copies are kept")
        assert testing.nodes() > nodes
        assert testing.stored_files() > files
        testing.cluster.kill("taskmanager", 0)
        if end is JobState.FAILED:
            job.wait_end(end)
        else:
            job.wait_checkpoints(2, attempt=3)
            testing.wait_until(lambda: bool(testing.local_files()), "copies are kept")
        if end is JobState.CANCELED:
            testing.client.cancel(job.key)
            job.wait_end(end)
        elif end is JobState.FINISHED:
            disposed = job.check_exact().last_checkpoint  # the savepoint that it was drained with
            assert disposed is not None
            testing.client.dispose_savepoint(job.key, disposed.checkpoint_id)
    testing.cluster.wait_ready("coordinator", leader, PATIENCE_S)
    result = Paths(testing.cluster.options.cluster).result(job.key)
    testing.wait_until(lambda: testing.nodes() == nodes | {result}, "no other node is left")
    testing.wait_until(lambda: not testing.local_files(), "no copy and no state is left on a task manager")
    if end is JobState.FAILED:
        (kept,) = testing.client.checkpoints(job.key)
        testing.wait_until(lambda: testing.stored_files() == files | _files_of(path_of(kept)), "no other file is left")
        testing.client.dispose_savepoint(job.key, kept.checkpoint_id)
    testing.wait_until(lambda: testing.stored_files() == files, "no file is left")


def _files_of(metadata: Path) -> set[Path]:
    """All files of a snapshot."""
    found = decode(CheckpointMetadata, metadata.read_bytes())
    handles = [handle for state in found.subtasks for handle in files_of(state)]
    return {metadata, *(Path(handle.path.removeprefix("file://")) for handle in handles)}


def _armed_leader(testing: TestingCluster, fault: str) -> tuple[int, int]:
    """The number and process id of a leader in which the fault waits for a submission."""
    armed = testing.arm_standby(f"{fault}:1")
    pid = testing.cluster.pids()[f"coordinator-{armed}"]
    testing.kill_leader()
    testing.wait_until(lambda: testing.cluster.leader_number() == armed, "the armed one leads")
    return armed, pid
