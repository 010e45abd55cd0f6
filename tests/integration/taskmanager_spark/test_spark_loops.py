"""A loop on real Spark over real gRPC: a snapshot while records circle, and what goes on from it at any width."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from lockgate_common.security import Credentials
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_proto.messages import (
    CheckpointMetadata,
    CheckpointMode,
    CheckpointOptions,
    JobGraph,
    Register,
    SubtaskPhase,
    SubtaskState,
)
from lockgate_taskmanager.runtime.settings import TaskManagerSettings
from lockgate_taskmanager.runtime.task_manager import TaskManager
from lockgate_taskmanager.spark.engine import SparkEngine

from lockgate import Job
from tests.integration.taskmanager_runtime.scripted_coordinator import Leader, ScriptedCoordinator

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800), pytest.mark.rotating]  # each lap is a Spark job

ROWS, LAPS = 300, 25
ROWS_PER_SECOND = (
    300.0  # the source goes on for a while: however fast the machine is, a snapshot finds records circling
)


@pytest.fixture
def coordinator(engine: SparkEngine, tmp_path: Path) -> Iterator[ScriptedCoordinator]:
    """A leader that the test writes, with two task managers on one engine."""
    credentials = Credentials(secret="a secret of this test")
    made = ScriptedCoordinator(credentials)
    managers = []
    for name in ("tm-0", "tm-1"):
        settings = TaskManagerSettings(
            zookeeper="unused:1", work_dir=str(tmp_path), credentials=credentials, task_manager_id=name
        )
        managers.append(TaskManager(settings, engine))
        managers[-1].start()
        managers[-1].on_leader(made.record)
    made.wait_for(Register, 2)
    yield made
    for manager in managers:
        manager.stop()
    made.die()


def _graph(folder: Path, parallelism: int, mode: CheckpointMode) -> JobGraph:
    job = Job("laps", parallelism=parallelism)
    loop = job.generate(ROWS, rate=ROWS_PER_SECOND).uid("words").select("*", "0 AS laps").loop()
    lap = loop.select("partition", "sequence", "laps + 1 AS laps")
    loop.close_with(lap.filter(f"laps < 1 + sequence % {LAPS}").rebalance())
    lap.filter(f"laps >= 1 + sequence % {LAPS}").write_json(folder / "out")
    graph = replace(job.graph(), checkpoints=CheckpointOptions(mode=mode))
    assert validate(graph) == ()
    return normalize(graph)


def _rows(folder: Path) -> list[tuple[int, int, int]]:
    lines = [line for path in (folder / "out").glob("part-*") for line in path.read_text("utf-8").splitlines()]
    return sorted((item["partition"], item["sequence"], item["laps"]) for item in map(json.loads, lines))


def _circling(leader: Leader, unaligned: bool) -> tuple[int, dict[tuple[str, int], SubtaskState]]:
    """The first snapshot with records that circle: the very first ones may come before the first record."""
    for checkpoint_id in range(1, 1000):
        leader.trigger(checkpoint_id, unaligned=unaligned)
        states = leader.wait_acks(checkpoint_id)
        if any(channel.rows for state in states.values() for channel in state.channels):
            return checkpoint_id, states
    raise AssertionError("after the loop was found to be empty")


@pytest.mark.parametrize(
    ("mode", "width"),
    [(CheckpointMode.EXACTLY_ONCE, 3), (CheckpointMode.EXACTLY_ONCE, 1), (CheckpointMode.UNALIGNED, 2)],
)
def test_records_in_a_loop_at_a_snapshot_are_emitted_once(
    coordinator: ScriptedCoordinator, tmp_path: Path, mode: CheckpointMode, width: int
) -> None:
    unaligned = mode is CheckpointMode.UNALIGNED
    leader = Leader(coordinator, _graph(tmp_path, 2, mode), ("tm-0", "tm-1"))
    leader.directory = str(tmp_path / "run")
    leader.deploy(1)
    leader.assign(ROWS)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    taken, states = _circling(leader, unaligned)
    snapshot = CheckpointMetadata(
        format_version=1, vertices=vertex_shapes(leader.graph), subtasks=tuple(states.values())
    )
    leader.graph = _graph(tmp_path, width, mode)
    leader.deploy(2, dict(redistribute(leader.graph, snapshot)), taken)
    leader.wait_phase(SubtaskPhase.SUBTASK_RUNNING)
    leader.trigger(taken + 1, unaligned=unaligned)
    leader.wait_acks(taken + 1)
    leader.wait_phase(SubtaskPhase.SUBTASK_EXHAUSTED)
    leader.checkpoint(taken + 2, terminal=True)
    assert _rows(tmp_path) == sorted((number, row, 1 + row % LAPS) for number in (0, 1) for row in range(ROWS))
