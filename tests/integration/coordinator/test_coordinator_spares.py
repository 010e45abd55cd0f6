"""Which task managers a leader lets prepare for a running job: those with free slots, and no others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import DEFAULT_FAILOVER, normalize
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha.zookeeper import connector
from lockgate_proto import messages as m
from lockgate_proto.layout import layout_of
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import Caller, NewTaskManager, graph, leading
from tests.integration.coordinator.fake_task_manager import FakeTaskManager

pytestmark = pytest.mark.integration


@pytest.fixture
def leader(new_coordinator: Callable[..., Coordinator], zookeeper: ZooKeeperServer, cluster_name: str) -> Coordinator:
    return leading(new_coordinator(connector=connector(zookeeper.address), cluster=cluster_name))


def submit(api: Caller, key: str, parallelism: int = 1) -> m.AttemptId:
    """The first attempt of the submitted job."""
    answer = api("Submit", m.SubmitRequest(key, graph(parallelism)))
    return m.AttemptId(key, answer.run_id, 1)


def prepared(fake_task_manager: FakeTaskManager) -> list[tuple[m.AttemptId | None, int]]:
    """Attempt and slots of every order that it has received so far."""
    return [
        (body.attempt, body.slots) for body in fake_task_manager.bodies(m.PrepareJob) if isinstance(body, m.PrepareJob)
    ]


def test_task_managers_with_free_slots_are_notified_when_the_job_runs(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    """The job's two slots are spread: one of three, and one of one."""
    large, full = new_task_manager(slots=3), new_task_manager(slots=1)
    idle_before = new_task_manager(slots=4)
    large.connect(leader.address)
    full.connect(leader.address)
    attempt = submit(api, "job", parallelism=2)
    full.expect(m.Deploy)
    advice = large.expect(m.PrepareJob)
    assert isinstance(advice, m.PrepareJob)
    assert (advice.attempt, advice.slots) == (attempt, 2)
    deploy = large.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    assert advice.graph == layout_of(deploy).graph == replace(normalize(graph(2)), leader_failover=DEFAULT_FAILOVER)
    full.expect(m.NotifyCheckpointComplete)  # a checkpoint later, so whatever there was to say has been said
    assert prepared(full) == []
    idle_before.connect(leader.address).expect(m.PrepareJob)
    assert prepared(idle_before) == [(attempt, 4)]
    assert prepared(large) == [(attempt, 2)], "it is sent once"


def test_a_job_is_not_announced_before_it_runs(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    """A job that waits for slots: its task managers have some free and hear nothing."""
    first = new_task_manager(slots=2).connect(leader.address)
    running = submit(api, "small")
    first.expect(m.PrepareJob)
    second = new_task_manager(slots=1).connect(leader.address)
    second.expect(m.PrepareJob)
    api("Submit", m.SubmitRequest("large", graph(3)))
    waiting = "needs 3 slots, 2 free in 2 task managers"  # the free ones are counted a moment after the state is shown
    api.until("large", lambda status: (status.state, status.message) == (JobState.WAITING_FOR_SLOTS, waiting))
    second.break_stream()
    second.connect(leader.address).expect(m.PrepareJob, 2)
    assert {attempt for attempt, _ in prepared(first) + prepared(second)} == {running}


def test_a_task_manager_that_registers_later_is_notified_of_every_running_job(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    new_task_manager(slots=2).connect(leader.address)
    attempts = {submit(api, key) for key in ("first", "second")}
    for key in ("first", "second"):
        api.state(key, JobState.RUNNING)
    spare = new_task_manager(slots=3).connect(leader.address)
    spare.expect(m.PrepareJob, 2)
    assert {attempt for attempt, _ in prepared(spare)} == attempts
    assert [slots for _, slots in prepared(spare)] == [3, 3]


def test_a_task_manager_without_a_free_slot_is_not_notified_when_it_returns(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    full = new_task_manager(slots=2).connect(leader.address)
    submit(api, "job", parallelism=2)
    full.expect(m.NotifyCheckpointComplete)
    full.break_stream()
    full.connect(leader.address)
    triggers = len(full.bodies(m.TriggerCheckpoint))
    full.expect(m.TriggerCheckpoint, triggers + 1)  # what registering has led to has been said
    assert prepared(full) == []


def test_after_a_restart_the_new_attempt_is_announced(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager(slots=2).connect(leader.address)
    attempt = submit(api, "job")
    task_manager.expect(m.PrepareJob)
    task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, error="broke")
    task_manager.expect(m.PrepareJob, 2)
    assert prepared(task_manager) == [(attempt, 1), (m.AttemptId("job", attempt.run_id, 2), 1)]


@pytest.mark.parametrize("end", ["finished", "cancelled"])
def test_a_job_that_has_ended_is_not_announced(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager, end: str
) -> None:
    task_manager = new_task_manager(slots=2)
    task_manager.exhausted = end == "finished"
    task_manager.connect(leader.address)
    submit(api, "ended")
    if end == "cancelled":
        api.state("ended", JobState.RUNNING)
        api("Cancel", m.CancelRequest("ended"))
    api.state("ended", JobState.FINISHED, JobState.CANCELED)
    late = new_task_manager(slots=3).connect(leader.address)
    late.exhausted = task_manager.exhausted = False
    attempt = submit(api, "next")
    late.expect(m.PrepareJob)
    assert {known for known, _ in prepared(late)} == {attempt}
