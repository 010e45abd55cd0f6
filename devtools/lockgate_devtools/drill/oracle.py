"""The expected output, recomputed from the input alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockgate_devtools.drill.model import RecordCheck

Integers = npt.NDArray[np.int64]


class LedgerOracle:
    """Counts every record of an append-only ledger against the input.

    The input is records (partition, sequence), both from 0; rows: number per partition.
    """

    def __init__(self, rows: Sequence[int]) -> None:
        self._rows: Integers = np.asarray(rows, dtype=np.int64)
        # index of each partition's first record among all records
        self._first: Integers = np.cumsum(self._rows) - self._rows
        self._seen: Integers = np.zeros(int(self._rows.sum()), dtype=np.int64)
        self._strangers = 0

    def add(self, partition: Integers, sequence: Integers) -> None:
        """Adds rows of the ledger: two columns of the same length."""
        known = (partition >= 0) & (partition < self._rows.size) & (sequence >= 0)
        known[known] = sequence[known] < self._rows[partition[known]]
        self._strangers += int(np.count_nonzero(~known))
        places = self._first[partition[known]] + sequence[known]
        self._seen += np.bincount(places, minlength=self._seen.size)

    def check(self) -> RecordCheck:
        """The verdict over everything added so far."""
        lost = int(np.count_nonzero(self._seen == 0))
        copies = int(np.maximum(self._seen - 1, 0).sum())
        return RecordCheck(self._seen.size, lost, copies + self._strangers)


@dataclass(frozen=True, slots=True)
class Total:
    """The keyed aggregate of one partition: number of rows, sum of their sequences, the last one."""

    count: int
    total: int
    last: int


def check_totals(rows: Sequence[int], found: Mapping[int, Total]) -> tuple[str, ...]:
    """Sentences about every partition whose aggregate differs from the input's. Empty when all are right.

    rows: number per partition; one without any has no aggregate.
    """
    wanted = {number: Total(n, n * (n - 1) // 2, n - 1) for number, n in enumerate(rows) if n}
    problems = [
        f"partition {number}: the aggregate says {found.get(number)}, the input {total}"
        for number, total in wanted.items()
        if found.get(number) != total
    ]
    problems += [f"partition {number} was never in the input" for number in sorted(set(found) - set(wanted))]
    return tuple(problems)
