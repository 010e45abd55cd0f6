"""The whole path of two task managers: deploy, run, checkpoint, commit, end, fail over."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest
from lockgate_proto.messages import AcknowledgeCheckpoint, DrainSources, FirstRecord, Register, SubtaskId, SubtaskPhase
from lockgate_taskmanager.runtime import control_client, report_batches
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.fake_programs import World, expected, word, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator

pytestmark = pytest.mark.integration

NewCoordinator = Callable[..., ScriptedCoordinator]
NewTaskManager = Callable[..., TaskManager]


def _leader(new_coordinator: NewCoordinator, new_task_manager: NewTaskManager) -> tuple[Leader, list[TaskManager]]:
    coordinator = new_coordinator()
    managers = [new_task_manager("tm-0"), new_task_manager("tm-1")]
    for manager in managers:
        manager.on_leader(coordinator.record)
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


def test_a_job_whose_reports_travel_together_has_the_same_end(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        report_batches.Company, "of", lambda here, _: report_batches.Company(here, 2_000)
    )  # a large job
    coordinator = new_coordinator()
    coordinator.takes_batches = True
    for name in ("tm-0", "tm-1"):
        manager = new_task_manager(name)
        manager.on_leader(coordinator.record)
        coordinator.wait(lambda manager=manager: manager.control.is_connected)
    leader = Leader(coordinator, word_count_graph(), ("tm-0", "tm-1"))
    leader.deploy(1)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    assert world.visible == {}
    leader.checkpoint(1, terminal=True)
    assert world.visible == expected(1000, 2)
    assert len(coordinator.received(AcknowledgeCheckpoint)) == 4
    numbers = [message.sequence for message in coordinator.messages() if message.sequence]
    assert len(set(numbers)) < len(numbers), "some reports have shared a message"
    assert set(coordinator.batches) == {2}


def test_a_watermark_overtakes_no_record_on_its_way_through_the_exchange(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World
) -> None:
    world.event_time = True
    leader, _ = _leader(new_coordinator, new_task_manager)
    leader.deploy(1)
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    for target in range(2):
        seen = [(time_, received) for subtask, time_, received in world.watermarks if subtask == target]
        assert [time_ for time_, _ in seen] == sorted({time_ for time_, _ in seen}), "it only rises"
        assert seen[-1][0] >= 900
        for time_, received in seen:
            due = sum(
                zlib.crc32(word(split, position).encode()) % 2 == target
                for split in ("0", "1")
                for position in range(min(time_ + 1, 1000))
            )
            assert received >= due, f"at {time_} {received} words were there of {due}"


def test_a_drain_does_not_carry_event_time_past_the_source_that_is_behind(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World
) -> None:
    world.event_time = True
    world.limits = {"0": 900, "1": 300}
    leader, _ = _leader(new_coordinator, new_task_manager)
    leader.deploy(1)
    leader.assign(1000)
    leader.coordinator.wait(lambda: {(0, 299), (1, 299)} <= {watermark[:2] for watermark in world.watermarks})
    leader.coordinator.send("tm-1", DrainSources(leader.attempt))
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED, (SubtaskId(leader.attempt, "words", 1),))
    leader.checkpoint(1)
    leader.coordinator.send("tm-0", DrainSources(leader.attempt))
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    assert max(time_ for _, time_, _ in world.watermarks) == 299, "what has a time of 300 and more may still come"


def test_a_new_attempt_continues_from_the_checkpoint_without_loss_or_duplicates(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pause in ("FIRST_PAUSE_S", "LONGEST_PAUSE_S"):  # a new leader is not to wait for the end of any
        monkeypatch.setattr(control_client, pause, 3600.0)
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
    successor = new_coordinator(token=2)
    for manager in managers:
        manager.on_leader(successor.record)
    registers = successor.wait_for(Register, 2)
    assert all(register.running == (leader.attempt,) for register in registers)
    second = Leader(successor, word_count_graph(), ("tm-0", "tm-1"))
    second.deploy(2, states, 1)
    successor.wait_for(FirstRecord)
    second.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    second.checkpoint(3, terminal=True)
    assert world.visible == expected(1000, 2)
