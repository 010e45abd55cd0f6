"""Which scenarios there are: random ones by seed, and a fault at every single step of a coordinator."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lockgate_proto.messages import CheckpointMode

from tests.share import EVERY_POINT, of_today
from tests.simulation.job import FORWARD_VERTICES, SimulatedJob, exchanging_job, forward_job, growing_job
from tests.simulation.orders import Order
from tests.simulation.simulation import Scenario, Step, simulate
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
    "cut_one_way": 2,
    "cut_both_ways": 1,
    "isolate_task_manager": 1,
    "isolate_leader": 1,
    "lose_storage": 1,
    "slow_storage": 2,
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
        batch_ms=(0, 0, 5, 20)[seed % 4],
    )
    return Scenario(
        seed,
        jobs=2 if choice.random() < 0.15 else 1,
        coordinators=choice.choice((2, 2, 3)),
        task_managers=choice.choice((2, 2, 3)),
        faults=tuple(faults),
        plan=plan,
        metadata_in_files=choice.random() < 0.3,
        rival=choice.random() < 0.3,
    )


def quiet_scenario(seed: int, mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE) -> Scenario:
    """Nothing goes wrong."""
    return Scenario(seed, mode=mode)


RESCALE = ((350.0, Order(3)), (600.0, Order(1)))
RESCALE_COUNT = ((350.0, Order(3, ("count",))), (600.0, Order(1, ("count",))))
"""Of the keyed vertex only: records in flight to it can be moved, those to the ledger cannot."""
STOP = ((250.0, Order()),)
DRAIN = ((250.0, Order(drain=True)),)
SAVEPOINT_THEN_STOP = ((235.0, Order(savepoint=True)), (250.0, Order()))
SAVEPOINT_THEN_DRAIN = ((235.0, Order(savepoint=True)), (250.0, Order(drain=True)))
ORDERS = {
    "rescale": RESCALE,
    "stop": STOP,
    "drain": DRAIN,
    "savepoint-then-stop": SAVEPOINT_THEN_STOP,
    "savepoint-then-drain": SAVEPOINT_THEN_DRAIN,
}


def with_orders(seed: int, orders: tuple[tuple[float, Order], ...]) -> Scenario:
    """Nothing goes wrong, and a client orders something."""
    return Scenario(seed, orders=orders)


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


def broken_writes_scenario(seed: int) -> Scenario:
    """The leader's connection to ZooKeeper breaks in writes; nothing else goes wrong."""
    choice = random.Random(seed)
    times = [choice.uniform(0, 1_200) for _ in range(choice.randint(1, 4))]
    return Scenario(seed, faults=tuple((at, "lose_answers") for at in times))


def savepoint_beside_end(seed: int) -> Scenario:
    """A user takes a savepoint at about the time at which another one stops or drains the job."""
    at = 200.0 + 3 * (seed // 2 % 30)
    return Scenario(seed, orders=((at, Order(savepoint=True)), (250.0, Order(drain=bool(seed % 2)))))


def repeated_savepoint(seed: int) -> Scenario:
    """A user asks for a savepoint until there is an answer, perhaps again; with odd seeds the leader dies meanwhile."""
    at = 80.0 + 7 * (seed % 20)
    faults = ((at + 10 * (seed % 9), "kill_leader"),) if seed % 2 else ()
    return Scenario(seed, orders=((at, Order(savepoint=True)),), faults=faults)


def silent_scenario(seed: int) -> Scenario:
    """Paths are cut without a sound, often one way only; nothing else goes wrong."""
    choice = random.Random(seed)
    names = ("cut_one_way", "cut_one_way", "cut_both_ways", "isolate_task_manager", "isolate_leader")
    faults = tuple((choice.uniform(0, 1_000), choice.choice(names)) for _ in range(choice.randint(1, 3)))
    return Scenario(seed, task_managers=choice.choice((2, 3)), faults=faults)


def double_death_scenario(seed: int) -> Scenario:
    """Leader and task manager die at once; nothing else happens. There are spare slots."""
    at = random.Random(seed).uniform(350, 600)
    faults = ((at, "kill_leader"), (at, "kill_task_manager"))
    return Scenario(seed, task_managers=3, faults=faults, reattach=True)


def dying_leaders_scenario(seed: int) -> Scenario:
    """One leader after the other is killed, most of them while they take over; nothing else happens."""
    choice = random.Random(seed)
    at, faults = choice.uniform(300, 500), []
    for _ in range(20):
        faults.append((at, "kill_leader"))
        at += choice.uniform(5, 250)
    return Scenario(seed, coordinators=5, faults=tuple(faults), reattach=bool(seed % 2))


def slow_leader_scenario(seed: int) -> Scenario:
    """The leader stands still again and again, for a shorter time than it is given to answer; nothing else happens."""
    choice = random.Random(seed)
    return Scenario(seed, faults=tuple((at + choice.uniform(0, 300), "doze_leader") for at in (50.0, 950.0, 1_850.0)))


def stunned_leader_scenario(seed: int) -> Scenario:
    """The leader is frozen, for a shorter time than its session lasts; nothing else happens."""
    return Scenario(seed, faults=((random.Random(seed).uniform(350, 600), "stun_leader"),), reattach=True)


def flaky_scenario(seed: int) -> Scenario:
    """Control streams break again and again, and whatever may be said twice often is."""
    choice = random.Random(seed)
    faults = tuple((choice.uniform(0, 1_500), "break_stream") for _ in range(25))
    return Scenario(seed, faults=faults, plan=TaskPlan(repetition=0.3, quiet_after_ms=6_000, batch_ms=seed % 2 * 10))


def storage_scenario(seed: int) -> Scenario:
    """The storage is away, or slow, again and again; nothing else goes wrong, and no failure is borne."""
    choice = random.Random(seed)
    names = ("lose_storage", "slow_storage")
    faults = tuple((choice.uniform(0, 1_200), choice.choice(names)) for _ in range(3))
    return Scenario(seed, faults=faults, tolerable=0)


def damaged_scenario(seed: int) -> Scenario:
    """A file of the newest checkpoint is damaged, and something fails that needs it."""
    choice = random.Random(seed)
    at = choice.uniform(250, 900)
    death = choice.choice(("kill_leader", "kill_task_manager"))
    faults = ((at, "damage_state"), (at + choice.uniform(0, 60), death))
    return Scenario(seed, jobs=choice.choice((1, 2)), faults=faults, metadata_in_files=choice.random() < 0.5)


def copies_scenario(seed: int) -> Scenario:
    """Task managers die and the storage is away or slow, where copies are kept that get lost, damaged or late."""
    choice = random.Random(seed)
    harm = ("spoil_copies", "spoil_copies", "fill_disk")
    faults = [(choice.uniform(0, 1_200), choice.choice(harm)) for _ in range(4)]
    for at in (choice.uniform(250, 700), choice.uniform(700, 1_500)):
        if choice.random() < 0.4:
            faults.append((at - choice.uniform(0, 40), choice.choice(("lose_storage", "slow_storage"))))
        faults.append((at, choice.choice(("kill_task_manager", "kill_task_manager", "break_channel", "kill_leader"))))
    return Scenario(seed, task_managers=3, faults=tuple(faults), replicas=choice.choice((1, 2)))


def part_scenario(seed: int) -> Scenario:
    """Task managers die, subtasks fail, and other faults happen, where each slot of the job can restart alone."""
    choice = random.Random(seed)
    kinds = ("kill_task_manager", "kill_task_manager", "fail_subtask")
    faults = [(choice.uniform(250, 900), choice.choice(kinds)) for _ in range(choice.choice((1, 1, 2, 3)))]
    if choice.random() < 0.7:
        at = choice.choice(faults)[0] + choice.uniform(-40, 600)
        faults += [(at, choice.choice(list(FAULTS))), (at + choice.uniform(0, 400), choice.choice(list(FAULTS)))]
    orders = _part_orders(choice, faults[0][0]) if choice.random() < 0.4 else ()
    job = forward_job(
        "job",
        choice.choice((60, 150, 400)),
        discovered=choice.random() < 0.6,
        poll_ms=choice.choice((0, 20, 120)),
        uneven=choice.random() < 0.4,
    )
    return Scenario(
        seed,
        coordinators=choice.choice((2, 3)),
        task_managers=choice.choice((2, 3)),
        faults=tuple(faults),
        orders=orders,
        job=job,
        reattach=choice.random() < 0.6,
        plan=TaskPlan(repetition=choice.choice((0.0, 0.2)), quiet_after_ms=6_000),
        mode=choice.choice((CheckpointMode.EXACTLY_ONCE, CheckpointMode.UNALIGNED)),
        at_a_time=choice.choice((1, 1, 2)),
        replicas=choice.choice((0, 0, 1)),
    )


def exchanging_scenario(seed: int) -> Scenario:
    """The same where records cross between the slots; and task managers freeze, and channels break, meanwhile."""
    choice = random.Random(seed)
    kinds = ("kill_task_manager", "kill_task_manager", "fail_subtask", "freeze_task_manager", "isolate_task_manager")
    at = choice.uniform(350, 900)
    faults = [(at, choice.choice(kinds))]
    for _ in range(choice.choice((0, 0, 1, 2, 3))):
        beside = choice.choice(("break_channel", "kill_leader", "cut_one_way", *kinds, *FAULTS))
        faults.append((max(0.0, at + choice.uniform(-40, 300)), beside))
    return Scenario(
        seed,
        coordinators=choice.choice((2, 3)),
        task_managers=choice.choice((3, 3, 4)),
        faults=tuple(faults),
        orders=_part_orders(choice, at, ("source", "count")) if choice.random() < 0.3 else (),
        job=exchanging_job(
            "job",
            choice.choice((60, 150, 400)),
            discovered=choice.random() < 0.6,
            poll_ms=choice.choice((0, 0, 20, 120)),
            uneven=choice.random() < 0.4,
        ),
        reattach=choice.random() < 0.6,
        plan=TaskPlan(repetition=choice.choice((0.0, 0.2)), quiet_after_ms=6_000),
        at_a_time=choice.choice((1, 1, 2)),
        replicas=choice.choice((0, 0, 1)),
    )


def positions_scenario(seed: int) -> Scenario:
    """Processes die before or soon after the first checkpoint of a job whose sources begin at the end of what grows."""
    choice = random.Random(seed)
    kinds = ("kill_leader", "usurp_leader", "kill_task_manager", "fail_subtask", "lose_answers", "break_stream")
    faults = [(choice.uniform(150, 900), choice.choice(kinds)) for _ in range(choice.choice((1, 2, 3)))]
    orders = _part_orders(choice, faults[0][0]) if choice.random() < 0.4 else ()
    return Scenario(
        seed,
        coordinators=choice.choice((2, 3)),
        task_managers=choice.choice((2, 3)),
        faults=tuple(faults),
        orders=orders,
        job=growing_job("job", choice.choice((40, 150, 1_000)), forward=choice.random() < 0.5),
        reattach=choice.random() < 0.6,
        plan=TaskPlan(repetition=choice.choice((0.0, 0.2)), quiet_after_ms=6_000),
        mode=choice.choice((CheckpointMode.EXACTLY_ONCE, CheckpointMode.UNALIGNED)),
    )


def _part_orders(
    choice: random.Random, at_ms: float, vertices: tuple[str, ...] = FORWARD_VERTICES
) -> tuple[tuple[float, Order], ...]:
    """One or two, at about the time of a fault: most of them while a part restarts. vertices: to be rescaled."""
    wanted = (
        Order(savepoint=True),
        Order(choice.choice((2, 3, 4)), vertices),
        Order(),
        Order(drain=True),
        Order(cancel=True),
    )
    return tuple((at_ms + choice.uniform(-60, 400), choice.choice(wanted)) for _ in range(choice.choice((1, 2))))


def rivals_scenario(seed: int) -> Scenario:
    """Two clients submit two jobs under one key, and the leader may die meanwhile."""
    choice = random.Random(seed)
    names = ("kill_leader", "usurp_leader", "lose_answers", "stop_zookeeper")
    return Scenario(seed, faults=((choice.uniform(0, 300), choice.choice(names)),), rival=True)


def sick_scenario(seed: int) -> Scenario:
    """Something is wrong with one job for good, and nothing with the one beside it."""
    return Scenario(seed, jobs=2, sick=("data", "defect")[seed % 2])


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
    return Scenario(seed, stall_at=point, stall_ms=stall_ms(usurped=usurped), usurped=usurped)


def stall_ms(*, usurped: bool) -> float:
    """How long a coordinator is frozen."""
    return 1_500 if usurped else 6_000


def points_of_interest(steps: Sequence[Step], every: bool = EVERY_POINT) -> list[int]:
    """Numbers of the points, from 1 on, at which a process is to die.

    Of the same step after as many completed checkpoints the first and the last: at those between them another subtask,
    or a message of the same kind, is where these have been. Whether there were 0, 1 or more checkpoints makes a
    difference, and 2 or 3 none. every: all of them.
    """
    if every:
        return list(range(1, len(steps) + 1))
    alike: dict[tuple[str, int], list[int]] = {}
    for point, step in enumerate(steps, 1):
        alike.setdefault((step.label, min(step.completed, 2)), []).append(point)
    return sorted({point for points in alike.values() for point in (points[0], points[-1])})


def at_points(
    seed: int,
    kind: str,
    stride: int = 1,
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE,
    job: SimulatedJob | None = None,
) -> Iterator[Scenario]:
    """One scenario for each such step of a coordinator, or of a task manager, in the quiet run of `seed`.

    kind: crash, freeze, usurp, crash of a task manager. stride: every such step, from another one on each day.
    """
    quiet = replace(quiet_scenario(seed, mode), job=job)
    passed = simulate(quiet)
    steps = passed.task_manager_steps if kind == "crash of a task manager" else passed.steps
    for point in of_today(points_of_interest(steps), stride):
        if kind == "crash of a task manager":
            yield replace(quiet, task_manager_crash_at=point)
        elif kind == "crash":
            yield replace(quiet, crash_at=point)
        else:
            yield replace(freeze_at(seed, point, usurped=kind == "usurp"), mode=mode, job=job)
