"""Stop, rescale and disposal over gRPC, with real ZooKeeper and task managers that speak the real protocol."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from lockgate_coordinator.job.deploy_size import check_size
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.removals import Removals
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import (
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    Running,
    graph,
    leading,
    metadata_files,
    poll,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S
from tests.layouts import places

pytestmark = pytest.mark.integration


def _run(api: Caller, key: str = "job", restore_from: str = "", interval_ms: int = 60_000) -> None:
    api("Submit", m.SubmitRequest(key, graph(interval_ms=interval_ms), restore_from))
    api.state(key, JobState.RUNNING)


def _shape(deploy: object) -> dict[str, int]:
    assert isinstance(deploy, m.Deploy)
    return dict(Counter(vertex for vertex, _ in places(deploy)))


def _to(parallelism: int) -> tuple[m.VertexParallelism, ...]:
    return (m.VertexParallelism("count", parallelism),)


def test_a_rescaled_job_continues_at_the_new_parallelism_also_under_the_next_leader(
    leader: Coordinator,
    api: Caller,
    caller: NewCaller,
    new_coordinator: NewCoordinator,
    new_task_manager: NewTaskManager,
) -> None:
    task_manager = new_task_manager(slots=3).connect(leader.address)
    _run(api)
    before = _shape(task_manager.expect(m.Deploy))
    answer = api("Rescale", m.RescaleRequest("job", _to(3)))
    assert {subtask.vertex_id: subtask.parallelism for subtask in answer.parallelism} == {**before, "count": 3}
    assert _shape(task_manager.expect(m.Deploy, 2)) == {**before, "count": 3}
    api.state("job", JobState.RUNNING)
    assert api("Rescale", m.RescaleRequest("job", _to(3))).after_attempt == 0, "asked again, it is so already"
    other = new_coordinator()
    leader.stop()
    leading(other)
    task_manager.connect(other.address)
    assert _shape(task_manager.expect(m.Deploy, 3)) == {**before, "count": 3}
    caller(other).state("job", JobState.RUNNING)


def test_too_few_slots_are_a_sentence_and_nothing_is_stopped(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager(slots=2).connect(leader.address)
    _run(api)
    refused = api.fails("Rescale", m.RescaleRequest("job", _to(3)))
    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "needs 3 slots, and 2 are available" in refused.details()
    assert not task_manager.bodies(m.CancelAttempt)


@pytest.mark.parametrize("drain", [False, True])
def test_a_stopped_job_has_ended_with_its_savepoint_and_another_starts_from_it(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager, drain: bool
) -> None:
    task_manager = new_task_manager(slots=2).connect(leader.address)
    _run(api)
    savepoint = api("Stop", m.StopRequest("job", drain)).savepoint
    assert savepoint.kind is m.CheckpointKind.SAVEPOINT
    assert bool(task_manager.bodies(m.DrainSources)) is drain
    api.state("job", JobState.FINISHED)
    assert api("Stop", m.StopRequest("job", drain)).savepoint == savepoint, "asked again"
    assert api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints == (savepoint,)
    assert Path(savepoint.pointer.removeprefix("file://")).is_file()
    _run(api, "next", savepoint.pointer)
    deploy = task_manager.expect(m.Deploy, 2)
    assert isinstance(deploy, m.Deploy)
    assert deploy.restored_checkpoint_id == savepoint.checkpoint_id


def test_a_start_that_could_not_be_sent_to_the_task_managers_is_refused_at_once(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_task_manager(slots=4).connect(leader.address)
    _run(api)
    pointer = api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint.pointer
    monkeypatch.setattr(check_size, "__defaults__", (10,))
    refused = api.fails("Submit", m.SubmitRequest("next", graph(interval_ms=60_000), pointer))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.details().startswith(f"cannot start from {pointer} on this cluster: The deployment message")
    assert api.fails("Get", m.GetRequest("next")).code() is grpc.StatusCode.NOT_FOUND


def test_a_repeated_savepoint_request_gets_the_same_one_from_every_leader_and_after_the_end(
    running: Callable[..., Running], new_coordinator: NewCoordinator, caller: NewCaller
) -> None:
    leader, api, task_manager, _ = running(checkpoints=1)
    request = m.TriggerSavepointRequest("job", request_id="mine")
    taken = api("TriggerSavepoint", request).savepoint
    assert taken.request_ids == ("mine",)
    assert api("TriggerSavepoint", request).savepoint == taken
    leader.stop()
    successor = leading(new_coordinator())
    after = caller(successor)
    assert after("TriggerSavepoint", request).savepoint == taken, "also before the job runs again"
    task_manager.connect(successor.address)
    after.state("job", JobState.RUNNING)
    other = after("TriggerSavepoint", m.TriggerSavepointRequest("job", request_id="other")).savepoint
    assert other.checkpoint_id > taken.checkpoint_id
    after("Cancel", m.CancelRequest("job"))
    after.state("job", JobState.CANCELED)
    assert after("TriggerSavepoint", request).savepoint == taken
    refused = after.fails("TriggerSavepoint", m.TriggerSavepointRequest("job", request_id="late"))
    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    bad = after.fails("TriggerSavepoint", m.TriggerSavepointRequest("job", request_id="(order)"))
    assert bad.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_savepoint_is_deleted_when_no_longer_needed(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    new_task_manager(slots=4).connect(leader.address)
    _run(api)
    old, newest = (api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint for _ in range(2))
    refused = api.fails("DisposeSavepoint", m.DisposeSavepointRequest("job", newest.checkpoint_id))
    assert "newest snapshot of job job" in refused.details()
    _run(api, "next", old.pointer)
    refused = api.fails("DisposeSavepoint", m.DisposeSavepointRequest("job", old.checkpoint_id))
    assert "job next starts from this savepoint" in refused.details()
    api("TriggerSavepoint", m.TriggerSavepointRequest("next"))
    folder = Path(old.pointer.removeprefix("file://")).parent
    assert folder.is_dir()
    for _ in range(2):  # the second time it is gone already
        api("DisposeSavepoint", m.DisposeSavepointRequest("job", old.checkpoint_id))
        assert api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints == (newest,)
        assert not folder.exists()


def test_a_result_lists_no_savepoint_that_is_being_deleted(
    running: Callable[..., Running], storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, api, _, _ = running(checkpoints=1)
    gone, kept = (api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint for _ in range(2))
    api.until("job", lambda status: status.last_checkpoint.checkpoint_id > kept.checkpoint_id)
    whole, asked, may_go = Removals.forget_checkpoint, threading.Event(), threading.Event()

    def slowly(self: Removals, key: str, number: int) -> None:
        if number == gone.checkpoint_id:
            asked.set()
            assert may_go.wait(WAIT_S)
        whole(self, key, number)

    monkeypatch.setattr(Removals, "forget_checkpoint", slowly)
    with ThreadPoolExecutor(1) as pool, ExitStack() as at_last:
        at_last.callback(may_go.set)  # whatever fails: the deletion would hold up the end of the test
        disposed = pool.submit(api, "DisposeSavepoint", m.DisposeSavepointRequest("job", gone.checkpoint_id))
        assert asked.wait(WAIT_S)
        api("Cancel", m.CancelRequest("job"))
        late = api.fails("DisposeSavepoint", m.DisposeSavepointRequest("job", kept.checkpoint_id))
        assert late.code() is grpc.StatusCode.UNAVAILABLE
        assert "about to end" in (late.details() or "")
        jobs = leader.dispatcher.call(lambda term: term.jobs)
        poll(lambda: (job := jobs.get("job")) is None or job.result)  # it is about to be written, or is
        may_go.set()
        disposed.result(WAIT_S)
    api.state("job", JobState.CANCELED)
    listed = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    assert [checkpoint.checkpoint_id for checkpoint in listed] == [kept.checkpoint_id]
    poll(lambda: [path.parent.name for path in metadata_files(storage)] == [f"chk-{kept.checkpoint_id}"])


def test_a_checkpoint_is_not_disposed_of(leader: Coordinator, api: Caller, new_task_manager: NewTaskManager) -> None:
    new_task_manager(slots=2).connect(leader.address)
    _run(api, interval_ms=100)
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    api("TriggerSavepoint", m.TriggerSavepointRequest("job"))

    codes: list[grpc.StatusCode] = []

    def is_refused() -> bool:
        """False when there is none, or it was subsumed in the meantime."""
        found = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
        checkpoints = [checkpoint for checkpoint in found if checkpoint.kind is m.CheckpointKind.CHECKPOINT]
        try:
            for checkpoint in checkpoints:
                api("DisposeSavepoint", m.DisposeSavepointRequest("job", checkpoint.checkpoint_id))
        except grpc.RpcError as error:
            codes.append(error.code())
        return bool(codes)

    poll(is_refused)
    assert codes == [grpc.StatusCode.INVALID_ARGUMENT]


def test_a_savepoint_of_a_job_that_has_ended_is_disposed_of_forevery_later_leader(
    leader: Coordinator,
    api: Caller,
    caller: NewCaller,
    new_coordinator: NewCoordinator,
    new_task_manager: NewTaskManager,
) -> None:
    new_task_manager(slots=2).connect(leader.address)
    _run(api)
    savepoint = api("Stop", m.StopRequest("job")).savepoint
    api.state("job", JobState.FINISHED)
    api("DisposeSavepoint", m.DisposeSavepointRequest("job", savepoint.checkpoint_id))
    assert not Path(savepoint.pointer.removeprefix("file://")).exists()
    assert not api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    leader.stop()
    after = caller(leading(new_coordinator()))
    assert not after("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints


@pytest.mark.parametrize(
    ("method", "request_"),
    [("Stop", m.StopRequest("no")), ("Rescale", m.RescaleRequest("no", _to(2)))],
)
def test_unknown_jobs_are_not_found(api: Caller, method: str, request_: object) -> None:
    assert api.fails(method, request_).code() is grpc.StatusCode.NOT_FOUND
