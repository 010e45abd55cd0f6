"""`python -m tests.mutation`: is there a test that fails when a mechanism is switched off?

First the tests run as they are and must pass. Then each mutant is applied in memory, through a pytest plugin, and at
least one of its tests must fail: by an assertion, or by the error that the catalogue names for it. A test that ends in
any other error proves nothing, and says that the mutant itself is broken. Exit code 0 only when no mutant survives and
none is broken.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.catalogue import MUTANTS, Mutant
from tests.mutation.witness import BROKEN, RAISED

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900  # a bound, not an expectation: other work may share the machine
DAY_S = 24 * 3600
TESTS_FAILED = 1  # pytest's exit code


class CannotRun(Exception):
    """pytest did not get as far as a verdict."""


@dataclass(frozen=True)
class Failure:
    """A test that failed. raised: names of the exceptions that ended it. broken: faults of the mutant's own code."""

    test: str
    raised: tuple[str, ...]
    broken: tuple[str, ...]

    def proves_nothing(self, mutant: Mutant) -> str:
        """Why this failure says nothing about the mechanism; "" when it does."""
        if self.broken:
            return f"the mutant itself is broken: {self.broken[0]}"
        strange = [one for one in self.raised if one not in (AssertionError.__name__, *mutant.raises)]
        if strange or not self.raised:
            return f"it ended by {', '.join(strange) or 'an unknown error'}, not by an assertion"
        return ""


@dataclass(frozen=True)
class Verdict:
    """failed: the tests that failed, in the order in which they ran."""

    failed: tuple[Failure, ...]
    seconds: float


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", metavar="MUTANT", help="default: all of them")
    parser.add_argument("-j", "--jobs", type=int, default=2, metavar="N", help="so many at a time (default: 2)")
    parser.add_argument("--share", type=int, default=1, metavar="N", help="only one of N shares, another each day")
    options = parser.parse_args()
    today = int(time.time()) // DAY_S % max(1, options.share)
    chosen = [one for one in MUTANTS[today :: max(1, options.share)] if not options.only or one.plugin in options.only]
    if not chosen:
        parser.error(f"no such mutant; there are {', '.join(one.plugin for one in MUTANTS)}")
    try:
        return _prove(chosen, max(1, options.jobs))
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _prove(mutants: Sequence[Mutant], jobs: int) -> int:
    tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
    sound = _run(tests, None)
    if sound.failed:
        print("error: these tests fail without any mutant, so they prove nothing:", file=sys.stderr)
        print("\n".join(f"  {one.test}" for one in sound.failed), file=sys.stderr)
        return 2
    print(f"unmutated: {len(tests)} groups of tests pass ({sound.seconds:.1f} s)\n")
    width = max(len(one.off) for one in mutants)
    print(f"{'switched off':{width}}  noticed by")
    survivors, broken = [], []
    for mutant, verdict in _verdicts(mutants, jobs):
        void = [f"{one.test}: {why}" for one in verdict.failed if (why := one.proves_nothing(mutant))]
        broken += [mutant.plugin] if void else []
        survivors += [] if verdict.failed else [mutant.plugin]
        noticed = void or [one.test for one in verdict.failed] or ["NOBODY: it survives"]
        for number, name in enumerate(noticed):
            print(f"{mutant.off if number == 0 else '':{width}}  {name}", flush=True)
    print()
    for names, what in ((survivors, "survive"), (broken, "prove nothing")):
        if names:
            print(f"{len(names)} of {len(mutants)} mutants {what}: {', '.join(names)}")
    if survivors or broken:
        return 1
    print(f"all {len(mutants)} mutants are noticed")
    return 0


def _verdicts(mutants: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, Verdict]]:
    """In the order of the catalogue. Raises CannotRun."""
    with ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(_run, mutant.tests, mutant.plugin) for mutant in mutants]
        try:
            for mutant, one in zip(mutants, running, strict=True):
                yield mutant, one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _run(tests: Sequence[str], plugin: str | None) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="lockgate-mutation-") as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
        command += ["--hypothesis-seed=0", f"--junit-xml={report}", "-o", "junit_family=xunit1"]
        command += ["-p", "tests.mutation.witness"]
        command += ["-p", f"tests.mutation.{plugin}"] if plugin else []
        started = time.monotonic()
        try:
            result = subprocess.run(
                [*command, *tests], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise CannotRun(f"the tests of {plugin or 'the sound code'} did not end in {TIMEOUT_S} s") from error
        if result.returncode not in (0, TESTS_FAILED) or not report.exists():
            raise CannotRun(
                f"pytest ended with {result.returncode} for {plugin}:\n{result.stdout[-3000:]}{result.stderr[-3000:]}"
            )
        return Verdict(_failed(report), time.monotonic() - started)


def _failed(report: Path) -> tuple[Failure, ...]:
    failures = []
    for case in ET.parse(report).iter("testcase"):
        if case.find("error") is not None:
            raise CannotRun(f"{case.get('name')} could not run: {(case.find('error').text or '')[-2000:]}")  # type: ignore[union-attr]
        if case.find("failure") is not None:
            noted = [(one.get("name"), one.get("value") or "") for one in case.iter("property")]
            raised = tuple(name for key, value in noted if key == RAISED for name in value.split())
            broken = tuple(value for key, value in noted if key == BROKEN)
            failures.append(Failure(f"{case.get('file')}::{case.get('name')}", raised, broken))
    return tuple(failures)


if __name__ == "__main__":
    sys.exit(main())
