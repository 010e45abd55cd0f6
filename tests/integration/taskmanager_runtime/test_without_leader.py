"""Subtasks without a leader, over real streams: they run on for the grace, and then end.

Sources of a job that the next leader restarts rest for a moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lockgate_proto.messages import JobGraph, LeaderFailover, Register, SubtaskPhase
from lockgate_taskmanager.runtime import source_rest
from lockgate_taskmanager.runtime.source_rest import SourceRest
from lockgate_taskmanager.runtime.task_manager import TaskManager
from lockgate_taskmanager.task.program import Idle

from tests.integration.taskmanager_runtime.fake_programs import World, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, Leader, ScriptedCoordinator, until

pytestmark = pytest.mark.integration

ROWS, MORE = 100, 200
LeftAlone = Callable[[LeaderFailover], tuple[TaskManager, JobGraph]]


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
    until(lambda: not any(manager.deployments.running() for manager in managers), "they end without a leader")
    successor = new_coordinator(token=6)
    for manager in managers:
        manager.on_leader(successor.record)
    assert [register.running for register in successor.wait_for(Register, 2)] == [(), ()]


def read_by(manager: TaskManager) -> int:
    """Records that its source has read."""
    found = [counters for counters in manager.deployments.counters() if "words" in str(counters.subtask)]
    return sum(each.records_out for counters in found for each in counters.counters)


def rests(manager: TaskManager, pauses: list[Idle]) -> bool:
    """Whether its source pauses three times more, and reads nothing."""
    before = len(pauses)
    until(lambda: len(pauses) > before + 2, "it rests")
    return read_by(manager) == ROWS


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[Idle]:
    """Those of sources, which are longer than the test."""
    found: list[Idle] = []
    pause = SourceRest.pause

    def noted(rest: SourceRest, token: int) -> Idle | None:
        if (idle := pause(rest, token)) is not None:
            found.append(idle)
        return idle

    monkeypatch.setattr(SourceRest, "pause", noted)
    monkeypatch.setattr(source_rest, "REST_S", 10 * WAIT_S)
    return found


@pytest.fixture
def left_alone(
    new_coordinator: Callable[..., ScriptedCoordinator], new_task_manager: Callable[..., TaskManager], world: World
) -> LeftAlone:
    """A job whose source has read ROWS, and may read MORE now that it has lost its leader, with token 5."""

    def make(failover: LeaderFailover) -> tuple[TaskManager, JobGraph]:
        coordinator, manager = new_coordinator(token=5), new_task_manager("tm-0", heartbeat_ms=20)
        graph = replace(word_count_graph(1), leader_failover=failover)
        world.limit = ROWS
        manager.on_leader(coordinator.record)
        coordinator.wait_for(Register)
        leader = Leader(coordinator, graph, ("tm-0",))
        leader.deploy(1)
        leader.assign(100_000)
        until(lambda: read_by(manager) == ROWS, "it reads")
        coordinator.die()
        until(lambda: not manager.control.is_connected, "the leader is missed")
        world.limit = MORE
        return manager, graph

    return make


def test_sources_of_a_job_that_is_restarted_rest_until_the_same_leader_is_back(
    left_alone: LeftAlone, new_coordinator: Callable[..., ScriptedCoordinator], pauses: list[Idle]
) -> None:
    manager, _ = left_alone(LeaderFailover.LEADER_FAILOVER_RESTART)
    assert rests(manager, pauses)
    manager.on_leader(new_coordinator(token=5).record)
    until(lambda: read_by(manager) == MORE, "it reads on, for its leader is back")


def test_they_rest_until_the_next_leader_deploys_others_which_read_at_once(
    left_alone: LeftAlone, new_coordinator: Callable[..., ScriptedCoordinator], pauses: list[Idle]
) -> None:
    manager, graph = left_alone(LeaderFailover.LEADER_FAILOVER_RESTART)
    successor = new_coordinator(token=6)
    manager.on_leader(successor.record)
    successor.wait_for(Register)
    until(lambda: manager.control.is_connected, "it is registered")
    assert rests(manager, pauses)
    leader = Leader(successor, graph, ("tm-0",))
    leader.deploy(2)
    leader.assign(100_000)
    until(lambda: read_by(manager) == MORE, "the next attempt reads")


def test_sources_of_a_job_that_can_be_adopted_read_on(left_alone: LeftAlone, pauses: list[Idle]) -> None:
    manager, _ = left_alone(LeaderFailover.LEADER_FAILOVER_REATTACH)
    until(lambda: read_by(manager) == MORE, "it reads on without a leader")
    assert pauses == []
