"""From results and their times to latencies of records. Pure.

Record i is due at the time `i / rate` after the start, whether its sender was able to send it then or not: a pipeline
that holds its sender back does not hide records from its own measurement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

KEYS = 100
"""Record i has the key i mod KEYS."""
PERCENTILES = {"p50_ms": 50.0, "p90_ms": 90.0, "p99_ms": 99.0, "p999_ms": 99.9}
_ROUNDING = 0.05  # in records: what a time since 1970 loses as a float
COLD_S = 5.0
WARM_S = 10.0

Seen = Sequence[tuple[float, tuple[int, ...]]]
"""Time in Unix seconds and the numbers of each result: (id), (key, count), or (key, window's end in ms, count)."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """due_s: when each record was due, from the start; ms: its latency. Arrays of one length."""

    due_s: Any
    ms: Any

    def phase(self, from_s: float, to_s: float = math.inf) -> dict[str, float]:
        """The percentiles, and the number, of the records due in a part of the run; empty when there are none."""
        chosen = self.ms[(self.due_s >= from_s) & (self.due_s < to_s)]
        if not len(chosen):
            return {}
        values = np.percentile(chosen, list(PERCENTILES.values()))
        return {name: round(float(value), 1) for name, value in zip(PERCENTILES, values, strict=True)} | {
            "records": len(chosen)
        }


def of_records(seen: Seen, start: float, rate: float) -> Latencies:
    """From results that name their record."""
    return _latencies([(at, numbers[0]) for at, numbers in seen], start, rate)


def of_counts(seen: Seen, start: float, rate: float) -> Latencies:
    """From running counts by key: a count of n is the result of the key's first n records."""
    counted: dict[int, int] = defaultdict(int)
    found = []
    for at, (key, count) in seen:
        found += [(at, key + KEYS * number) for number in range(counted[key], count)]
        counted[key] = max(counted[key], count)
    return _latencies(found, start, rate)


def of_windows(seen: Seen, start: float, rate: float) -> Latencies:
    """From counts by key and window: the time since the first record behind the window was due, which closes it."""
    found = [(at, math.ceil((end_ms / 1000 - start) * rate - _ROUNDING)) for at, (_, end_ms, _) in seen]
    return _latencies(found, start, rate)


def missing(case: str, seen: Seen, sent: int, every: int) -> int:
    """Results that are missing, or more than there should be, when all records have gone through. every: see `of`."""
    if case == "stateless":
        ids = [numbers[0] for _, numbers in seen]
        return abs(len(range(0, sent, every)) - len(set(ids))) + len(ids) - len(set(ids))
    if case == "window":
        return abs(sent - sum(numbers[2] for _, numbers in seen))
    newest: dict[int, int] = {}
    for _, (key, count) in seen:
        newest[key] = max(newest.get(key, 0), count)
    return abs(sent - sum(newest.values()))


def latencies(case: str, seen: Seen, start: float, rate: float) -> Latencies:
    """Of the records of a case: stateless, keyed, window or keyed_python."""
    how = {"stateless": of_records, "window": of_windows}.get(case, of_counts)
    return how(seen, start, rate)


def _latencies(found: Iterable[tuple[float, int]], start: float, rate: float) -> Latencies:
    pairs = np.array(list(found), dtype=float).reshape(-1, 2)
    due_s = pairs[:, 1] / rate
    return Latencies(due_s, (pairs[:, 0] - start - due_s) * 1000)
