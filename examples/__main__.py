"""`python -m examples [NAME ...|all] [--kill leader|taskmanager] [--seed N]`."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Sequence

from examples.frame import NotHere, catalogue
from examples.frame.run import run
from lockgate.drill.model import Target
from lockgate.errors import UserError
from lockgate.local.foreground import Stopped, stopped_by_signals
from lockgate.local.work_folder import WorkFolder


def main(arguments: Sequence[str]) -> int:
    """Lists the examples or runs some. Returns 0 when all results are right, 1 when one is wrong, 2 on an error."""
    parser = argparse.ArgumentParser(
        prog="python -m examples",
        description="Runs examples on a local cluster of real processes and checks their results against the input. "
        "Without a name: lists them.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="which to run, one after another; all: every one")
    parser.add_argument("--kill", choices=("leader", "taskmanager"), help="SIGKILL for one of these in the middle")
    parser.add_argument("--seed", type=int, help="of the input and of the moment of the kill (default: drawn)")
    chosen = parser.parse_args(arguments)
    names = catalogue.names() if chosen.names == ["all"] else tuple(chosen.names)
    try:
        with stopped_by_signals():
            if not names:
                return _list()
            seed = secrets.randbelow(2**32) if chosen.seed is None else chosen.seed
            kill = Target(chosen.kill) if chosen.kill else None
            left_out = (NotHere,) if chosen.names == ["all"] else ()
            return max([_run(name, kill, seed, left_out) for name in names])
    except Stopped:
        return 130


def _say(line: str) -> None:
    print(line, flush=True)


def _list() -> int:
    names = catalogue.names()
    width = max(map(len, names))
    for name in names:
        _say(f"{name:<{width}}  {catalogue.find(name).line}")
    return 0


def _run(name: str, kill: Target | None, seed: int, left_out: tuple[type[UserError], ...]) -> int:
    try:
        return _run_in_folder(name, kill, seed)
    except left_out as reason:
        _say(f"{name} is left out: {reason}")
        return 0
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2


def _run_in_folder(name: str, kill: Target | None, seed: int) -> int:
    with WorkFolder(f"lockgate-example-{name}-", _say) as work:
        problems = run(name, catalogue.find(name), work.path, kill, seed, _say)
        for problem in problems:
            _say(f"  wrong: {problem}")
        _say(f"verdict: {'WRONG' if problems else 'RIGHT'} - {name}, seed {seed}")
        if problems:
            work.keep()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
