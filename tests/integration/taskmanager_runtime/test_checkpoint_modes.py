"""Checkpoint modes over real gRPC: two task managers, a leader whose messages the test writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Semaphore

import pytest
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    ChannelSide,
    CheckpointMode,
    CheckpointOptions,
    NotifyCheckpointAborted,
    Register,
    SubtaskPhase,
    SubtaskReport,
    SubtaskState,
    TriggerCheckpoint,
)
from lockgate_taskmanager.runtime.subtask_task import SubtaskTask
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.fake_programs import World, expected, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import WAIT_S, Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration

NewLeader = Callable[[CheckpointMode], Leader]


@pytest.fixture
def managers(new_task_manager: Callable[..., TaskManager]) -> list[TaskManager]:
    return [new_task_manager("tm-0"), new_task_manager("tm-1")]


@pytest.fixture
def new_leader(
    new_coordinator: Callable[..., ScriptedCoordinator], managers: list[TaskManager], tmp_path: Path
) -> NewLeader:
    coordinator = new_coordinator()
    for manager in managers:
        manager.on_leader(coordinator.record)
    coordinator.wait_for(Register, 2)

    def make(mode: CheckpointMode) -> Leader:
        graph = replace(word_count_graph(), checkpoints=CheckpointOptions(mode=mode))
        leader = Leader(coordinator, graph, ("tm-0", "tm-1"))
        leader.directory = str(tmp_path / "run")
        return leader

    return make


def test_at_least_once_records_flow_on_while_a_barrier_is_missing(
    new_leader: NewLeader, managers: list[TaskManager], world: World
) -> None:
    leader = new_leader(CheckpointMode.AT_LEAST_ONCE)
    leader.deploy(1)
    world.limit = 500
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    leader.coordinator.send("tm-0", TriggerCheckpoint(leader.attempt, 1))
    world.limit = None
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)  # both inputs were read to their end: nothing was held
    held = [task.gate.held() for manager in managers for task in manager.deployments.tasks(leader.attempt).values()]
    assert not any(held)
    leader.coordinator.send("tm-1", TriggerCheckpoint(leader.attempt, 1))
    leader.wait_acks(1)
    leader.complete(1)
    assert world.visible == expected(1000, 2)


def test_stop_the_world_nothing_is_read_until_a_checkpoint_is_complete_or_given_up(
    new_leader: NewLeader, world: World
) -> None:
    leader = new_leader(CheckpointMode.STOP_THE_WORLD)
    leader.deploy(1)
    world.limit = 500
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    leader.trigger(1)
    first = leader.wait_acks(1)
    world.limit = None
    for number in range(2, 6):
        leader.trigger(number)
        later = leader.wait_acks(number)
        assert all(later["words", index] == first["words", index] for index in range(2))
    for home in ("tm-0", "tm-1"):
        leader.coordinator.send(home, NotifyCheckpointAborted(leader.attempt, 5))
    leader.complete(4)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    leader.checkpoint(6, terminal=True)
    assert world.visible == expected(1000, 2)


ROWS, PADDING = 400, 200_000  # 80 MB a split: more than fits into every queue together


def _counting(managers: list[TaskManager], leader: Leader) -> list[SubtaskTask]:
    tasks = [task for manager in managers for task in manager.deployments.tasks(leader.attempt).values()]
    return [task for task in tasks if task.id.vertex_id == "count"]


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.01)


def _press(leader: Leader, managers: list[TaskManager], world: World) -> None:
    """Runs the job until every queue is full: what counts is slow, what reads is not."""
    world.padding, world.batch_rows = PADDING, 4
    world.permits = {0: Semaphore(1), 1: Semaphore(1)}
    leader.deploy(1)
    leader.assign(ROWS)
    leader.coordinator.wait_for(
        SubtaskReport, 4, lambda subtask_report: subtask_report.phase is SubtaskPhase.SUBTASK_RUNNING
    )
    full = 24 << 20
    _until(lambda: min(task.gate.queued_bytes() for task in _counting(managers, leader)) > full, "every queue is full")


def _one_batch(leader: Leader, world: World, checkpoint_id: int = 1) -> None:
    """Lets each counting subtask end the batch that it is at, and not one more: by then it has received the trigger.

    Sources get the same messages, and they have acknowledged.
    """
    leader.coordinator.wait_for(
        AcknowledgeCheckpoint, 2, lambda acknowledge_checkpoint: acknowledge_checkpoint.checkpoint_id == checkpoint_id
    )
    for permit in world.permits.values():
        permit.release()


def _in_flight(states: dict[tuple[str, int], SubtaskState], side: ChannelSide) -> int:
    return sum(channel.rows for state in states.values() for channel in state.channels if channel.side is side)


def _finish(leader: Leader, world: World, states: dict[tuple[str, int], SubtaskState], checkpoint_id: int) -> None:
    """The attempt dies after the checkpoint; the next one goes on from it to the end."""
    world.permits = {}
    leader.deploy(2, states, checkpoint_id)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    leader.checkpoint(checkpoint_id + 1, terminal=True)


def test_an_unaligned_barrier_overtakes_full_queues_and_overtaken_records_are_processed_after_a_restore(
    new_leader: NewLeader, managers: list[TaskManager], world: World
) -> None:
    leader = new_leader(CheckpointMode.UNALIGNED)
    _press(leader, managers, world)
    leader.trigger(1, unaligned=True)
    _one_batch(leader, world)
    states = leader.wait_acks(1)
    assert _in_flight(states, ChannelSide.INPUT_CHANNEL) > 100
    _finish(leader, world, states, 1)
    assert world.visible == expected(ROWS, 2)


def test_an_aligned_checkpoint_that_takes_too_long_turns_unaligned(
    new_leader: NewLeader, managers: list[TaskManager], world: World
) -> None:
    leader = new_leader(CheckpointMode.UNALIGNED)
    _press(leader, managers, world)
    leader.trigger(1)
    leader.coordinator.wait_for(AcknowledgeCheckpoint, 2)
    leader.trigger(1, unaligned=True)
    late = TriggerCheckpoint(leader.attempt, 1, unaligned=True)
    _until(lambda: all(late in task._mailbox for task in _counting(managers, leader)), "the second trigger is there")
    _one_batch(leader, world)
    states = leader.wait_acks(1)
    assert _in_flight(states, ChannelSide.INPUT_CHANNEL) > 50
    _finish(leader, world, states, 1)
    assert world.visible == expected(ROWS, 2)


def test_an_unaligned_checkpoint_that_is_aborted_is_followed_by_one_that_holds_everything(
    new_leader: NewLeader, managers: list[TaskManager], world: World
) -> None:
    leader = new_leader(CheckpointMode.UNALIGNED)
    _press(leader, managers, world)
    leader.trigger(1, unaligned=True)
    for home in leader.task_managers:
        leader.coordinator.send(home, NotifyCheckpointAborted(leader.attempt, 1, "test"))
    leader.trigger(2, unaligned=True)
    _one_batch(leader, world, 2)
    states = leader.wait_acks(2)
    _finish(leader, world, states, 2)
    assert world.visible == expected(ROWS, 2)


def test_a_job_in_unaligned_mode_runs_through_several_checkpoints_to_its_exact_end(
    new_leader: NewLeader, world: World
) -> None:
    leader = new_leader(CheckpointMode.UNALIGNED)
    leader.deploy(1)
    leader.assign(3000)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    for checkpoint_id in (1, 2, 3):
        leader.trigger(checkpoint_id, unaligned=True)
        leader.wait_acks(checkpoint_id)
        leader.complete(checkpoint_id)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    leader.checkpoint(4, terminal=True)
    assert world.visible == expected(3000, 2)
