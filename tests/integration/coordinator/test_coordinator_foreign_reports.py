"""What a task manager says of what runs elsewhere, and a Register that is out of all bounds."""

from __future__ import annotations

from collections.abc import Callable

import grpc
import pytest
from lockgate_common.settings import MAX_SLOTS
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.register_bounds import MAX_RUNNING, register_problem
from lockgate_proto import messages as m

from tests.integration.coordinator.conftest import Caller, NewTaskManager, Running
from tests.integration.coordinator.fake_task_manager import FakeFleet

pytestmark = pytest.mark.integration


def _failed(subtask: m.SubtaskId, _attempt: m.AttemptId) -> list[object]:
    return [m.SubtaskReport(subtask, m.SubtaskPhase.SUBTASK_FAILED, m.FailureCause.USER_ERROR, "not mine")]


def _gone(_subtask: m.SubtaskId, attempt: m.AttemptId) -> list[object]:
    return [m.AttemptGone(attempt)]


def _found(_subtask: m.SubtaskId, attempt: m.AttemptId) -> list[object]:
    error = m.SplitsDiscovered(attempt, "source", (), True, "no such folder", m.FailureCause.USER_ERROR)
    return [error]


def _acknowledged(subtask: m.SubtaskId, _attempt: m.AttemptId) -> list[object]:
    """Of every checkpoint that may be under way."""
    state = m.SubtaskState(subtask.vertex_id, subtask.subtask)
    return [m.AcknowledgeCheckpoint(subtask, number, state) for number in range(1, 50)]


def _declined(subtask: m.SubtaskId, _attempt: m.AttemptId) -> list[object]:
    return [m.DeclineCheckpoint(subtask, number, "not mine") for number in range(1, 50)]


@pytest.mark.parametrize("said", [_failed, _gone, _found, _acknowledged, _declined])
def test_a_subtask_outside_the_attempt_has_no_effect(
    running: Callable[..., Running],
    new_task_manager: NewTaskManager,
    fleet: FakeFleet,
    said: Callable[[m.SubtaskId, m.AttemptId], list[object]],
) -> None:
    fleet.acknowledging = False  # the first checkpoint stays under way
    leader, api, task_manager, _ = running()
    deploy = task_manager.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    assert deploy.attempt is not None
    task_manager.expect(m.TriggerCheckpoint)
    stranger = new_task_manager("stranger").connect(leader.address)
    for subtask in task_manager.subtasks(deploy):
        for body in said(subtask, deploy.attempt):
            stranger.send(body)
    stranger.leave()  # it is answered in order: all of it has been looked at
    assert stranger.ended_well
    now = api.status("job")
    assert (now.state, now.attempt, now.restarts, now.checkpoints_aborted) == (m.JobState.RUNNING, 1, 0, 0)
    assert now.checkpoints_completed == 0


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("tm", {"slots": 0}, "offers 0 slots"),
        ("tm", {"slots": 2**31 - 1}, f"between 1 and {MAX_SLOTS}"),
        ("tm/../x", {}, "is not a task manager id"),
        ("tm" * 33, {}, "is not a task manager id"),
        ("tm", {"exchange_address": "host"}, "exchange host:port"),
        ("tm", {"exchange_address": "host:0"}, "exchange host:port"),
        ("tm", {"exchange_address": "host:65536"}, "exchange host:port"),
        ("tm", {"exchange_address": "h" * 10_000 + ":1"}, "exchange host:port"),
        ("tm", {"exchange_address": "a\nb:1"}, "exchange host:port"),
        ("tm", {"release": m.Release("9" * 10_000)}, "reports the version '999"),
        ("tm", {"running": (m.AttemptId("", "r", 1),)}, "an invalid attempt"),
        ("tm", {"running": (m.AttemptId("j" * 129, "r", 1),)}, "an invalid attempt"),
        ("tm", {"running": (m.AttemptId("j", "r" * 129, 1),)}, "an invalid attempt"),
        ("tm", {"running": (m.AttemptId("j", "r", -1),)}, "an invalid attempt"),
        ("tm", {"running": (m.AttemptId("j", "r", 1),) * (MAX_RUNNING + 1)}, f"the limit is {MAX_RUNNING}"),
    ],
)
def test_a_register_out_of_bounds_is_refused_with_a_message(
    name: str, changes: dict[str, object], message: str
) -> None:
    values: dict[str, object] = {"exchange_address": "host:1", "slots": 2, "pid": 1} | changes
    problem = register_problem(name, m.Register(**values))  # type: ignore[arg-type]
    assert message in problem
    assert len(problem) < 500


@pytest.mark.parametrize("address", ["10.0.0.1:7", "[::1]:65535", "tm-1.example.org:7000", "a_b:1"])
def test_reports_of_task_managers_are_handled(address: str) -> None:
    running = (m.AttemptId("a.job-1_x", "20260101-000000-0123abcd", 3),)
    assert register_problem("tm-0.a_b", m.Register(address, MAX_SLOTS, 1, running)) == ""


def test_the_stream_of_such_a_register_ends_with_the_reason(
    leader: Coordinator, api: Caller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager("greedy", slots=MAX_SLOTS + 1).connect(leader.address)
    task_manager.wait(lambda: task_manager.status is not None)
    assert task_manager.status is grpc.StatusCode.INVALID_ARGUMENT
    assert "offers 1025 slots" in task_manager.details
    assert api("GetCluster", m.GetClusterRequest()).task_managers == ()
