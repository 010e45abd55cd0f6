"""`python -m examples [NAME ...|all] [--kill leader|taskmanager|either] [--seed N] [--share N]`."""

from __future__ import annotations

import argparse
import random
import secrets
import sys
import time
from collections.abc import Sequence

from lockgate_devtools.cluster.foreground import Stopped, stopped_by_signals
from lockgate_devtools.drill.model import Target

from examples.frame import NotHere, catalogue
from examples.frame.run import run
from examples.frame.shares import of_the_day
from examples.frame.stage import Stage
from lockgate.errors import UserError

_EITHER = "either"


def main(arguments: Sequence[str]) -> int:
    """Lists the examples or runs some. Returns 0 when all results are right, 1 when one is wrong, 2 on an error."""
    parser = argparse.ArgumentParser(
        prog="python -m examples",
        description="Runs examples on a local cluster of real processes and checks their results against the input. "
        "Without a name: lists them.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run, one after another; all: every one")
    parser.add_argument(
        "--kill",
        choices=(Target.LEADER.value, Target.TASKMANAGER.value, _EITHER),
        help="SIGKILL for one of these in the middle; either: the seed chooses for each example",
    )
    parser.add_argument("--seed", type=int, help="of the input and of the moment of the kill (default: drawn)")
    parser.add_argument(
        "--share", type=int, default=1, metavar="N", help="only one of N shares of the names, another each day"
    )
    chosen = parser.parse_args(arguments)
    if chosen.share < 1:
        parser.error("--share takes a number from 1 on")
    try:
        with stopped_by_signals():
            if not chosen.names:
                return _list()
            names = _chosen(chosen.names, chosen.share)
            seed = secrets.randbelow(2**32) if chosen.seed is None else chosen.seed
            left_out = (NotHere,) if chosen.names == ["all"] else ()
            started = time.monotonic()
            with Stage(_say) as stage:
                codes = [_run(name, _target(chosen.kill, name, seed), seed, stage, left_out) for name in names]
            if len(codes) > 1:
                _say(f"{len(codes)} examples in {time.monotonic() - started:.0f} s")
            return max(codes, default=0)
    except Stopped:
        return 130
    except UserError as error:
        return _failed(error)


def _chosen(asked: Sequence[str], shares: int) -> Sequence[str]:
    """The names to run; of `all`, grouped by the kind of cluster. Raises UserError."""
    found = of_the_day(catalogue.names() if asked == ["all"] else asked, shares, time.time())
    kinds = {name: str(catalogue.find(name).cluster) for name in found}
    if shares > 1:
        _say(f"today's share, one of {shares}: {', '.join(found)}")
    return sorted(found, key=kinds.__getitem__) if asked == ["all"] else found


def _target(kill: str | None, name: str, seed: int) -> Target | None:
    if kill == _EITHER:
        return random.Random(f"{seed} {name}").choice((Target.LEADER, Target.TASKMANAGER))
    return Target(kill) if kill else None


def _failed(error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 2


def _say(line: str) -> None:
    print(line, flush=True)


def _list() -> int:
    names = catalogue.names()
    width = max(map(len, names))
    for name in names:
        _say(f"{name:<{width}}  {catalogue.find(name).line}")
    return 0


def _run(name: str, kill: Target | None, seed: int, stage: Stage, left_out: tuple[type[UserError], ...]) -> int:
    try:
        problems = run(name, catalogue.find(name), stage, kill, seed, _say)
    except left_out as reason:
        _say(f"{name} is left out: {reason}")
        return 0
    except (UserError, OSError) as error:
        stage.spoil()
        return _failed(error)
    for problem in problems:
        _say(f"  wrong: {problem}")
    _say(f"verdict: {'WRONG' if problems else 'RIGHT'} - {name}, seed {seed}")
    if problems:
        stage.spoil()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
