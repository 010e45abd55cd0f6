"""What a chaos drill does to more than processes, and what a drill says of a job of which only a part restarts."""

from __future__ import annotations

import random

import pytest
from lockgate_devtools.drill.model import Mode, Target
from lockgate_devtools.drill.processes import ProcessArena
from lockgate_devtools.drill.round import Round
from lockgate_proto.messages import LeaderFailover

from tests.chaos.testing_cluster import TestingCluster

pytestmark = pytest.mark.chaos


@pytest.mark.rotating
def test_storage_in_trouble_a_clock_that_is_off_and_a_frozen_leader_cost_no_record(testing: TestingCluster) -> None:
    arena = ProcessArena(testing.client, testing.cluster, testing.directory)
    arena.survey(Target.STORAGE)
    lines: list[str] = []
    targets = (Target.STORAGE, Target.FULL_STORAGE, Target.LEADER_CLOCK, Target.FROZEN_LEADER)
    options = {"leader_failover": LeaderFailover.LEADER_FAILOVER_REATTACH}
    drill = Round(
        "chaos-drill", arena, lines.append, random.Random(1), targets, 1.0, 500, options, watched_s=2.0, is_chaos=True
    )
    found = drill.run(1)
    assert not found.problems, lines
    assert found.records.is_exact
    *harmless, frozen = found.kills
    assert [(kill.mode, kill.restarted_subtasks) for kill in harmless] == [(None, 0)] * 3
    assert (frozen.mode, frozen.restarted_subtasks) == (Mode.REATTACH, 0)
    assert all(kill.first_checkpoint_ms is not None and kill.progress for kill in found.kills)
    assert arena.wait_complete(60), "the frozen leader wakes up as a standby"


@pytest.mark.rotating
def test_a_task_manager_of_a_job_without_exchange_costs_only_its_own_subtasks(testing: TestingCluster) -> None:
    arena = ProcessArena(testing.client, testing.cluster, testing.directory)
    arena.survey(Target.TASKMANAGER)
    lines: list[str] = []
    targets = (Target.TASKMANAGER,)
    found = Round("part-drill", arena, lines.append, random.Random(1), targets, 1.0, 500, {}, is_forward=True).run(1)
    assert not found.problems, lines
    assert found.records.is_exact
    (kill,) = found.kills
    assert (kill.mode, kill.restarted_subtasks) == (Mode.REGION, 2), "of four, on two task managers"
