"""The page of metrics of task managers that run, checkpoint, wait and lose their attempt. Without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lockgate_common.metrics.page import MetricsPage
from lockgate_proto.messages import AttemptGone, CancelAttempt, Heartbeat, Register, SubtaskPhase
from lockgate_taskmanager.runtime.metric_collector import task_manager_page
from lockgate_taskmanager.runtime.metric_families import FAMILIES
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.task_manager import TaskManager

from tests.integration.taskmanager_runtime.fake_programs import World, word_count_graph
from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator
from tests.prometheus import Page, complaints

pytestmark = pytest.mark.integration

NewCoordinator = Callable[..., ScriptedCoordinator]
NewTaskManager = Callable[..., TaskManager]


@pytest.fixture
def running(new_coordinator: NewCoordinator, new_task_manager: NewTaskManager) -> tuple[Leader, list[TaskManager]]:
    coordinator = new_coordinator(token=5, heartbeat_ms=20)
    managers = [new_task_manager("tm-0"), new_task_manager("tm-1")]
    for manager in managers:
        manager.on_leader(coordinator.record)
    coordinator.wait_for(Register, 2)
    leader = Leader(coordinator, word_count_graph(), ("tm-0", "tm-1"))
    leader.deploy(1)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    return leader, managers


def _page(manager: TaskManager) -> tuple[bytes, Page]:
    made: MetricsPage = task_manager_page(manager, TaskManagerSettings("unused:1", "unused"), lambda: True)
    body = made.render()[1]
    return body, Page(body)


def test_a_task_manager_shows_its_subtasks_and_forgets_them(
    running: tuple[Leader, list[TaskManager]], world: World
) -> None:
    leader, managers = running
    leader.assign(1000)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    leader.coordinator.wait_for(Heartbeat, 4)  # the last counters and batches are noted
    body, page = _page(managers[0])
    assert complaints(body) == ""
    assert page.own_names <= {family.name for family in FAMILIES}
    assert page.get("lockgate_metrics_incomplete") == 0
    assert page.get("lockgate_fencing_token") == 5
    assert page.get("lockgate_taskmanager_leader_connected") == 1
    assert page.get("lockgate_taskmanager_control_streams_total") == 1
    subtasks = page.get("lockgate_taskmanager_subtasks")
    assert subtasks == 2
    assert page.get("lockgate_exchange_streams"), "each vertex is spread over both task managers"
    records = sum(_of(page, "lockgate_subtask_input_records"))
    batches = sum(_of(page, "lockgate_subtask_batches"))
    counted = sum(
        sample.value
        for sample in page.families["lockgate_subtask_batch_duration_seconds"].samples
        if sample.name.endswith("_count")
    )
    assert 0 < batches <= records
    assert counted == batches
    leader.checkpoint(1, terminal=True)
    assert world.visible
    for name in ("tm-0", "tm-1"):
        leader.coordinator.send(name, CancelAttempt(leader.attempt, "it is over"))
    leader.coordinator.wait_for(AttemptGone, 2)
    gone = _page(managers[0])[1]
    assert gone.get("lockgate_taskmanager_subtasks") == 0
    assert "lockgate_subtask_time_seconds" not in gone.families


def test_a_snapshot_shows_its_size_and_times(running: tuple[Leader, list[TaskManager]]) -> None:
    leader, managers = running
    assert "lockgate_state_size_bytes" not in _page(managers[0])[1].families
    leader.assign(1000)
    states = leader.checkpoint(1)
    pages = [_page(manager)[1] for manager in managers]
    assert pages[0].labels("lockgate_subtask_snapshot_upload_seconds", "vertex") == {"words", "count"}
    shown = {
        (sample.labels["vertex"], int(sample.labels["subtask"]), sample.labels["operator"]): sample.value
        for page in pages
        for sample in page.families["lockgate_state_size_bytes"].samples
    }
    assert shown == {
        (*subtask, operator.operator_id): len(operator.handle.inline)
        for subtask, state in states.items()
        for operator in state.operators
        if operator.handle is not None
    }


def test_a_subtask_that_waits_for_input_is_idle(running: tuple[Leader, list[TaskManager]]) -> None:
    leader, managers = running

    def idle() -> float:
        return sum(
            sample.value
            for sample in _page(managers[0])[1].families["lockgate_subtask_time_seconds"].samples
            if sample.labels["state"] == "idle"
        )

    before = idle()
    leader.coordinator.wait(lambda: idle() > before)  # it rises while the wait goes on: no batch ends it


def test_heartbeats_say_how_busy_a_subtask_is_and_how_far_event_time_has_come(
    running: tuple[Leader, list[TaskManager]], world: World
) -> None:
    leader, managers = running
    world.event_time = True
    leader.assign(1000, complete=False)

    def watermarks() -> set[int]:
        beats = leader.coordinator.received(Heartbeat)
        loads = [counters.load for beat in beats for counters in beat.counters if counters.load is not None]
        assert all(load.busy_permille + load.backpressured_permille <= 1_000 for load in loads)
        return {load.watermark_unix_ms for load in loads if load.has_watermark}

    def shown() -> list[float]:
        return _of(_page(managers[0])[1], "lockgate_subtask_watermark_timestamp_seconds")

    leader.coordinator.wait(lambda: 999 in watermarks())
    leader.coordinator.wait(lambda: 0.999 in shown())  # the heartbeat may be the other task manager's
    for task in managers[0].deployments.live_tasks():
        task.load.passed(replace(task.load.watermark, idle=True))
    assert "lockgate_subtask_watermark_timestamp_seconds" not in _page(managers[0])[1].families


def _of(page: Page, family: str) -> list[float]:
    return [sample.value for sample in page.families[family].samples]
