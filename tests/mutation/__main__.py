"""`python -m tests.mutation`: is there a test that fails when a mechanism is switched off?

First the tests run as they are and must pass. Then each mutant is applied in memory, through a pytest plugin, and every
test that the catalogue lists for it must fail: by an assertion, or by the error that the catalogue names. A test that
ends in any other error proves nothing, and says that the mutant itself is broken; of a test with parameters one has to
fail. Exit code 0 only when every mutant is noticed by all of its tests.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence

from examples.frame.shares import of_the_day
from tests.mutation.catalogue import MUTANTS, Mutant
from tests.mutation.processes import CannotRun, Processes, Run
from tests.mutation.verdict import Verdict, judge

SHARES = 8  # of the unmutated tests: as they end, others take their places


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", metavar="MUTANT", help="default: all of them")
    parser.add_argument("-j", "--jobs", type=int, default=2, metavar="N", help="mutants to run at a time (default: 2)")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="only one of N shares, another each day")
    parser.add_argument("--passed", action="store_true", help="the tests have just passed: they are not run unmutated")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))  # so that no fork stays behind
    unknown = set(options.only) - {mutant.plugin for mutant in MUTANTS}
    share = of_the_day(MUTANTS, max(1, options.share), time.time())
    chosen = [mutant for mutant in MUTANTS if mutant.plugin in options.only] or share
    if unknown:
        parser.error(
            f"no mutant {', '.join(sorted(unknown))}; there are {', '.join(mutant.plugin for mutant in MUTANTS)}"
        )
    try:
        with Processes(max(1, options.jobs)) as processes:
            return _prove(processes, chosen, has_passed=options.passed)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _prove(processes: Processes, mutants: Sequence[Mutant], *, has_passed: bool) -> int:
    if not has_passed and not _is_sound(processes, mutants):
        return 2
    width = max(len(mutant.off) for mutant in mutants)
    print(f"{'switched off':{width}}  noticed by")
    said = processes.evidence([Run(mutant.tests, mutant.plugin) for mutant in mutants])
    verdicts = []
    for mutant, evidence in zip(mutants, said, strict=True):
        verdict = judge(mutant, evidence)
        verdicts.append(verdict)
        sentences = verdict.void + verdict.blind + verdict.noticed
        for number, sentence in enumerate(sentences):
            end = f" ({verdict.seconds:.1f} s)" if number == len(sentences) - 1 else ""
            print(f"{mutant.off if number == 0 else '':{width}}  {sentence}{end}", flush=True)
    return sum_up(verdicts)


def _is_sound(processes: Processes, mutants: Sequence[Mutant]) -> bool:
    """Whether all tests pass without any mutant: those that fail prove nothing."""
    tests = tuple(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    began = time.monotonic()
    shares = [Run(share, None) for first in range(SHARES) if (share := tests[first::SHARES])]
    said = list(processes.evidence(shares))
    failed = [failure.test for evidence in said for failure in evidence.failures.values()]
    skipped = [
        test
        for evidence in said
        for test, count in evidence.passed.items()
        if not count and test not in evidence.failures
    ]
    for names, what in ((failed, "fail without any mutant"), (skipped, "are skipped here")):
        if names:
            print(f"error: these tests {what}, so they prove nothing:", file=sys.stderr)
            print("\n".join(f"  {name}" for name in names), file=sys.stderr)
    if failed or skipped:
        return False
    print(f"unmutated: all {len(tests)} listed pass ({time.monotonic() - began:.1f} s)\n", flush=True)
    return True


def sum_up(verdicts: Sequence[Verdict]) -> int:
    """The exit code."""
    print()
    survivors = [verdict.mutant.plugin for verdict in verdicts if not verdict.noticed]
    unseen = [verdict.mutant.plugin for verdict in verdicts if verdict.noticed and verdict.blind]
    broken = [verdict.mutant.plugin for verdict in verdicts if verdict.void]
    for names, what in (
        (survivors, "survive"),
        (unseen, "are not noticed by all of their tests"),
        (broken, "prove nothing"),
    ):
        if names:
            print(f"{len(names)} of {len(verdicts)} mutants {what}: {', '.join(names)}")
    if not all(verdict.is_noticed for verdict in verdicts):
        return 1
    print(f"all {len(verdicts)} mutants are noticed by all of their tests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
