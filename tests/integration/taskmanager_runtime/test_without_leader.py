"""Subtasks without a leader, over real streams: they run on for the grace, and then end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from lockgate_proto.messages import Register, SubtaskPhase
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.fake_programs import word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration


def test_subtasks_end_when_no_leader_has_come_within_the_grace(
    new_coordinator: Callable[..., ScriptedCoordinator], new_task_manager: Callable[..., TaskManager]
) -> None:
    coordinator = new_coordinator(token=5)
    managers = [new_task_manager(name, heartbeat_ms=20, leader_grace_ms=100) for name in ("tm-0", "tm-1")]
    for manager in managers:
        manager.on_leader(coordinator.record)
    coordinator.wait_for(Register, 2)
    leader = Leader(coordinator, word_count_graph(), ("tm-0", "tm-1"))
    leader.deploy(1)
    leader.assign(100_000)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    coordinator.die()
    pause, deadline = threading.Event(), time.monotonic() + WAIT_S
    while any(manager.deployments.running() for manager in managers):
        assert time.monotonic() < deadline, "they run on without a leader"
        pause.wait(0.02)
    successor = new_coordinator(token=6)
    for manager in managers:
        manager.on_leader(successor.record)
    assert [register.running for register in successor.wait_for(Register, 2)] == [(), ()]
