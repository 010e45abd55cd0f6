"""What the tests of a mutant say of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.mutation.catalogue import Mutant
from tests.mutation.witness import Failure


@dataclass(frozen=True)
class Evidence:
    """What has become of the tests that were asked for. passed: how many parameters of each one did."""

    passed: Mapping[str, int]
    failures: Mapping[str, Failure]
    seconds: float


@dataclass(frozen=True)
class Verdict:
    """noticed: a test that failed for each one in the catalogue that did. blind: those that did not fail.

    void: sentences on failures that prove nothing.
    """

    mutant: Mutant
    noticed: tuple[str, ...]
    blind: tuple[str, ...]
    void: tuple[str, ...]
    seconds: float

    @property
    def is_noticed(self) -> bool:
        """By every test that the catalogue lists: one that does not notice it claims more than it checks."""
        return not self.blind and not self.void


def judge(mutant: Mutant, evidence: Evidence) -> Verdict:
    """The verdict on one mutant."""
    void = tuple(
        f"{failure.test}: {why}" for failure in evidence.failures.values() if (why := proves_nothing(failure, mutant))
    )
    noticed = tuple(evidence.failures[test].test for test in mutant.tests if test in evidence.failures)
    blind = tuple(_blind(test, evidence.passed[test]) for test in mutant.tests if test not in evidence.failures)
    return Verdict(mutant, noticed, blind, void, evidence.seconds)


def proves_nothing(failure: Failure, mutant: Mutant) -> str:
    """Why this failure says nothing about the mechanism; "" when it does."""
    if failure.broken:
        return f"the mutant itself is broken: {failure.broken[0]}"
    if failure.phase != "call":
        return f"it ended in its {failure.phase}: {', '.join(failure.raised)}"
    strange = [name for name in failure.raised if name not in (AssertionError.__name__, *mutant.raises)]
    if strange or not failure.raised:
        return f"it ended by {', '.join(strange) or 'an unknown error'}, not by an assertion"
    return ""


def _blind(test: str, passed: int) -> str:
    return f"NOT by {test}" + ("" if passed else ": it was skipped")
