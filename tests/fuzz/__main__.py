"""`python -m tests.fuzz`: see `--help`. What `make fuzz` runs."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.catalogue import open_targets
from tests.fuzz.target import Finding, case, run

INPUTS = "LOCKGATE_FUZZ_INPUTS"
_AT_ONCE = 500


def main() -> int:
    """1 when there was a finding."""
    parser = argparse.ArgumentParser(description="Feeds damaged bytes to every reader and every rpc.")
    parser.add_argument("--inputs", type=int, default=int(os.environ.get(INPUTS, "20000")), help=f"in all; ${INPUTS}")
    parser.add_argument("--target", default="", help="those whose names contain this")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--case", type=int, help="one case alone, to see it again")
    parser.add_argument("--go-on", action="store_true", help="after a finding")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockgate-fuzz-") as folder:
        os.chdir(folder)
        with open_targets(Path(folder)) as every:
            chosen = [target for target in every if given.target in target.name]
            if not chosen:
                parser.error(f"no target is called {given.target}; there are: {', '.join(item.name for item in every)}")
            findings = 0
            print(f"seed {given.seed}", flush=True)
            for target in chosen:
                each = -(-given.inputs // len(chosen))
                numbers = range(each) if given.case is None else range(given.case, given.case + 1)
                if given.case is not None:
                    print(case(target, given.seed, given.case)[:2_000])
                findings += _fuzz(target, given.seed, numbers, go_on=given.go_on)
    return min(findings, 1)


def _fuzz(target, seed, numbers, *, go_on):
    counts, began, findings = Counter(), time.process_time(), 0
    at = numbers.start
    while at < numbers.stop:
        try:
            end = min(numbers.stop, at + _AT_ONCE)
            counts += run(target, seed, range(at, end))
            at = end
        except Finding as error:
            findings += 1
            print(f"{target.name}: {error}", flush=True)
            at = error.number + 1
            if not go_on or findings > 20:
                break
    said = ", ".join(f"{count:,} {what}" for what, count in sorted(counts.items()))
    print(f"{target.name}: {said}; {time.process_time() - began:.1f} s", flush=True)
    return findings


if __name__ == "__main__":
    sys.exit(main())
