"""The job API of one leader, with task managers that speak the real protocol."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from lockgate_common.security import Credentials
from lockgate_common.serving import wrong_tries
from lockgate_common.story import IllegalTransition
from lockgate_coordinator.job import effects as do
from lockgate_coordinator.job import events as ev
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_ha.embedded import EmbeddedSession, EmbeddedZooKeeper
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_ha.session import Node, Watcher
from lockgate_proto import messages as m
from lockgate_proto.layout import layout_of
from lockgate_proto.messages import JobState
from lockgate_proto.rpc import SERVICES
from lockgate_proto.status_changes import changed

from tests.integration.coordinator.conftest import (
    SECRET,
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
    metadata_files,
    poll,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S
from tests.layouts import places

pytestmark = pytest.mark.integration


def test_a_submitted_job_is_deployed_and_takes_checkpoints(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    first, second = new_task_manager().connect(leader.address), new_task_manager().connect(leader.address)
    answer = api("Submit", m.SubmitRequest("job", graph(parallelism=4)))
    assert answer.created
    deploy = first.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    assert deploy.attempt == m.AttemptId("job", answer.run_id, 1)
    assert len(places(deploy)) == 8
    deployed = layout_of(deploy).graph
    assert deployed is not None
    assert deployed.leader_failover is m.LeaderFailover.LEADER_FAILOVER_REATTACH, "the default of new jobs"
    found = {place.exchange_address: place.incarnation for place in layout_of(deploy).participants}
    assert found == {first.exchange: first.incarnation, second.exchange: second.incarnation}
    status = api.until("job", lambda status: status.checkpoints_completed >= 2)
    assert status.state is JobState.RUNNING
    assert status.leader_address == leader.address
    assert {operator.operator_id for operator in status.operators} == {"numbers", "total", "out"}
    second.expect(m.NotifyCheckpointComplete)
    stored = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    assert stored[0].pointer.endswith("/_metadata")
    assert stored[0].token == 1
    assert not stored[0].metadata


def test_submission_is_idempotent_and_another_graph_is_refused(api: Caller) -> None:
    first = api("Submit", m.SubmitRequest("job", graph()))
    again = api("Submit", m.SubmitRequest("job", graph()))
    assert (first.created, again.created) == (True, False)
    assert again.run_id == first.run_id
    other = api.fails("Submit", m.SubmitRequest("job", graph(name="other")))
    assert other.code() is grpc.StatusCode.ALREADY_EXISTS
    assert "job" in other.details()
    assert [job.job_key for job in api("List", m.ListRequest()).jobs] == ["job"]


def test_the_author_of_a_job_is_warned_at_every_submission(api: Caller) -> None:
    loose = graph(parallelism=2, mode=m.CheckpointMode.AT_LEAST_ONCE)
    count = loose.vertices[1]
    sink = m.Operator("rows", kind=m.FileSink("/out", m.FileFormat.PARQUET))
    loose = dataclasses.replace(
        loose, vertices=(loose.vertices[0], dataclasses.replace(count, operators=(*count.operators[:1], sink)))
    )
    for created in (True, False):
        answer = api("Submit", m.SubmitRequest("job", loose))
        assert answer.created is created
        assert ["'rows' may permanently show duplicate records" in warning for warning in answer.warnings] == [True]
    assert api("Get", m.GetRequest("job")).checkpoint_mode is m.CheckpointMode.AT_LEAST_ONCE


def test_a_graph_that_cannot_run_is_refused_with_every_problem(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    good = graph()
    edges = (m.Edge("source", "nowhere", m.Partitioning.HASH, ("partition",)),)
    bad = api.fails("Submit", m.SubmitRequest("job", dataclasses.replace(good, edges=edges)))
    assert bad.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "nowhere" in bad.details()
    assert api.fails("Submit", m.SubmitRequest("..", good)).code() is grpc.StatusCode.INVALID_ARGUMENT
    assert api.fails("Submit", m.SubmitRequest("job", None)).code() is grpc.StatusCode.INVALID_ARGUMENT
    new_task_manager(slots=2).connect(leader.address)
    large = api.fails("Submit", m.SubmitRequest("job", graph(parallelism=3)))
    assert large.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "3 slots" in large.details()
    lost = api.fails("Submit", m.SubmitRequest("job", good, "/nowhere/chk-1"))
    assert lost.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "/nowhere/chk-1/_metadata" in lost.details()
    assert api("List", m.ListRequest()).jobs == ()


CODE = m.Vertex("code", operators=(m.Operator("code", kind=m.KeyedProcess(("k",), b"a pickle", "", "k STRING")),))


def test_jobs_are_for_holders_of_the_secret(
    leader: Coordinator, caller: NewCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wrong_tries, "_FIRST_S", 0.0)  # each wrong call would be answered later than the one before
    stranger = caller(leader, Credentials())
    assert caller(leader)("Submit", m.SubmitRequest("job", graph())).created
    for method, request in (
        ("Submit", m.SubmitRequest("other", graph())),
        ("Submit", m.SubmitRequest("code", m.JobGraph(vertices=(CODE,)))),
        ("Cancel", m.CancelRequest("job")),
        ("TriggerSavepoint", m.TriggerSavepointRequest("job")),
    ):
        refused = stranger.fails(method, request)
        assert refused.code() is grpc.StatusCode.UNAUTHENTICATED, method
        assert refused.details() == "the credentials of this call are missing, wrong or no longer valid"
    wrong = caller(leader, Credentials(secret="some other secret"))
    assert wrong.fails("Cancel", m.CancelRequest("job")).code() is grpc.StatusCode.UNAUTHENTICATED
    for method, request in (
        ("Get", m.GetRequest("job")),
        ("List", m.ListRequest()),
        ("ListCheckpoints", m.ListCheckpointsRequest("job")),
        ("GetCluster", m.GetClusterRequest()),
        ("Watch", m.WatchRequest("job")),
    ):
        assert stranger.fails(method, request).code() is grpc.StatusCode.UNAUTHENTICATED, method
    assert stranger("GetLeader", m.GetLeaderRequest()).address == leader.address
    follow = stranger.fails("Follow", m.FollowRequest("me", 1), "FollowService")
    assert follow.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("retain", [False, True])
def test_a_job_with_its_own_storage_keeps_everything_there(
    leader: Coordinator,
    api: Caller,
    caller: NewCaller,
    new_coordinator: NewCoordinator,
    new_task_manager: NewTaskManager,
    server: EmbeddedZooKeeper,
    storage: Path,
    tmp_path: Path,
    retain: bool,
) -> None:
    task_manager = new_task_manager().connect(leader.address)
    own = tmp_path / "own storage"
    backend = m.StateBackend(m.FilesystemBackend(str(own)))
    wanted = dataclasses.replace(graph(retain_after_end=retain), state_backend=backend)
    run_id = api("Submit", m.SubmitRequest("job", wanted)).run_id
    deploy = task_manager.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    run = own / "default" / "job" / run_id
    assert deploy.checkpoint_directory == run.as_uri()
    api.until("job", lambda status: status.checkpoints_completed >= 4)
    poll(lambda: 1 <= len(metadata_files(run)) <= 3)  # subsumed ones go
    leader.stop()
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    done = after.until("job", lambda status: status.checkpoints_completed >= 1 and status.attempt == 2)
    assert done.last_checkpoint is not None
    assert done.last_checkpoint.pointer.startswith(run.as_uri())
    after("Cancel", m.CancelRequest("job"))
    after.state("job", JobState.CANCELED)
    session = server.open()
    poll(lambda: session.get(Paths("default").job("job")) is None)  # cleaned up, which comes after the end
    successor.stop()
    assert not list(storage.rglob("chk-*"))
    assert len(metadata_files(own)) == int(retain)
    assert run.exists() is retain


def test_a_job_that_failed_keeps_its_newest_checkpoint_until_it_is_disposed_of(
    leader: Coordinator,
    api: Caller,
    new_task_manager: NewTaskManager,
    storage: Path,
) -> None:
    task_manager = new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph(retain_after_end=False)))
    api.until("job", lambda status: status.checkpoints_completed >= 2)
    task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, m.FailureCause.USER_ERROR, "no such column")
    failed = api.state("job", JobState.FAILED)
    assert failed.failure is not None
    assert failed.failure.cause is m.FailureCause.USER_ERROR
    (kept,) = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    poll(lambda: len(metadata_files(storage)) == 1)
    assert Path(kept.pointer.removeprefix("file://")).is_file()
    api("DisposeSavepoint", m.DisposeSavepointRequest("job", kept.checkpoint_id))
    assert api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints == ()
    assert not list(storage.rglob("chk-*"))


def test_an_unusable_storage_is_reported_at_submission(api: Caller, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    backend = m.StateBackend(m.FilesystemBackend(str(tmp_path / "file" / "below")))
    refused = api.fails("Submit", m.SubmitRequest("job", dataclasses.replace(graph(), state_backend=backend)))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "filesystem backend" in refused.details()


def test_task_managers_need_the_secret(leader: Coordinator, new_task_manager: NewTaskManager) -> None:
    stranger = new_task_manager(credentials=Credentials(secret="another secret entirely")).connect(leader.address)
    stranger.wait(lambda: stranger.status)
    assert stranger.status is grpc.StatusCode.UNAUTHENTICATED


def test_unknown_keys_are_not_found(api: Caller) -> None:
    for method, request in (
        ("Get", m.GetRequest("nobody")),
        ("Watch", m.WatchRequest("nobody")),
        ("Cancel", m.CancelRequest("nobody")),
        ("TriggerSavepoint", m.TriggerSavepointRequest("nobody")),
        ("ListCheckpoints", m.ListCheckpointsRequest("nobody")),
    ):
        assert api.fails(method, request).code() is grpc.StatusCode.NOT_FOUND, method


_NAMING = [
    (method.path.rsplit("/", 1)[1], method.request)
    for method in SERVICES["JobService"].values()
    if "job_key" in {field.name for field in dataclasses.fields(method.request)}
]


@pytest.mark.parametrize(("method", "request_"), _NAMING, ids=[name for name, _ in _NAMING])
@pytest.mark.parametrize("key", ["k" * 1_100_000, "\u20ac" * 129], ids=["huge", "not ASCII"])
def test_a_key_that_is_too_long_is_refused_by_every_method_and_never_looked_up(
    api: Caller, monkeypatch: pytest.MonkeyPatch, method: str, request_: Any, key: str
) -> None:
    looked_up: list[str] = []
    get = EmbeddedSession.get

    def noting(session: EmbeddedSession, path: str, watch: Watcher | None = None) -> Node | None:
        looked_up.append(path)
        return get(session, path, watch)

    monkeypatch.setattr(EmbeddedSession, "get", noting)
    error = api.fails(method, request_(job_key=key, **({"graph": graph()} if method == "Submit" else {})))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is not a job key" in error.details()
    assert len(error.details()) < 200
    assert not [path for path in looked_up if len(path) > 1_000]


def test_a_long_explanation_is_cut_so_that_it_arrives(api: Caller) -> None:
    names = [f"\u00e4\u20ac\n{number}" for number in range(3_000)]
    bad = dataclasses.replace(graph(), edges=tuple(m.Edge(name, "count") for name in names))
    error = api.fails("Submit", m.SubmitRequest("job", bad))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().endswith(" ... (there is more)")


def test_cancel_ends_the_job_and_leaves_nothing_behind(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager().connect(leader.address)
    run_id = api("Submit", m.SubmitRequest("job", graph())).run_id
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    assert api("Cancel", m.CancelRequest("job")).state in (JobState.CANCELING, JobState.CANCELED)
    task_manager.expect(m.CancelAttempt)
    ended = api.state("job", JobState.CANCELED)
    assert ended.ended_unix_ms >= ended.submitted_unix_ms > 0
    assert api("Cancel", m.CancelRequest("job")).state is JobState.CANCELED
    assert api("Submit", m.SubmitRequest("job", graph())) == m.SubmitResponse("job", run_id, created=False)
    cluster = api("GetCluster", m.GetClusterRequest())
    assert [(tm.slots, tm.free_slots) for tm in cluster.task_managers] == [(2, 2)]
    stop = api.fails("TriggerSavepoint", m.TriggerSavepointRequest("job"))
    assert stop.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_a_leader_forgets_old_results_when_zookeeper_does(
    new_coordinator: NewCoordinator, caller: NewCaller, server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(JobRecords.__init__.__kwdefaults__, "keep_results", 2)
    api = caller(leading(new_coordinator()))
    session, pause = server.open(), threading.Event()
    for key in ("first", "second", "third"):
        assert api("Submit", m.SubmitRequest(key, graph())).created
        api("Cancel", m.CancelRequest(key))
        api.state(key, JobState.CANCELED)
        while session.get(Paths("default").job(key)) is not None:  # the clean-up comes after the end
            assert not pause.wait(0.02)

    def listed() -> set[str]:
        return {job.job_key for job in api("List", m.ListRequest()).jobs}

    while listed() != {"third"}:
        assert not pause.wait(0.02)
    assert api.fails("Get", m.GetRequest("first")).code() is grpc.StatusCode.NOT_FOUND
    assert not api("Submit", m.SubmitRequest("third", graph())).created
    assert api("Submit", m.SubmitRequest("first", graph())).created, "another leader would have said the same"


def test_a_bounded_job_finishes(leader: Coordinator, api: Caller, new_task_manager: NewTaskManager) -> None:
    task_manager = new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph(rows=10)))
    api.state("job", JobState.RUNNING)
    task_manager.report(m.SubtaskPhase.SUBTASK_EXHAUSTED)
    assert api.state("job", JobState.FINISHED).error == ""
    triggers = [body for body in task_manager.bodies(m.TriggerCheckpoint) if isinstance(body, m.TriggerCheckpoint)]
    assert triggers[-1].terminal
    ended = [update.update for update in api("Watch", m.WatchRequest("job"))]
    kinds = {update.kind for update in ended if isinstance(update, m.JobEvent)}
    assert m.JobEventKind.CHECKPOINT_COMPLETED in kinds  # a watch of an ended job still tells its events


def test_a_savepoint_is_answered_when_it_is_complete(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph(interval_ms=60_000)))
    api.state("job", JobState.RUNNING)
    savepoint = api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint
    assert savepoint.kind is m.CheckpointKind.SAVEPOINT
    assert savepoint in api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    other = api("Submit", m.SubmitRequest("next", graph(interval_ms=60_000), savepoint.pointer))
    assert other.created


def test_a_job_continues_from_a_savepoint(leader: Coordinator, api: Caller, new_task_manager: NewTaskManager) -> None:
    task_manager = new_task_manager(slots=1).connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph()))
    api.state("job", JobState.RUNNING)
    savepoint = api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint
    api("Cancel", m.CancelRequest("job"))
    api.state("job", JobState.CANCELED)
    api("Submit", m.SubmitRequest("next", graph(), savepoint.pointer))
    deploy = task_manager.expect(m.Deploy, 2)
    assert isinstance(deploy, m.Deploy)
    assert deploy.restored_checkpoint_id == savepoint.checkpoint_id
    handles = {state.vertex_id: state.operators[0].handle for state in deploy.restore}
    count = handles["count"]
    assert count is not None
    assert count.inline == f"count-0@{savepoint.checkpoint_id}".encode()
    wrong = api.fails("Submit", m.SubmitRequest("wide", graph(parallelism=1, name="x"), savepoint.pointer + ".gone"))
    assert wrong.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_same_key_with_another_start_is_refused_while_it_runs_and_after_its_end(
    leader: Coordinator,
    api: Caller,
    caller: NewCaller,
    new_coordinator: NewCoordinator,
    new_task_manager: NewTaskManager,
) -> None:
    new_task_manager(slots=2).connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph()))
    api.state("job", JobState.RUNNING)
    start, other = (api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint.pointer for _ in range(2))
    run_id = api("Submit", m.SubmitRequest("next", graph(), start)).run_id

    def check(caller: Caller) -> None:
        folder = start.removeprefix("file://").removesuffix("/_metadata")
        for same in (start, folder, ""):  # who names no start follows the job there is
            again = caller("Submit", m.SubmitRequest("next", graph(), same))
            assert (again.created, again.run_id) == (False, run_id)
        refused = caller.fails("Submit", m.SubmitRequest("next", graph(), other))
        assert refused.code() is grpc.StatusCode.ALREADY_EXISTS
        assert f"the job key 'next' belongs to a job that was submitted from {start}" in refused.details()
        fresh = caller.fails("Submit", m.SubmitRequest("job", graph(), start))
        assert fresh.code() is grpc.StatusCode.ALREADY_EXISTS
        assert "was submitted without a snapshot to start from" in fresh.details()

    check(api)
    for key in ("job", "next"):
        api("Cancel", m.CancelRequest(key))
        api.state(key, JobState.CANCELED)
    check(api)
    leader.stop()
    check(caller(leading(new_coordinator())))  # of which the results are all that it knows


def test_a_watch_sends_the_status_then_the_events(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph()))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    subtask = task_manager._mine()[-1]
    task_manager.send(m.FirstRecord(subtask, 123))
    stream = api("Watch", m.WatchRequest("job"))
    assert isinstance(next(stream).update, m.JobStatus)
    kinds = []
    for update in stream:
        if isinstance(update.update, m.JobEvent):
            kinds.append(update.update.kind)
            assert update.update.unix_us > 0
            if update.update.kind is m.JobEventKind.FIRST_RECORD:
                break
    stream.cancel()
    assert m.JobEventKind.LEADER_GRANTED not in kinds  # there was no takeover while this job lived
    assert kinds.index(m.JobEventKind.ATTEMPT_DEPLOYED) < kinds.index(m.JobEventKind.CHECKPOINT_COMPLETED)


def test_a_watch_gets_what_changes_if_it_asks_for_that_and_whole_statuses_otherwise(
    api: Caller, leader: Coordinator, new_task_manager: NewTaskManager
) -> None:
    new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph()))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    for asked in (True, False, True):
        stream = api("Watch", m.WatchRequest("job", changes=asked))
        statuses = (update.update for update in stream if not isinstance(update.update, m.JobEvent))
        first, later = next(statuses), next(statuses)
        stream.cancel()
        assert isinstance(first, m.JobStatus), "each stream begins with a whole one, whatever others have had"
        assert isinstance(later, m.StatusChange if asked else m.JobStatus)
        status = changed(first, later) if isinstance(later, m.StatusChange) else later
        assert status != first
        assert (status.job_key, status.subtasks) == ("job", first.subtasks)


def test_watches_are_bounded(new_coordinator: NewCoordinator, caller: NewCaller) -> None:
    api = caller(leading(new_coordinator(max_watchers=2)))
    api("Submit", m.SubmitRequest("job", graph()))
    streams = [api("Watch", m.WatchRequest("job")) for _ in range(2)]
    for stream in streams:
        next(stream)
    refused = api.fails("Watch", m.WatchRequest("job"))
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_watchers" in refused.details()
    for stream in streams:
        stream.cancel()


def test_a_job_that_ends_makes_room_for_another(new_coordinator: NewCoordinator, caller: NewCaller) -> None:
    api = caller(leading(new_coordinator(max_jobs=1)))
    api("Submit", m.SubmitRequest("first", graph()))
    refused = api.fails("Submit", m.SubmitRequest("second", graph()))
    assert refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_jobs" in refused.details()
    api("Cancel", m.CancelRequest("first"))
    api.state("first", JobState.CANCELED)
    assert api("Submit", m.SubmitRequest("second", graph())).created


serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def health(caller: Caller, name: str) -> int:
    stub = health_pb2_grpc.HealthStub(caller._channel)
    return int(stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=WAIT_S).status)


def test_a_leader_that_is_cut_off_from_zookeeper_does_not_call_itself_leader(
    leader: Coordinator, api: Caller, server: EmbeddedZooKeeper, new_coordinator: NewCoordinator
) -> None:
    poll(lambda: health(api, "lockgate.leader") == serving)
    session = leader.elector._session
    assert session is not None
    server.suspend(session)
    poll(lambda: health(api, "lockgate.leader") == not_serving)
    assert health(api, "") == health(api, "lockgate.ready") == serving  # what runs is still served
    server.resume(session)
    poll(lambda: health(api, "lockgate.leader") == serving)
    server.suspend(session)
    server.expire(session.id)
    leading(new_coordinator())  # replaced, and cannot know it
    assert leader.elector.grant is not None
    assert health(api, "lockgate.leader") == not_serving


def test_health_and_reflection_list_the_services(
    leader: Coordinator, api: Caller, new_coordinator: NewCoordinator, caller: NewCaller
) -> None:
    standby = caller(new_coordinator())
    for name in ("", "lockgate.v1.JobService", "lockgate.v1.ControlService", "lockgate.v1.FollowService"):
        assert health(api, name) == health(standby, name) == serving
    poll(lambda: health(api, "lockgate.leader") == serving)  # published a moment after the term has begun
    assert health(standby, "lockgate.leader") == not_serving
    stub = reflection_pb2_grpc.ServerReflectionStub(api._channel)
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([asked]), timeout=WAIT_S)
    assert "lockgate.v1.JobService" in {service.name for service in answer.list_services_response.service}
    assert leader.address


def test_a_fault_of_the_coordinator_breaks_off_one_job_only(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    task_manager = new_task_manager(slots=4).connect(leader.address)
    api("Submit", m.SubmitRequest("good", graph()))
    api.state("good", JobState.RUNNING)
    whole = JobMaster.handle

    def faulty(self: JobMaster, event: ev.Event, now_ms: int) -> list[do.Effect]:
        if (
            isinstance(event, ev.TaskManagerReport)
            and isinstance(event.report, ev.Acknowledged)
            and self.status().job_key == "bad"
        ):
            raise IllegalTransition("the story of a mistake")
        return whole(self, event, now_ms)

    monkeypatch.setattr(JobMaster, "handle", faulty)
    api("Submit", m.SubmitRequest("bad", graph()))
    assert "the story of a mistake" in api.state("bad", JobState.FAILED).error
    cancel = task_manager.expect(m.CancelAttempt)
    assert isinstance(cancel, m.CancelAttempt)
    assert cancel.attempt is not None
    assert cancel.attempt.job_key == "bad"
    done = api.status("good").checkpoints_completed
    api.until("good", lambda status: status.checkpoints_completed > done + 1)
    assert [tm.free_slots for tm in api("GetCluster", m.GetClusterRequest()).task_managers] == [3]
    assert api("Cancel", m.CancelRequest("bad")).state is JobState.CANCELED
    api.state("bad", JobState.CANCELED)


def test_malformed_requests_are_refused_as_such(api: Caller) -> None:
    method = api._channel.unary_unary("/lockgate.v1.JobService/Submit")
    with pytest.raises(grpc.RpcError) as caught:
        method(b"\xff\xff\xff", timeout=WAIT_S, metadata=SECRET.metadata())
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "SubmitRequest" in caught.value.details()


def test_a_graph_too_large_for_zookeeper_goes_to_the_storage(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager().connect(leader.address)
    source, count = graph().vertices
    code = m.Operator("code", kind=m.PythonTransform(b"x" * 2_000_000))
    large = dataclasses.replace(
        graph(), vertices=(dataclasses.replace(source, operators=(*source.operators, code)), count)
    )
    assert api("Submit", m.SubmitRequest("job", large)).created
    deploy = task_manager.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    deployed = layout_of(deploy).graph
    assert deployed is not None
    assert deployed.vertices[0].operators[1].kind == code.kind
    assert not api("Submit", m.SubmitRequest("job", large)).created
