"""Every kind of scenario by name, and the command that runs one again."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from lockgate_proto.messages import CheckpointMode

from tests.simulation import scenarios as drawn
from tests.simulation.job import looping_job
from tests.simulation.simulation import Scenario

MODES = {mode.name.lower(): mode for mode in CheckpointMode if mode}

KINDS: dict[str, Callable[[int], Scenario]] = {
    "random": drawn.random_scenario,
    "quiet": drawn.quiet_scenario,
    "ordered": drawn.ordered_scenario,
    "cancelled": drawn.cancelled_scenario,
    "broken-writes": drawn.broken_writes_scenario,
    "savepoint-beside-end": drawn.savepoint_beside_end,
    "repeated-savepoint": drawn.repeated_savepoint,
    "silent": drawn.silent_scenario,
    "dying-leaders": drawn.dying_leaders_scenario,
    "double-death": drawn.double_death_scenario,
    "slow-leader": drawn.slow_leader_scenario,
    "stunned-leader": drawn.stunned_leader_scenario,
    "flaky": drawn.flaky_scenario,
    "storage": drawn.storage_scenario,
    "damaged": drawn.damaged_scenario,
    "copies": drawn.copies_scenario,
    "part": drawn.part_scenario,
    "exchanging": drawn.exchanging_scenario,
    "positions": drawn.positions_scenario,
    "rivals": drawn.rivals_scenario,
    "sick": drawn.sick_scenario,
    "slow": drawn.slow_scenario,
    "slow-among-faults": drawn.slow_among_faults,
    **{name: partial(drawn.with_orders, orders=orders) for name, orders in drawn.ORDERS.items()},
}
FRESH = "fresh"
"""Any of the others, and with anything that can be combined with it."""


def scenario_of(kind: str, seed: int) -> Scenario:
    """The scenario of that kind and seed. Raises KeyError."""
    return fresh_scenario(seed) if kind == FRESH else KINDS[kind](seed)


def fresh_scenario(seed: int) -> Scenario:
    """What a run of the tests tries beside the fixed seeds."""
    choice = random.Random(seed)
    found = KINDS[choice.choice(sorted(KINDS))](seed)
    mode = choice.choice((CheckpointMode.EXACTLY_ONCE, *MODES.values()))
    changed = replace(found, mode=mode)
    changed = replace(changed, at_a_time=1 if mode is CheckpointMode.STOP_THE_WORLD else choice.choice((1, 1, 3)))
    may_loop = mode not in (CheckpointMode.AT_LEAST_ONCE, CheckpointMode.AT_MOST_ONCE) and not found.orders
    if may_loop and choice.random() < 0.2:
        changed = replace(changed, job=looping_job("job"))
    if choice.random() < 0.2:
        changed = replace(changed, crash_at=choice.randint(1, 200))
    elif choice.random() < 0.2:
        changed = _frozen(changed, choice.randint(1, 200), usurped=choice.random() < 0.5)
    if choice.random() < 0.4:
        changed = replace(changed, task_manager_crash_at=choice.randint(1, 600))
    return replace(changed, reattach=choice.random() < 0.5)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What `options_of` prints."""
    parser.add_argument("--seed", type=int, help="run this one and tell what happened")
    parser.add_argument("--kind", choices=[*KINDS, FRESH], default=FRESH, help=f"what happens in it ({FRESH})")
    parser.add_argument("--mode", choices=list(MODES), help="of the jobs' checkpoints")
    parser.add_argument("--at-a-time", type=int, metavar="N", help="checkpoints in flight")
    parser.add_argument("--loop", action="store_true", help="the job has one")
    parser.add_argument("--reattach", action="store_true", help="new leaders adopt what runs")
    parser.add_argument("--crash-at", type=int, metavar="POINT", help="a coordinator dies there")
    parser.add_argument("--task-manager-crash-at", type=int, metavar="POINT", help="a task manager dies there")
    parser.add_argument("--freeze-at", type=int, metavar="POINT", help="a coordinator freezes there")
    parser.add_argument("--usurped", action="store_true", help="with --freeze-at: while its session lives")


def chosen(options: argparse.Namespace, seed: int) -> Scenario:
    """The scenario that the options describe."""
    found = scenario_of(options.kind, seed)
    if options.mode:
        found = replace(found, mode=MODES[options.mode])
    if options.at_a_time:
        found = replace(found, at_a_time=options.at_a_time)
    if options.loop:
        found = replace(found, job=looping_job("job"))
    if options.reattach:
        found = replace(found, reattach=True)
    if options.crash_at:
        found = replace(found, crash_at=options.crash_at)
    if options.task_manager_crash_at:
        found = replace(found, task_manager_crash_at=options.task_manager_crash_at)
    if options.freeze_at:
        found = _frozen(found, options.freeze_at, usurped=options.usurped)
    return found


def _frozen(scenario: Scenario, point: int, *, usurped: bool) -> Scenario:
    return replace(scenario, stall_at=point, stall_ms=drawn.stall_ms(usurped=usurped), usurped=usurped)


def again(scenario: Scenario, kind: str) -> str:
    """The command that runs a scenario again, which is one of that kind, perhaps changed as the options can."""
    plain = scenario_of(kind, scenario.seed)
    words = [f"--kind {kind} --seed {scenario.seed}"]
    if scenario.mode is not plain.mode:
        words.append(f"--mode {scenario.mode.name.lower()}")
    if scenario.at_a_time != plain.at_a_time:
        words.append(f"--at-a-time {scenario.at_a_time}")
    if scenario.job is not None and scenario.job != plain.job:
        words.append("--loop")
    if scenario.reattach and not plain.reattach:
        words.append("--reattach")
    if scenario.crash_at != plain.crash_at:
        words.append(f"--crash-at {scenario.crash_at}")
    if scenario.task_manager_crash_at != plain.task_manager_crash_at:
        words.append(f"--task-manager-crash-at {scenario.task_manager_crash_at}")
    if scenario.stall_at != plain.stall_at:
        words.append(f"--freeze-at {scenario.stall_at}{' --usurped' if scenario.usurped else ''}")
    return f"python -m tests.simulation {' '.join(words)}"
