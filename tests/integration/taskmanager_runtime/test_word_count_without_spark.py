"""The whole path of two task managers: deploy, run, checkpoint, commit, end, fail over."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lockgate_proto.messages import FirstRecord, Register, SubtaskPhase

from taskmanager.runtime.task_manager import TaskManager
from tests.integration.taskmanager_runtime.fake_programs import World, expected, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration

NewCoordinator = Callable[..., ScriptedCoordinator]
NewTaskManager = Callable[..., TaskManager]


def _leader(new_coordinator: NewCoordinator, new_task_manager: NewTaskManager) -> tuple[Leader, list[TaskManager]]:
    coordinator = new_coordinator()
    managers = [new_task_manager("tm-0"), new_task_manager("tm-1")]
    for one in managers:
        one.on_leader(coordinator.record)
    coordinator.wait_for(Register, 2)
    return Leader(coordinator, word_count_graph(), ("tm-0", "tm-1")), managers


def test_a_bounded_job_runs_to_its_committed_end(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World
) -> None:
    leader, _ = _leader(new_coordinator, new_task_manager)
    leader.deploy(1)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    assert world.visible == {}  # nothing before its commit
    leader.checkpoint(1, terminal=True)
    assert world.visible == expected(1000, 2)
    assert len(leader.coordinator.received(FirstRecord)) == 2


def test_a_new_attempt_goes_on_from_the_checkpoint_and_nothing_is_lost_or_doubled(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World
) -> None:
    leader, managers = _leader(new_coordinator, new_task_manager)
    world.limit = 400
    leader.deploy(1)
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    states = leader.checkpoint(1)
    world.limit = None
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    leader.trigger(2)
    leader.wait_acks(2)  # the leader dies before it completes 2

    leader.coordinator.die()
    started = time.monotonic()
    successor = new_coordinator(token=2)
    for one in managers:
        one.on_leader(successor.record)
    registers = successor.wait_for(Register, 2)
    assert all(one.running == (leader.attempt,) for one in registers)
    second = Leader(successor, word_count_graph(), ("tm-0", "tm-1"))
    second.deploy(2, states, 1)
    successor.wait_for(FirstRecord)
    took = time.monotonic() - started
    second.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    second.checkpoint(3, terminal=True)
    assert world.visible == expected(1000, 2)
    assert took < 2.0, f"from the new leader to the first record {took:.3f} s"
    print(f"takeover to first record: {took * 1000:.1f} ms")
