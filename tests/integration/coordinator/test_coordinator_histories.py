"""What a leader remembers for those who look later, over real gRPC: checkpoints, leaders, and jobs without subtasks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.paths import Paths
from lockgate_ha.store import Create
from lockgate_proto import messages as m

from tests.integration.coordinator.conftest import (
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    Running,
    abort_one,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.fake_task_manager import FakeFleet
from tests.integration.coordinator.test_coordinator_failover import crash

pytestmark = pytest.mark.integration


def _history(api: Caller) -> dict[int, m.CheckpointOutcome]:
    """By id, newest first."""
    found = api("ListCheckpoints", m.ListCheckpointsRequest("job", history=True)).history
    return {outcome.checkpoint.checkpoint_id: outcome for outcome in found}


def _completed(api: Caller, more: int) -> int:
    before = api.status("job").checkpoints_completed
    status = api.until("job", lambda status: status.checkpoints_completed >= before + more)
    assert status.last_checkpoint is not None
    return status.last_checkpoint.checkpoint_id


def test_aborted_and_subsumed_checkpoints_are_listed_if_asked_for(
    running: Callable[..., Running], fleet: FakeFleet
) -> None:
    _, api, task_manager, _ = running(checkpoints=2)
    aborted = abort_one(fleet, task_manager, api, "no space is left")
    newest = _completed(api, 2)
    history = _history(api)
    assert list(history) == sorted(history, reverse=True)
    lost = history[aborted]
    assert (lost.aborted, lost.retained, lost.subtasks) == (m.AbortReason.ABORT_STORAGE_DECLINED, False, 2)
    assert lost.text.endswith("declined it: no space is left")
    subsumed = history[1]
    assert (subsumed.aborted, subsumed.retained, subsumed.acknowledged) == (0, False, 2)
    assert subsumed.checkpoint is not None
    assert subsumed.checkpoint.pointer.endswith("/chk-1/_metadata")
    assert not history[newest].aborted
    plain = api("ListCheckpoints", m.ListCheckpointsRequest("job"))
    assert plain.history == ()
    assert {each.checkpoint_id for each in plain.checkpoints}.isdisjoint({1, aborted})


def test_a_job_that_has_ended_keeps_its_history_under_its_leader(
    running: Callable[..., Running], fleet: FakeFleet
) -> None:
    _, api, task_manager, _ = running(checkpoints=2)
    aborted = abort_one(fleet, task_manager, api, "no space is left")
    savepoint = api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint
    api("Cancel", m.CancelRequest("job"))
    api.state("job", m.JobState.CANCELED)
    history = _history(api)
    assert history[aborted].aborted is m.AbortReason.ABORT_STORAGE_DECLINED
    assert [number for number, outcome in history.items() if outcome.retained] == [savepoint.checkpoint_id]


def test_a_new_leader_lists_what_is_retained_and_what_it_sees_itself(
    running: Callable[..., Running], fleet: FakeFleet, new_coordinator: NewCoordinator, caller: NewCaller
) -> None:
    leader, api, task_manager, _ = running(checkpoints=2)
    abort_one(fleet, task_manager, api, "no space is left")
    savepoint = api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint.checkpoint_id
    fleet.acknowledging = False
    crash(leader)
    leader.stop()
    task_manager.running = []
    following = caller(successor := leading(new_coordinator()))
    task_manager.connect(successor.address)
    following.state("job", m.JobState.RUNNING)
    history = _history(following)
    assert savepoint in history
    assert all(outcome.retained and not outcome.attempt for outcome in history.values() if not outcome.aborted)

    def triggered() -> list[m.TriggerCheckpoint]:
        known = task_manager.bodies_now(m.TriggerCheckpoint)
        return [
            body for body in known if isinstance(body, m.TriggerCheckpoint) and body.attempt in task_manager.running
        ]

    task_manager.wait(triggered)
    fleet.acknowledging = True
    task_manager.acknowledge(triggered()[-1])
    newest = _completed(following, 1)
    found = _history(following)[newest]
    assert (found.subtasks, found.acknowledged, bool(found.attempt)) == (2, 2, True)


def test_the_leaders_of_the_cluster_are_recorded(new_coordinator: NewCoordinator, caller: NewCaller) -> None:
    first = leading(new_coordinator("first"))
    api = caller(first)

    def leaders(asked: Caller) -> tuple[m.LeadershipRecord, ...]:
        return asked("GetCluster", m.GetClusterRequest()).leaders  # type: ignore[no-any-return]

    poll(lambda: leaders(api))
    (record,) = leaders(api)
    assert (record.token, record.coordinator_id, record.address) == (1, "first", first.address)
    assert (record.granted_unix_us > 0, record.ended_unix_us) == (True, 0)
    second = new_coordinator("second")
    standby = caller(second)
    assert leaders(standby) == (record,), "it asks the leader"
    first.stop()
    leading(second)
    poll(lambda: len(leaders(standby)) == 2)
    before, now = leaders(standby)
    assert (before.token, before.granted_unix_us) == (record.token, record.granted_unix_us)
    assert before.granted_unix_us < before.ended_unix_us <= now.granted_unix_us
    assert (now.token, now.coordinator_id, now.ended_unix_us) == (2, "second", 0)


@pytest.mark.parametrize("content", [b"not sealed", b""])
def test_a_history_that_cannot_be_read_begins_anew(
    server: EmbeddedZooKeeper, new_coordinator: NewCoordinator, caller: NewCaller, content: bytes
) -> None:
    leader = new_coordinator()
    server.open(None, leader.elector.store.protection).transact([Create(Paths("default").leaders, content)])
    api = caller(leading(leader))
    poll(lambda: api("GetCluster", m.GetClusterRequest()).leaders)
    assert [record.token for record in api("GetCluster", m.GetClusterRequest()).leaders] == [1]


def test_jobs_are_listed_without_their_subtasks(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    api = caller(leader)
    task_manager = new_task_manager().connect(leader.address)
    api("Submit", m.SubmitRequest("job", graph(2)))
    api.state("job", m.JobState.RUNNING)
    load = m.SubtaskLoad(backlog_records=300, has_backlog_records=True)
    sources = [m.SubtaskId(task_manager.running[0], "source", index) for index in range(2)]

    def brief() -> m.JobStatus:
        (found,) = api("List", m.ListRequest(without_subtasks=True)).jobs
        return found  # type: ignore[no-any-return]

    assert (brief().subtasks, brief().subtask_count) == ((), 4)
    assert brief().backlog == m.JobBacklog(), "no source has said anything"
    task_manager.send(m.Heartbeat(1, tuple(m.SubtaskCounters(subtask, load=load) for subtask in sources)))
    poll(lambda: brief().backlog == m.JobBacklog(records=600))
    (whole,) = api("List", m.ListRequest()).jobs
    assert (len(whole.subtasks), whole.subtask_count, whole.backlog) == (4, 4, None)
    api("Cancel", m.CancelRequest("job"))
    api.state("job", m.JobState.CANCELED)
    assert (brief().state, brief().subtask_count) == (m.JobState.CANCELED, 0)
