"""One seed after the other, for some time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.simulation import Scenario, simulate
from tests.simulation.world import Violation


@dataclass
class Found:
    """seconds: of processor time; steps: events of the simulated worlds of held runs; failed: seed to story."""

    first: int
    tried: int = 0
    seconds: float = 0.0
    steps: int = 0
    failed: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        seeds = f"seeds {self.first} to {self.first + self.tried - 1}" if self.tried else f"no seed from {self.first}"
        return f"{self.tried} schedules in {self.seconds:.0f} s of processor time, {seeds}: {len(self.failed)} failed"


def search(draw: Callable[[int], Scenario], first: int, seconds: float = math.inf, at_most: float = math.inf) -> Found:
    """Runs `at_most` scenarios from `first` on, at least one, until they have used so much processor time.

    On a busy machine as many as on an idle one.
    """
    found, started = Found(first), time.process_time()
    while not found.tried or (found.seconds < seconds and found.tried < at_most):
        seed = first + found.tried
        try:
            found.steps += simulate(draw(seed)).events
        except Violation as error:
            found.failed[seed] = str(error)
        found.tried += 1
        found.seconds = time.process_time() - started
    return found
