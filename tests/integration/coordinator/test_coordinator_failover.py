"""Task managers that go, leaders that go, leaders that do not notice that they have gone."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from lockgate_coordinator.job.effects import PersistCheckpoint
from lockgate_coordinator.runtime import persistence
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.election import Phase
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_ha.store import Create, Put
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.messages import JobEventKind, JobState

from tests.integration.coordinator.conftest import (
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    Running,
    graph,
    leading,
    metadata_files,
    poll,
    recorded,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S, FakeFleet

pytestmark = pytest.mark.integration

Start = Callable[..., Running]


def crash(coordinator: Coordinator) -> None:
    """The nearest thing to SIGKILL within one process: the port refuses, every stream breaks, nothing is released."""
    coordinator._server.stop(0)


def restored_ids(deploy: object) -> set[bytes]:
    assert isinstance(deploy, m.Deploy)
    return {
        subtask_state.operators[0].handle.inline
        for subtask_state in deploy.restore
        if subtask_state.operators[0].handle is not None
    } - {b""}


# -- task managers ----------------------------------------------------------------------------------------------------


def test_a_failed_task_manager_is_replaced_from_the_last_checkpoint(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    api = caller(leader)
    first, second = new_task_manager().connect(leader.address), new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph(parallelism=2)))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    spare = new_task_manager().connect(leader.address)
    first.die()
    status = api.until("job", lambda status: status.attempt == 2 and status.state is JobState.RUNNING)
    assert status.restarts == 1
    survivors = {subtask.task_manager_id for subtask in status.subtasks}
    assert survivors == {second.name, spare.name}
    deploy = second.expect(m.Deploy, 2)
    assert isinstance(deploy, m.Deploy)
    assert deploy.restored_checkpoint_id >= 1
    done = status.last_checkpoint
    assert done is not None
    api.until(
        "job",
        lambda status: status.last_checkpoint is not None and status.last_checkpoint.checkpoint_id > done.checkpoint_id,
    )


def test_a_task_manager_that_says_goodbye_costs_a_job_nothing_although_it_is_never_restarted(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    api = caller(leader)
    first, second = new_task_manager().connect(leader.address), new_task_manager().connect(leader.address)
    never = m.RestartStrategy(strategy=m.NoRestart())
    api("Submit", m.SubmitRequest("job", dataclasses.replace(graph(parallelism=2), restart=never)))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    first.leave()
    assert first.ended_well
    assert [
        task_manager.task_manager_id for task_manager in api("GetCluster", m.GetClusterRequest()).task_managers
    ] == [second.name]
    status = api.until("job", lambda status: status.attempt == 2 and status.state is JobState.RUNNING)
    assert (status.restarts, status.error) == (1, "")
    assert {subtask.task_manager_id for subtask in status.subtasks} == {second.name}
    deploy = second.expect(m.Deploy, 2)
    assert isinstance(deploy, m.Deploy)
    assert deploy.restored_checkpoint_id >= 1
    second.die()  # a crash, on the other hand, ends it
    assert "is lost" in api.state("job", JobState.FAILED).error


def test_a_silent_task_manager_is_lost_after_the_heartbeat_timeout(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator(heartbeat_timeout_ms=300))
    task_manager = new_task_manager().connect(leader.address)
    task_manager.beating = False
    task_manager.wait(lambda: task_manager.status)
    assert task_manager.status is grpc.StatusCode.ABORTED
    assert "heartbeat" in task_manager.details
    assert caller(leader)("GetCluster", m.GetClusterRequest()).task_managers == ()


def test_a_broken_stream_of_a_living_process_loses_nothing(running: Start) -> None:
    leader, api, task_manager, _ = running(checkpoints=1)
    done = api.status("job").checkpoints_completed
    task_manager.break_stream()
    task_manager.connect(leader.address)
    status = api.until("job", lambda status: status.checkpoints_completed > done + 1)
    assert (status.attempt, status.restarts) == (1, 0)


def test_a_new_process_with_the_address_and_pid_of_the_old_one_counts_as_a_loss(running: Start) -> None:
    leader, api, task_manager, _ = running()
    task_manager.break_stream()
    task_manager.running.clear()
    task_manager.incarnation = "of the same container, started again"
    task_manager.connect(leader.address)
    assert api.until("job", lambda status: status.attempt == 2 and status.state is JobState.RUNNING).restarts == 1


def test_a_new_process_under_an_old_id_counts_as_a_loss(running: Start, new_task_manager: NewTaskManager) -> None:
    leader, api, task_manager, _ = running("same", pid=1)
    task_manager.stop_listening()  # it has died, and its stream has not noticed
    new_task_manager("same", pid=2).connect(leader.address)
    task_manager.wait(lambda: task_manager.status)
    assert "process 2" in task_manager.details
    assert api.until("job", lambda status: status.attempt == 2 and status.state is JobState.RUNNING).restarts == 1


def test_two_living_processes_under_one_id_do_not_evict_each_other(
    running: Start, new_task_manager: NewTaskManager
) -> None:
    leader, api, task_manager, _ = running("same", pid=1)
    other = new_task_manager("same", pid=2)
    other.connect(leader.address)
    other.wait(lambda: other.status)
    assert other.status is grpc.StatusCode.ALREADY_EXISTS
    assert "task_manager_id" in other.details
    done = api.status("job").checkpoints_completed
    status = api.until("job", lambda status: status.checkpoints_completed > done + 1)
    assert (status.attempt, task_manager.status) == (1, None)


def test_attempts_of_jobs_that_ended_are_cancelled_on_registering(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    task_manager = new_task_manager()
    stray = m.AttemptId("gone", "run", 3)
    task_manager.running.append(stray)
    task_manager.connect(leader.address)
    cancel = task_manager.expect(m.CancelAttempt)
    assert isinstance(cancel, m.CancelAttempt)
    assert cancel.attempt == stray


def test_a_job_waits_for_slots_and_takes_them_when_they_come(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", graph()))
    assert "1 slot," in api.until("job", lambda status: "0 free" in status.message).message
    new_task_manager().connect(leader.address)
    api.state("job", JobState.RUNNING)


# -- leaders ----------------------------------------------------------------------------------------------------------


def test_a_standby_sends_clients_and_task_managers_to_the_leader(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    standby = new_coordinator()
    new_task_manager().connect(leader.address)
    poll(lambda: standby.elector.leader is not None)
    api = caller(standby)
    for method, request in (
        ("Submit", m.SubmitRequest("job", graph())),
        ("Get", m.GetRequest("job")),
        ("List", m.ListRequest()),
        ("Watch", m.WatchRequest("job")),
    ):
        error = api.fails(method, request)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION, method
        assert error.details() == f"not the leader; the leader is {leader.address}"
        assert ("lockgate-leader", leader.address) in [tuple(pair) for pair in error.trailing_metadata()]
    lost = new_task_manager().connect(standby.address)
    assert lost.status is grpc.StatusCode.FAILED_PRECONDITION
    assert api("GetLeader", m.GetLeaderRequest()).address == leader.address
    cluster = api("GetCluster", m.GetClusterRequest())
    assert {(coordinator.coordinator_id, coordinator.leader) for coordinator in cluster.coordinators} == {
        ("c1", True),
        ("c2", False),
    }
    assert [task_manager.task_manager_id for task_manager in cluster.task_managers] == ["tm1"]


def test_a_standby_takes_over_on_evidence_and_restores_the_newest_checkpoint(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager, fleet: FakeFleet
) -> None:
    leader, standby = leading(new_coordinator()), new_coordinator()
    task_manager = new_task_manager().connect(leader.address)
    api = caller(leader)
    run_id = api("Submit", m.SubmitRequest("job", graph())).run_id
    api.until("job", lambda status: status.checkpoints_completed >= 2)
    fleet.acknowledging = False  # what is pending now must not count
    newest = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints[0]
    crash(leader)
    leading(standby)
    fleet.acknowledging = True
    task_manager.connect(standby.address)
    deploy = task_manager.expect(m.Deploy, 2)
    assert isinstance(deploy, m.Deploy)
    assert task_manager.token == 2
    assert deploy.attempt == m.AttemptId("job", run_id, 2)
    assert deploy.restored_checkpoint_id >= newest.checkpoint_id
    assert restored_ids(deploy) == {f"count-0@{deploy.restored_checkpoint_id}".encode()}
    after = caller(standby)
    status = after.until("job", lambda status: status.checkpoints_completed >= 1)
    assert status.last_checkpoint is not None
    assert status.last_checkpoint.checkpoint_id > deploy.restored_checkpoint_id
    assert status.last_checkpoint.token == 2
    assert after("Submit", m.SubmitRequest("job", graph())) == m.SubmitResponse("job", run_id, created=False)
    stream = after("Watch", m.WatchRequest("job"))
    kinds = []
    for update in stream:
        if isinstance(update.update, m.JobEvent):
            kinds.append(update.update.kind)
            if update.update.kind is JobEventKind.CHECKPOINT_COMPLETED:
                break
    stream.cancel()
    expected = [JobEventKind.LEADER_LOSS_DETECTED, JobEventKind.LEADER_GRANTED, JobEventKind.JOB_RECOVERED]
    assert kinds[:3] == expected
    assert JobEventKind.ATTEMPT_DEPLOYED in kinds


def test_a_clean_stop_hands_over_at_once(new_coordinator: NewCoordinator, caller: NewCaller) -> None:
    leader, standby = leading(new_coordinator()), new_coordinator()
    caller(leader)("Submit", m.SubmitRequest("job", graph()))
    leader.stop()
    leading(standby)
    assert caller(standby).status("job").job_key == "job"


def test_the_cluster_status_says_that_zookeeper_is_away(
    new_coordinator: NewCoordinator, caller: NewCaller, server: EmbeddedZooKeeper
) -> None:
    api = caller(leading(new_coordinator()))
    assert not api("GetCluster", m.GetClusterRequest()).zookeeper_trouble
    server.stop()
    poll(lambda: api("GetCluster", m.GetClusterRequest()).zookeeper_trouble)
    server.start()
    poll(lambda: not api("GetCluster", m.GetClusterRequest()).zookeeper_trouble)


def test_a_zombie_writes_nothing_and_steps_down(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager, server: EmbeddedZooKeeper
) -> None:
    old = leading(new_coordinator())
    grant = old.elector.grant
    assert grant is not None
    task_manager = new_task_manager().connect(old.address)
    api = caller(old)
    api("Submit", m.SubmitRequest("job", graph(interval_ms=60_000)))
    api.state("job", JobState.RUNNING)
    paths = Paths("default")
    server.lead("default", "usurper")
    before = server.open().children(paths.checkpoints("job"))
    failed = api.fails("TriggerSavepoint", m.TriggerSavepointRequest("job"))
    assert failed.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)
    task_manager.wait(lambda: task_manager.status)
    assert task_manager.status is grpc.StatusCode.UNAVAILABLE
    assert server.open().children(paths.checkpoints("job")) == before
    assert server.open().get(paths.checkpoint_id("job")).data == b"0"  # type: ignore[union-attr]


def test_the_writes_of_a_zombie_are_refused_one_by_one(server: EmbeddedZooKeeper, storage: Path) -> None:
    """The same writes as above without a message to the zombie: ZooKeeper alone stops it."""
    store, grant = server.lead("default", "old")
    records = JobRecords(store, "default")
    job = m.JobRecord("job", "run", graph=b"x", token=grant.token)
    records.submit(grant, job)
    files = MetadataFiles(str(storage), "default")
    stored = files.write(Run("job", "run"), m.CheckpointMetadata(1, "job", "run", 1), b"the first")
    first = m.CompletedCheckpoint(1, stored.pointer, stored.checksum, token=grant.token)
    records.add_checkpoint(grant, "job", first)
    server.lead("default", "new")
    reported: list[str] = []
    fence = TermFence(grant, threading.Event(), reported.append)
    old, removals = Persistence(fence, store, "default", files), Removals(fence, store, "default", files)
    metadata = m.CheckpointMetadata(1, "job", "run", 2, m.CheckpointKind.CHECKPOINT, grant.token)
    checkpoint = PersistCheckpoint(metadata, m.CompletedCheckpoint(2))
    writes: list[Callable[[], object]] = [
        lambda: old.write_attempt("job", m.AttemptRecord(1)),
        lambda: old.write_checkpoint_id("job", 1),
        lambda: old.write_checkpoint(Run("job", "run"), checkpoint),
        lambda: old.write_result(m.JobResult("job", "run")),
        lambda: old.submit(m.JobRecord("late", "run"), b"graph"),
        lambda: removals.forget_checkpoint("job", 1),
    ]
    before = _everything(server)
    for write in writes:
        with pytest.raises(Stopped):
            write()
    assert len(reported) == len(writes)
    assert _everything(server) == before
    removals.clean_up("job", "run")
    assert (storage / "default" / "job" / "run" / "chk-1" / "_metadata").read_bytes() == b"the first"


def _everything(server: EmbeddedZooKeeper) -> list[tuple[str, bytes]]:
    session = server.open()

    def below(path: str) -> list[tuple[str, bytes]]:
        node = session.get(path)
        assert node is not None
        here = [(path, node.data)]
        return here + [item for name in session.children(path) for item in below(f"{path}/{name}")]

    return [name for path in (Paths("default").jobs, Paths("default").results) for name in below(path)]


def test_a_cut_off_leader_steps_down_when_a_task_manager_has_seen_a_later_one(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, server: EmbeddedZooKeeper
) -> None:
    leader = leading(new_coordinator())
    term = leader.dispatcher.term
    assert term is not None
    server.stop()
    poll(lambda: leader.elector._machine.phase is Phase.PAUSED)
    task_manager = new_task_manager()
    task_manager.token = 7
    task_manager.connect(leader.address)
    assert task_manager.status is grpc.StatusCode.FAILED_PRECONDITION
    assert "token 7, above 1" in task_manager.details
    assert term.fence.over.wait(WAIT_S)
    server.start()
    assert leading(leader).elector.grant.token == 2  # type: ignore[union-attr]


LAST_OF_ALL = 2**63 - 2


def test_a_token_that_was_never_granted_costs_a_refusal_and_nothing_else(
    running: Start, new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, caller: NewCaller
) -> None:
    leader, api, _, _ = running(checkpoints=1)
    term = leader.dispatcher.term
    stray = new_task_manager("stray")
    stray.token = LAST_OF_ALL
    stray.connect(leader.address)
    assert stray.status is grpc.StatusCode.FAILED_PRECONDITION
    assert "restart the process that reports it" in stray.details
    refused = api.fails("Follow", m.FollowRequest("stray", LAST_OF_ALL), "FollowService")
    assert refused.code() is grpc.StatusCode.FAILED_PRECONDITION
    done = api.status("job").checkpoints_completed
    api.until("job", lambda status: status.checkpoints_completed > done)
    assert leader.dispatcher.term is term
    successor = new_coordinator()
    leader.stop()
    assert leading(successor).elector.grant.token == 2  # type: ignore[union-attr]
    assert caller(successor).status("job").state is not JobState.FAILED


def test_an_outage_of_zookeeper_restarts_nothing(running: Start, server: EmbeddedZooKeeper) -> None:
    api = running(checkpoints=1).api
    done = api.status("job")
    server.stop()
    refused = api.fails("Submit", m.SubmitRequest("other", graph()))
    assert refused.code() is grpc.StatusCode.UNAVAILABLE
    assert "ZooKeeper" in refused.details()
    assert api.status("job").state is JobState.RUNNING
    server.start()
    after = api.until("job", lambda status: status.checkpoints_completed > done.checkpoints_completed + 2)
    assert (after.attempt, after.restarts) == (1, 0)


def test_a_corrupt_record_fails_its_own_job_only(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager, server: EmbeddedZooKeeper
) -> None:
    leader = leading(new_coordinator())
    api = caller(leader)
    task_manager = new_task_manager().connect(leader.address)
    for key in ("bad", "good"):
        api("Submit", m.SubmitRequest(key, graph()))
        api.until(key, lambda status: status.checkpoints_completed >= 1)
    leader.stop()
    server.open().transact([Put(Paths("default").graph("bad"), b"\xff\xff")])
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    after.until("good", lambda status: status.checkpoints_completed >= 1)
    assert Paths("default").graph("bad") in after.state("bad", JobState.FAILED).error
    after("Cancel", m.CancelRequest("bad"))
    after.state("bad", JobState.CANCELED)


@pytest.mark.parametrize("inline_bytes", [0, persistence.INLINE_METADATA_BYTES])
def test_a_corrupt_metadata_file_fails_the_job_and_deletes_nothing(
    running: Start,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    inline_bytes: int,
) -> None:
    monkeypatch.setattr(persistence, "INLINE_METADATA_BYTES", inline_bytes)
    leader, _, task_manager, _ = running(checkpoints=1)
    leader.stop()
    kept = recorded(server)
    for file in kept:
        file.write_bytes(b"rubbish")
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    if inline_bytes:  # small metadata stands in ZooKeeper too: the file is not needed to go on
        after.until("job", lambda status: status.state is JobState.RUNNING)
        return
    status = after.state("job", JobState.FAILED)
    assert "_metadata is corrupt" in status.error
    assert kept
    assert set(kept) <= set(metadata_files(storage))
    assert after("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    assert len(task_manager.bodies(m.Deploy)) == 1


def test_a_dirty_result_is_cleaned_up_and_never_run_again(
    running: Start, new_coordinator: NewCoordinator, caller: NewCaller, server: EmbeddedZooKeeper, storage: Path
) -> None:
    leader, _, task_manager, run_id = running(checkpoints=1)
    leader.stop()
    result = m.JobResult("job", run_id, outcome="FINISHED", dirty=True)
    server.open().transact([Create(Paths("default").result("job"), encode(result))])
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    assert after.status("job").state is JobState.FINISHED
    counted = dict(successor.dispatcher.meters.jobs_ended.items())
    assert counted == {"FINISHED": 1, "FAILED": 0, "CANCELED": 0}, "the leader before may not have shown it any more"
    session = server.open()
    done = threading.Event()
    while session.get(Paths("default").job("job")) is not None:
        assert not done.wait(0.02)
    assert not list(storage.rglob("chk-*"))
    assert len(task_manager.bodies(m.Deploy)) == 1


def test_folders_that_no_checkpoint_owns_are_deleted_after_a_takeover(
    running: Start, new_coordinator: NewCoordinator, caller: NewCaller, storage: Path
) -> None:
    leader, _, task_manager, run_id = running(checkpoints=3)
    leader.stop()
    orphan = storage / "default" / "job" / run_id / "chk-1"
    orphan.mkdir()
    (orphan / "half.state").write_bytes(b"x")
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    after.until("job", lambda status: status.checkpoints_completed >= 3)
    poll(lambda: not orphan.exists())


def test_followers_receive_heartbeats_and_the_end(new_coordinator: NewCoordinator, caller: NewCaller) -> None:
    leader = leading(new_coordinator())
    stream = caller(leader)("Follow", m.FollowRequest("standby", 1), "FollowService")
    assert [next(stream) for _ in range(3)] == [m.LeaderBeat(1, True, "c1")] * 3
    leader.elector.step_down("the test wants it")
    while (beat := next(stream)).leading:
        pass
    assert beat == m.LeaderBeat(1, False, "c1")
