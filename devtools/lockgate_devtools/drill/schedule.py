"""What a drill attacks, and when it is over."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

from lockgate_devtools.drill.model import Target


class Schedule(Protocol):
    """The targets of the rounds of a drill."""

    def next_round(self, done: int, elapsed_s: float) -> Sequence[Target]:
        """The targets of the next job, in order; none when the drill is over.

        done: how many were struck; elapsed_s: since the first round began.
        """
        ...


class Repeated:
    """One target, a number of times."""

    def __init__(self, target: Target, times: int) -> None:
        self._target, self._times = target, times

    def next_round(self, done: int, elapsed_s: float) -> Sequence[Target]:  # noqa: ARG002
        return [self._target] * (self._times - done)


class Shuffled:
    """Every target once, in a random order, then all of them again, until the time is over."""

    def __init__(self, seconds: float, choice: random.Random, targets: Sequence[Target] = tuple(Target)) -> None:
        """choice: decides about the order."""
        self._seconds, self._choice, self._targets = seconds, choice, targets
        self._drawn: list[Target] = []

    def next_round(self, done: int, elapsed_s: float) -> Sequence[Target]:
        # a job for the few that are left of a turn would take longer than they do
        if 2 * (len(self._drawn) - done) < len(self._targets) and elapsed_s < self._seconds:
            self._drawn += self._choice.sample(self._targets, len(self._targets))
        return self._drawn[done:]
