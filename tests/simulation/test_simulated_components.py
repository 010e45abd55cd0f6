"""Components of a job that no edge connects restart without each other, as far as they share no slots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lockgate_proto.messages import CheckpointMode, Edge, Partitioning

from tests.share import SHARE
from tests.simulation.job import SimulatedJob, count, exchanging_job, forward_job, hashed, ledger, source
from tests.simulation.scenarios import exchanging_scenario, part_scenario, quiet_scenario
from tests.simulation.simulation import Outcome, simulate
from tests.simulation.taskmanager import TaskPlan

SEEDS = 16
SLOTS = 4
RESTARTED = ([2, 2, 1, 2], [2, 2, 1, 1], [1, 1, 2, 1])
"""By slot, when a task manager is lost. The first one has slots 0 and 3."""


def whole_beside_forward(parallelism: int = 2, *, discovered: bool = True) -> SimulatedJob:
    """Four slots of which none depends on another; some of them have a component that restarts as a whole, too."""
    job = forward_job("job", discovered=discovered)
    more = (source("far", 3, 40, parallelism, discovered=not discovered), count("far-count", parallelism))
    return replace(job, vertices=(*job.vertices, *more), edges=(*job.edges, hashed("far", "far-count")))


def whole_beside_part(*, discovered: bool = True) -> SimulatedJob:
    """Four slots of a component that restarts in part; two of them have one that cannot, too."""
    job = exchanging_job("job", discovered=discovered)
    more = (source("far", 3, 40, discovered=not discovered), ledger("far-ledger"))
    return replace(
        job, vertices=(*job.vertices, *more), edges=(*job.edges, Edge("far", "far-ledger", Partitioning.REBALANCE))
    )


def outcome(job: SimulatedJob, *faults: tuple[float, str], seed: int = 5, **changes: object) -> Outcome:
    base = replace(quiet_scenario(seed), task_managers=3, plan=TaskPlan(repetition=0.2, quiet_after_ms=6_000))
    return simulate(replace(base, job=job, faults=faults, **changes))  # type: ignore[arg-type]


def begun(found: Outcome) -> list[int]:
    """How often the subtasks in each slot were deployed; those in one slot always together."""
    slots = [{times for key, times in found.begun.items() if key[1] == slot} for slot in range(SLOTS)]
    assert all(len(times) == 1 for times in slots)
    return [next(iter(times)) for times in slots]


@pytest.mark.parametrize("seed", [5, 6, 7])
@pytest.mark.parametrize("at_ms", [430, 560, 690])
@pytest.mark.parametrize("make", [whole_beside_forward, whole_beside_part])
def test_a_lost_task_manager_restarts_only_what_depends_on_it(
    make: Callable[..., SimulatedJob], at_ms: int, seed: int
) -> None:
    found = outcome(make(discovered=seed % 2 == 0), (at_ms, "kill_task_manager"), seed=seed)
    assert found.ended == ("FINISHED",)
    assert begun(found) in RESTARTED


@pytest.mark.parametrize("at_ms", [430, 500, 560, 620, 690])
def test_a_failed_subtask_restarts_its_slot_and_what_that_exchanges_records_with(at_ms: int) -> None:
    found = outcome(whole_beside_forward(), (at_ms, "fail_subtask"))
    assert found.ended == ("FINISHED",)
    assert begun(found) in ([2, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2])  # slots 0 and 1 exchange records


@pytest.mark.parametrize("at_ms", [450, 560])
@pytest.mark.parametrize("mode", [CheckpointMode.UNALIGNED, CheckpointMode.AT_LEAST_ONCE])
def test_so_they_do_in_other_modes(mode: CheckpointMode, at_ms: int) -> None:
    found = outcome(whole_beside_forward(), (at_ms, "kill_task_manager"), mode=mode, at_a_time=2)
    assert found.ended == ("FINISHED",)
    assert begun(found) in RESTARTED


@pytest.mark.parametrize("after_ms", range(0, 200, 40))
def test_a_leader_may_die_while_a_component_restarts(after_ms: int) -> None:
    faults = ((500.0, "kill_task_manager"), (500.0 + after_ms, "kill_leader"))
    assert outcome(whole_beside_forward(), *faults, reattach=True).ended == ("FINISHED",)


@pytest.mark.parametrize("seed", range(max(1, SEEDS // SHARE)))
@pytest.mark.parametrize("parallelism", [2, 3])
def test_components_restart_among_other_faults(seed: int, parallelism: int) -> None:
    job = whole_beside_forward(parallelism, discovered=seed % 2 == 0)
    assert simulate(replace(part_scenario(seed), job=job, orders=())).ended


@pytest.mark.parametrize("seed", range(max(1, SEEDS // SHARE)))
def test_components_that_restart_in_part_or_not_restart_among_other_faults(seed: int) -> None:
    job = whole_beside_part(discovered=seed % 2 == 0)
    assert simulate(replace(exchanging_scenario(seed), job=job, orders=())).ended
