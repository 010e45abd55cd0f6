"""The families of metrics, and what is counted in them between two scrapes."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SECONDS = (*_SHORT, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Upper bounds of buckets for times. A checkpoint may take as long as its timeout, half an hour for example."""


class Kind(Enum):
    """Of a family, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """name: by Prometheus' conventions; text: for people, one sentence; labels: their names."""

    name: str
    kind: Kind
    text: str
    labels: tuple[str, ...] = ()


def counter(name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
    """A family that only rises."""
    return Family(name, Kind.COUNTER, text, labels)


def gauge(name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
    """A family that rises and falls."""
    return Family(name, Kind.GAUGE, text, labels)


def histogram(name: str, text: str, labels: tuple[str, ...] = ()) -> Family:
    """A family of counts by upper bounds."""
    return Family(name, Kind.HISTOGRAM, text, labels)


class Histogram:
    """How often a value was at most each of some bounds. Thread safe; an observation takes about a microsecond."""

    def __init__(self, bounds: Sequence[float] = SECONDS) -> None:
        """bounds: rising."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Counts one value."""
        place = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Counts the time that the block takes, in seconds, however it ends."""
        started_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self.observe((time.monotonic_ns() - started_ns) / 1e9)

    def buckets(self) -> tuple[tuple[tuple[str, float], ...], float]:
        """(upper bound, number of values up to it), the last one "+Inf"; and the sum of the values."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        found, below = [], 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return tuple(found), total


class Tally:
    """Counts by label values. Thread safe. keys: those that are shown before anything was counted."""

    def __init__(self, keys: Iterable[Hashable] = ()) -> None:
        self._counts: dict[Hashable, int] = dict.fromkeys(keys, 0)
        self._lock = threading.Lock()

    def add(self, key: Hashable = ()) -> None:
        """One more."""
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + 1

    def items(self) -> list[tuple[Hashable, int]]:
        """What was counted so far."""
        with self._lock:
            return list(self._counts.items())

    def total(self) -> int:
        """Of all keys."""
        return sum(count for _, count in self.items())


class RisingTotal:
    """Makes a counter of totals that may fall: a job's records after a restart from a checkpoint.

    What is processed again counts again. One that has fallen below and risen again between two looks counts less.
    """

    def __init__(self) -> None:
        self._seen: dict[Hashable, float] = {}
        self._totals: dict[Hashable, float] = {}

    def total(self, key: Hashable, value: float) -> float:
        """The counter, after a look at the total."""
        risen = max(0.0, value - self._seen.get(key, 0.0))
        self._seen[key] = value
        self._totals[key] = self._totals.get(key, 0.0) + risen
        return self._totals[key]
