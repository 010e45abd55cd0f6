"""Which scenarios there are: random ones by seed, and a fault at every single step of a coordinator."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from lockgate_proto.messages import CheckpointMode

from tests.simulation.job import SimulatedJob
from tests.simulation.orders import Order
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


def quiet_scenario(seed: int, mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE) -> Scenario:
    """Nothing goes wrong."""
    return Scenario(seed, mode=mode)


RESCALE = ((350.0, Order(3)), (600.0, Order(1)))
STOP = ((250.0, Order()),)
DRAIN = ((250.0, Order(drain=True)),)
SAVEPOINT_THEN_STOP = ((235.0, Order(savepoint=True)), (250.0, Order()))
SAVEPOINT_THEN_DRAIN = ((235.0, Order(savepoint=True)), (250.0, Order(drain=True)))


def cancelled_scenario(seed: int) -> Scenario:
    """Nothing goes wrong, and a client cancels the job, at any time."""
    return Scenario(seed, orders=((random.Random(seed).uniform(50, 900), Order(cancel=True)),))


def ordered_scenario(seed: int) -> Scenario:
    """A random schedule, in which the job is rescaled once or twice, or is stopped, or both.

    Users take savepoints at about the same time as they order something else.
    """
    choice = random.Random(seed)
    orders = [(choice.uniform(50, 900), Order(choice.choice((1, 3, 4)))) for _ in range(choice.choice((0, 1, 1, 2)))]
    if choice.random() < 0.4 or not orders:
        orders.append((choice.uniform(100, 1_200), Order(drain=choice.random() < 0.5)))
    for at, _ in tuple(orders):
        if choice.random() < 0.5:
            orders.append((max(0.0, at + choice.uniform(-40, 40)), Order(savepoint=True)))
    return replace(random_scenario(seed), orders=tuple(orders))


def slow_scenario(seed: int) -> Scenario:
    """One of the task managers is slow from the start; nothing else goes wrong."""
    return Scenario(seed, plan=TaskPlan(slow="tm-0"))


def slow_among_faults(seed: int) -> Scenario:
    """A random schedule, orders included, in which a task manager is slow as well."""
    found = ordered_scenario(seed) if seed % 2 else random_scenario(seed)
    return replace(found, plan=replace(found.plan, slow=f"tm-{seed % found.task_managers}"))


def crash_at(seed: int, point: int, mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE) -> Scenario:
    """The coordinator that takes step number `point` of the run dies right after it."""
    return Scenario(seed, crash_at=point, mode=mode)


def freeze_at(seed: int, point: int, *, usurped: bool) -> Scenario:
    """It freezes there, is replaced, and goes on where it was.

    usurped: it is replaced within milliseconds while its session lives, so that nothing but the fence stops it;
    else its session expires.
    """
    return Scenario(seed, stall_at=point, stall_ms=1_500 if usurped else 6_000, usurped=usurped)


def every_point(
    seed: int,
    kind: str,
    step: int = 1,
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE,
    job: SimulatedJob | None = None,
) -> Iterator[Scenario]:
    """One scenario for every step that a coordinator takes in the quiet run of `seed`. kind: crash, freeze, usurp."""
    for point in range(1, simulate(replace(quiet_scenario(seed, mode), job=job)).points + 1, step):
        if kind == "crash":
            yield replace(crash_at(seed, point, mode), job=job)
        else:
            yield replace(freeze_at(seed, point, usurped=kind == "usurp"), mode=mode, job=job)
