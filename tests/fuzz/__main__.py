"""`python -m tests.fuzz`: what `make fuzz` runs. `--help` says more."""

from __future__ import annotations

import argparse
import faulthandler
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.catalogue import open_targets
from tests.fuzz.target import CASE_S, Finding, Target, case, each_of, run, share

INPUTS = "LOCKGATE_TEST_FUZZ_INPUTS"
_AT_ONCE = 200
_ROUND = 1_000
"""Inputs of each target before servers and folders are made anew, and what the last ones have left is looked at."""
_MOST_FINDINGS = 20
_HANGS_S = 20 * CASE_S


def main() -> int:
    """1 when there was a finding."""
    given = _arguments()
    print(f"seed {given.seed}", flush=True)
    counts: dict[str, Counter[str]] = {}
    try:
        findings = _rounds(given, counts)
    except KeyboardInterrupt:
        findings = 1
    for name, said in counts.items():
        print(f"{name}: {', '.join(f'{number:,} {what}' for what, number in sorted(said.items()))}", flush=True)
    total = sum(sum(said.values()) - said["ms of processor"] for said in counts.values())
    print(f"{total:,} inputs, {findings} findings or an interruption" if findings else f"{total:,} inputs, no finding")
    return min(findings, 1)


def _rounds(given: argparse.Namespace, counts: dict[str, Counter[str]]) -> int:
    """How many findings there were. counts: filled, by the name of the target."""
    findings, at, each = 0, 0, 1
    while at < each and findings < _MOST_FINDINGS:
        with tempfile.TemporaryDirectory(prefix="lockgate-fuzz-") as folder, open_targets(Path(folder)) as every:
            os.chdir(folder)
            chosen = _chosen(every, given.target)
            if given.case is not None:
                return _one(chosen, given.seed, given.case)
            each = each_of(chosen, given.inputs)
            for target in chosen:
                begin = time.process_time()
                said = counts.setdefault(target.name, Counter())
                numbers = range(share(target, at), share(target, min(each, at + _ROUND)))
                findings += _fuzz(target, given.seed, numbers, said)
                said["ms of processor"] += int(1_000 * (time.process_time() - begin))
            at += _ROUND
            os.chdir("/")
    return findings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Feeds damaged bytes to every reader of bytes and to every rpc."
    )
    parser.add_argument("--inputs", type=int, default=int(os.environ.get(INPUTS, "20000")), help=f"in all; or {INPUTS}")
    parser.add_argument("--target", default="", help="only those whose names contain this")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="the same one gives the same inputs")
    parser.add_argument("--case", type=int, help="one input alone, as a finding names it")
    return parser.parse_args()


def _chosen(every: Sequence[Target], name: str) -> list[Target]:
    found = [target for target in every if target.name == name] or [item for item in every if name in item.name]
    if not found:
        sys.exit(f"error: no target is called {name!r}; there are: {', '.join(item.name for item in every)}")
    return found


def _one(chosen: Sequence[Target], seed: int, number: int) -> int:
    for target in chosen:
        print(f"{target.name}: {case(target, seed, number)!r}")
        print(dict(run(target, seed, range(number, number + 1))))
    return 0


def _fuzz(target: Target, seed: int, numbers: range, counts: Counter[str]) -> int:
    """How many findings there were; it goes on after each."""
    findings, at = 0, numbers.start
    while at < numbers.stop and findings < _MOST_FINDINGS:
        end = min(numbers.stop, at + _AT_ONCE)
        print(f"\r{target.name}: from case {at}".ljust(110), end="", file=sys.stderr, flush=True)
        faulthandler.dump_traceback_later(_HANGS_S, exit=True)  # what hangs cannot be judged
        try:
            counts.update(run(target, seed, range(at, end)))
            at = end
        except Finding as error:
            findings += 1
            print(f"{target.name}: {error}", flush=True)
            at = error.number + 1
    faulthandler.cancel_dump_traceback_later()
    return findings


if __name__ == "__main__":
    sys.exit(main())
