"""`python -m tests.simulation`: runs one seed, a range, or as many as fit into some seconds of processor time."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation.fresh import Found, search
from tests.simulation.kinds import add_options, again, chosen
from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation

_AT_A_TIME = 10  # seeds of a process: seconds of work


def main() -> int:
    """The exit code: 0 when every run held."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    add_options(parser)
    parser.add_argument(
        "--seconds", type=float, default=60, help="without --seed: processor time after which to end (60)"
    )
    parser.add_argument("--first", type=int, default=0, help="without --seed: the first seed (0)")
    parser.add_argument(
        "--seeds", type=_range, metavar="A:B", help="those from A on, below B, on every processor; tells what failed"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return _one(chosen(options, options.seed))
    if options.seeds is not None:
        return _all(options)
    found = search(lambda seed: chosen(options, seed), options.first, options.seconds)
    for seed, story in found.failed.items():
        what = story.partition("\n")[0]
        print(f"seed {seed}: {what}\n  again: {again(chosen(options, seed), options.kind)}")
    print(found)
    return 1 if found.failed else 0


def _all(options: argparse.Namespace) -> int:
    """Every seed of the range, on every processor; tells the story of each that failed."""
    seeds, started = options.seeds, time.monotonic()
    parts = [seeds[at : at + _AT_A_TIME] for at in range(0, len(seeds), _AT_A_TIME)]
    steps, failed = 0, 0
    with ProcessPoolExecutor() as pool:
        for part in as_completed([pool.submit(_part, options, part) for part in parts]):
            found = part.result()
            steps, failed = steps + found.steps, failed + len(found.failed)
            for seed, story in found.failed.items():
                print(f"seed {seed}: {story}\n  again: {again(chosen(options, seed), options.kind)}\n")
    seconds = time.monotonic() - started
    pace = f"{steps:,} steps in {seconds:.0f} s ({60 * steps / seconds:,.0f} a minute)"
    print(f"{len(seeds)} schedules, {pace}: {failed} failed")
    return 1 if failed else 0


def _part(options: argparse.Namespace, seeds: range) -> Found:
    return search(lambda seed: chosen(options, seed), seeds[0], at_most=len(seeds))


def _range(text: str) -> range:
    first, _, end = text.partition(":")
    found = range(int(first), int(end)) if first.isdecimal() and end.isdecimal() else range(0)
    if not found:
        raise argparse.ArgumentTypeError(f"no seeds in {text!r}; 0:100 are those from 0 to 99")
    return found


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
