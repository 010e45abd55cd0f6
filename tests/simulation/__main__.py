"""`python -m tests.simulation`: runs one seed, a range, or as many as fit into some seconds of processor time."""

from __future__ import annotations

import argparse
import sys

from tests.simulation.fresh import search
from tests.simulation.kinds import add_options, again, chosen
from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation


def main() -> int:
    """The exit code: 0 when every run held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--seconds", type=float, default=60, help="without --seed: processor time after which to end (60)"
    )
    parser.add_argument("--first", type=int, default=0, help="without --seed: the first seed (0)")
    parser.add_argument("--seeds", type=_range, metavar="A:B", help="those from A on, below B; tells what failed")
    options = parser.parse_args()
    if options.seed is not None:
        return _one(chosen(options, options.seed))
    if options.seeds is not None:
        failed = [seed for seed in options.seeds if not _holds(chosen(options, seed), options.kind)]
        print(f"{len(options.seeds)} schedules: {len(failed)} failed")
        return 1 if failed else 0
    found = search(lambda seed: chosen(options, seed), options.first, options.seconds)
    for seed, reason in found.failed.items():
        print(f"seed {seed}: {reason}\n  again: {again(chosen(options, seed), options.kind)}")
    print(found)
    return 1 if found.failed else 0


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    return range(int(first), int(end))


def _holds(scenario: Scenario, kind: str) -> bool:
    """Whether it runs as it should; otherwise prints what happened, and how to repeat it."""
    try:
        simulate(scenario)
    except Violation as error:
        print(f"seed {scenario.seed}: {error}\n  again: {again(scenario, kind)}\n")
        return False
    return True


def _one(scenario: Scenario) -> int:
    print(scenario)
    try:
        print(simulate(scenario))
    except Violation as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
