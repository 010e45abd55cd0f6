"""What the leader says about a running job reaches whoever prepares for it, and touches nothing that runs."""

from __future__ import annotations

import queue
from collections.abc import Callable

import pytest
from lockgate_proto.messages import AttemptId, PrepareJob, SubtaskPhase
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.fake_programs import World, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration

NewCoordinator = Callable[..., ScriptedCoordinator]
NewTaskManager = Callable[..., TaskManager]
GRAPH = word_count_graph(1)
ADVICE = PrepareJob(AttemptId("job", "run", 3), GRAPH, 2)


def connected(manager: TaskManager, coordinator: ScriptedCoordinator) -> queue.Queue[PrepareJob]:
    """Where the advice arrives."""
    received: queue.Queue[PrepareJob] = queue.Queue()
    manager.on_prepare = received.put
    manager.on_leader(coordinator.record)
    coordinator.wait(lambda: any(message.task_manager_id == manager.id for message in coordinator.messages()))
    return received


def test_it_arrives_as_it_was_sent_and_nothing_is_deployed_by_it(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World
) -> None:
    coordinator, manager = new_coordinator(), new_task_manager("tm-0")
    received = connected(manager, coordinator)
    coordinator.send("tm-0", ADVICE)
    assert received.get(timeout=WAIT_S) == ADVICE
    assert manager.deployments.running() == ()
    assert world.opened == []


def test_it_does_not_stand_in_for_an_attempt(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World
) -> None:
    """A deployment of the attempt it names is not taken for one that was here before."""
    coordinator, manager = new_coordinator(), new_task_manager("tm-0")
    received = connected(manager, coordinator)
    coordinator.send("tm-0", PrepareJob(AttemptId("job", "run", 1), GRAPH, 1))
    leader = Leader(coordinator, GRAPH, ("tm-0",))
    leader.deploy(1)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    assert received.get_nowait().slots == 1
    coordinator.send("tm-0", ADVICE)  # of the same run, while it runs
    assert received.get(timeout=WAIT_S) == ADVICE
    assert manager.deployments.running() == (leader.attempt,)
    assert {context.subtask.attempt for context in world.opened} == {leader.attempt}


def test_a_replaced_leaders_advice_is_refused(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager
) -> None:
    coordinator, manager = new_coordinator(token=5), new_task_manager("tm-0")
    received = connected(manager, coordinator)
    coordinator.send("tm-0", ADVICE, token=4)
    assert coordinator.wait_ended("tm-0")
    assert received.empty()


def test_without_a_handler_the_advice_is_ignored(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager
) -> None:
    coordinator, manager = new_coordinator(), new_task_manager("tm-0")
    manager.on_leader(coordinator.record)
    leader = Leader(coordinator, GRAPH, ("tm-0",))
    coordinator.wait(lambda: coordinator.messages())
    coordinator.send("tm-0", ADVICE)
    leader.deploy(1)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
