"""`python -m tests.simulation`: run one seed, or as many as fit into some seconds."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace

from lockgate_proto.messages import CheckpointMode

from tests.simulation.job import looping_job
from tests.simulation.scenarios import crash_at, freeze_at, ordered_scenario, random_scenario
from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation

MODES = [one for one in CheckpointMode if one]


def main() -> int:
    """The exit code: 0 when every run held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one and tell what happened")
    parser.add_argument("--crash-at", type=int, default=0, metavar="POINT", help="with --seed: the leader dies there")
    parser.add_argument("--freeze-at", type=int, default=0, metavar="POINT", help="with --seed: it freezes there")
    parser.add_argument("--usurped", action="store_true", help="with --freeze-at: while its session lives")
    parser.add_argument(
        "--mode", choices=[one.name.lower() for one in MODES], default="exactly_once", help="of the jobs' checkpoints"
    )
    parser.add_argument("--at-a-time", type=int, default=1, help="checkpoints in flight (1)")
    parser.add_argument(
        "--slow", default="", metavar="NAME", help="with --seed: this task manager, such as tm-0, is slow"
    )
    parser.add_argument("--ordered", action="store_true", help="users order something, too: rescale, stop, savepoint")
    parser.add_argument("--loop", action="store_true", help="the job has one")
    parser.add_argument("--seconds", type=float, default=60, help="without --seed: how long to go on (60)")
    parser.add_argument("--first", type=int, default=0, help="without --seed: the first seed (0)")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(_chosen(options))
    return _many(options)


def _chosen(options: argparse.Namespace) -> Scenario:
    found, mode = _fault(options), CheckpointMode[options.mode.upper()]
    plan, job = replace(found.plan, slow=options.slow), looping_job("job") if options.loop else None
    return replace(found, mode=mode, at_a_time=options.at_a_time, plan=plan, job=job)


def _fault(options: argparse.Namespace) -> Scenario:
    if options.crash_at:
        return crash_at(options.seed, options.crash_at)
    if options.freeze_at:
        return freeze_at(options.seed, options.freeze_at, usurped=options.usurped)
    return ordered_scenario(options.seed) if options.ordered else random_scenario(options.seed)


def _one(scenario: Scenario) -> int:
    print(replace(scenario))
    try:
        print(simulate(scenario))
    except Violation as error:
        print(error)
        return 1
    return 0


def _many(options: argparse.Namespace) -> int:
    seed, mode, at_a_time = options.first, CheckpointMode[options.mode.upper()], options.at_a_time
    job = looping_job("job") if options.loop else None
    draw = ordered_scenario if options.ordered else random_scenario
    started, first, failed = time.monotonic(), seed, []
    while time.monotonic() - started < options.seconds:
        try:
            simulate(replace(draw(seed), mode=mode, at_a_time=at_a_time, job=job))
        except Violation as error:
            failed.append(seed)
            again = f"--seed {seed} --mode {mode.name.lower()} --at-a-time {at_a_time}{' --loop' if job else ''}"
            again += " --ordered" if options.ordered else ""
            print(f"seed {seed}: {str(error).splitlines()[0]}\n  again: python -m tests.simulation {again}")
        seed += 1
    rate = (seed - first) / (time.monotonic() - started) * 60
    print(f"{seed - first} schedules, {rate:.0f} a minute, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
