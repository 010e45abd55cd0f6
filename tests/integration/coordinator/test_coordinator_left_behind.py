"""Of a job that has ended, exactly what is meant to stay is left: in ZooKeeper, in the storage, on task managers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import (
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
    metadata_files,
    poll,
)
from tests.integration.coordinator.fake_task_manager import FakeTaskManager

pytestmark = pytest.mark.integration

PATHS = Paths("default")


def nodes(server: EmbeddedZooKeeper, path: str = PATHS.base) -> set[str]:
    """The node and those below it, but not those that end with a process."""
    session = server.open()
    node = session.get(path)
    if node is None or node.owner:
        return set()
    return {path}.union(*(nodes(server, f"{path}/{name}") for name in session.children(path)))


def submitted(api: Caller, **options: bool) -> str:
    """The id of a run with copies on task managers, and with a graph that is too large for ZooKeeper."""
    source, count = graph(**options).vertices
    code = m.Operator("code", kind=m.PythonTransform(b"x" * 1_000_000))
    wide = dataclasses.replace(source, operators=(*source.operators, code))
    files = m.StateBackend(m.FilesystemBackend())
    job = dataclasses.replace(graph(**options), vertices=(wide, count), standby_replicas=1, state_backend=files)
    run_id: str = api("Submit", m.SubmitRequest("job", job)).run_id
    return run_id


def ended(end: JobState, api: Caller, task_manager: FakeTaskManager) -> None:
    if end is JobState.CANCELED:
        api("Cancel", m.CancelRequest("job"))
    elif end is JobState.FINISHED:
        task_manager.report(m.SubtaskPhase.SUBTASK_EXHAUSTED)
    else:
        task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, m.FailureCause.USER_ERROR, "no such column")
    api.state("job", end)


@pytest.mark.parametrize("end", [JobState.FINISHED, JobState.FAILED, JobState.CANCELED], ids=lambda end: end.name)
@pytest.mark.parametrize("retain", [False, True])
def test_an_ended_job_leaves_its_result_and_the_checkpoint_that_it_keeps(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    server: EmbeddedZooKeeper,
    storage: Path,
    end: JobState,
    retain: bool,
) -> None:
    """Two leaders had their part in it. What is kept goes with the order to dispose of it."""
    first = leading(new_coordinator())
    task_manager, other = new_task_manager(), new_task_manager(slots=1)
    for each in (task_manager, other):
        each.connect(first.address)
    api = caller(first)
    before = nodes(server) | {PATHS.leaders}
    run_id = submitted(api, retain_after_end=retain)
    api.until("job", lambda status: status.checkpoints_completed >= 2)
    first.stop()
    leader = leading(new_coordinator())
    for each in (task_manager, other):
        each.connect(leader.address)
    api = caller(leader)
    api.until("job", lambda status: status.state is JobState.RUNNING and status.checkpoints_completed >= 1)
    assert nodes(server) > before - {PATHS.leaders}
    runner = next(each for each in (task_manager, other) if each.running)
    ended(end, api, runner)

    is_kept = end is JobState.FAILED or retain
    poll(lambda: nodes(server) | {PATHS.leaders} == before | {PATHS.result("job")})
    poll(lambda: len(metadata_files(storage)) == int(is_kept))
    run = storage / "default" / "job" / run_id
    poll(lambda: {path.name for path in run.rglob("*")} - {"_metadata"} <= _names(api, is_kept))
    drop = m.KeepCopies(m.AttemptId("job", run_id))
    for each in (task_manager, other):
        each.wait(lambda each=each: drop in each.bodies_now(m.KeepCopies))  # type: ignore[misc]
    if is_kept:
        (kept,) = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
        api("DisposeSavepoint", m.DisposeSavepointRequest("job", kept.checkpoint_id))
    poll(lambda: not [path for path in (storage / "default").rglob("*") if path.is_file()])


def _names(api: Caller, is_kept: bool) -> set[str]:
    """The folders that are left of a run, and its graph."""
    if not is_kept:
        return set()
    (kept,) = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    return {f"chk-{kept.checkpoint_id}"}


def test_a_result_that_is_not_kept_any_more_leaves_nothing(
    running_jobs: Caller, server: EmbeddedZooKeeper, storage: Path
) -> None:
    """The oldest ones go when there are too many; of these jobs only snapshots that were kept on purpose stay."""
    for number in range(4):
        key = f"job-{number}"
        running_jobs("Submit", m.SubmitRequest(key, graph()))
        running_jobs("Cancel", m.CancelRequest(key))
        running_jobs.state(key, JobState.CANCELED)
    poll(lambda: not any(path.startswith(f"{PATHS.jobs}/") for path in nodes(server)))
    results = {path for path in nodes(server) if path.startswith(f"{PATHS.results}/")}
    assert PATHS.result("job-3") in results
    assert PATHS.result("job-0") not in results
    poll(lambda: not [path for path in storage.rglob("*") if path.is_file()])


@pytest.fixture
def running_jobs(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    monkeypatch: pytest.MonkeyPatch,
) -> Caller:
    monkeypatch.setitem(JobRecords.__init__.__kwdefaults__, "keep_results", 2)
    leader = leading(new_coordinator())
    new_task_manager(slots=4).connect(leader.address)
    return caller(leader)
