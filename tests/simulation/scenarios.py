"""Which scenarios there are: random ones by seed, and a fault at every single step of a coordinator."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.simulation.simulation import Scenario, simulate
from tests.simulation.taskmanager import TaskPlan

FAULTS = {
    "kill_leader": 4,
    "kill_standby": 1,
    "kill_task_manager": 3,
    "freeze_leader": 3,
    "usurp_leader": 3,
    "freeze_task_manager": 1,
    "break_stream": 2,
    "break_channel": 1,
    "cut_leader_off": 2,
    "stop_zookeeper": 1,
    "lose_answers": 2,
}
"""Fault and weight."""


def random_scenario(seed: int) -> Scenario:
    """A schedule with up to six faults within the time that the job takes, often close together."""
    choice = random.Random(~seed)
    names = choice.choices(list(FAULTS), list(FAULTS.values()), k=choice.randint(1, 6))
    at, faults = choice.uniform(0, 800), []
    for name in names:
        faults.append((at, name))
        at += choice.choice((choice.uniform(0, 60), choice.uniform(0, 1_000)))
    unlucky = choice.random() < 0.4
    plan = TaskPlan(
        snapshot_failure=0.02 if unlucky else 0.0,
        upload_failure=0.02 if unlucky else 0.0,
        death=0.01 if unlucky else 0.0,
        repetition=0.1 if choice.random() < 0.5 else 0.0,
        quiet_after_ms=6_000,
    )
    return Scenario(
        seed,
        jobs=2 if choice.random() < 0.15 else 1,
        coordinators=choice.choice((2, 2, 3)),
        task_managers=choice.choice((2, 2, 3)),
        faults=tuple(faults),
        plan=plan,
    )


def quiet_scenario(seed: int) -> Scenario:
    """Nothing goes wrong."""
    return Scenario(seed)


def crash_at(seed: int, point: int) -> Scenario:
    """The coordinator that takes step number `point` of the run dies right after it."""
    return Scenario(seed, crash_at=point)


def freeze_at(seed: int, point: int, *, usurped: bool) -> Scenario:
    """It freezes there, is replaced, and goes on where it was.

    usurped: it is replaced within milliseconds while its session lives, so that nothing but the fence stops it;
    else its session expires.
    """
    return Scenario(seed, stall_at=point, stall_ms=1_500 if usurped else 6_000, usurped=usurped)


def every_point(seed: int, kind: str, step: int = 1) -> Iterator[Scenario]:
    """One scenario for every step that a coordinator takes in the quiet run of `seed`. kind: crash, freeze, usurp."""
    for point in range(1, simulate(quiet_scenario(seed)).points + 1, step):
        yield crash_at(seed, point) if kind == "crash" else freeze_at(seed, point, usurped=kind == "usurp")
