"""What must have come out, recomputed from the input alone. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lockgate.drill.model import RecordCheck

Integers = npt.NDArray[np.int64]


class LedgerOracle:
    """Counts every record of an append-only ledger against the input.

    The input is `partitions` x `rows` records (partition, sequence), sequence from 0 in each partition.
    """

    def __init__(self, partitions: int, rows: int) -> None:
        self._partitions = partitions
        self._rows = rows
        self._seen: Integers = np.zeros(partitions * rows, dtype=np.int64)
        self._strangers = 0

    def add(self, partition: Integers, sequence: Integers) -> None:
        """Takes some rows of the ledger: two columns of the same length."""
        known = (partition >= 0) & (partition < self._partitions) & (sequence >= 0) & (sequence < self._rows)
        self._strangers += int(np.count_nonzero(~known))
        places = partition[known] * self._rows + sequence[known]
        self._seen += np.bincount(places, minlength=self._seen.size)

    def check(self) -> RecordCheck:
        """The verdict over everything added so far."""
        lost = int(np.count_nonzero(self._seen == 0))
        copies = int(np.maximum(self._seen - 1, 0).sum())
        return RecordCheck(self._seen.size, lost, copies + self._strangers)


@dataclass(frozen=True, slots=True)
class Total:
    """What the keyed aggregate says of one partition: how many rows, the sum of their sequences, the last one."""

    count: int
    total: int
    last: int


def check_totals(partitions: int, rows: int, found: Mapping[int, Total]) -> tuple[str, ...]:
    """Sentences on every partition whose aggregate differs from the input's. Empty when all are right."""
    wanted = Total(rows, rows * (rows - 1) // 2, rows - 1)
    problems = [
        f"partition {number}: the aggregate says {found.get(number)}, the input {wanted}"
        for number in range(partitions)
        if found.get(number) != wanted
    ]
    problems += [f"partition {number} was never in the input" for number in sorted(set(found) - set(range(partitions)))]
    return tuple(problems)
