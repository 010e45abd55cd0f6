"""Records in and out of each operator, since the job's first start.

Operators that run in one Spark job share that job's counts: its input counts as the input of each, its output likewise.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from lockgate_proto.messages import Operator, OperatorCounters

LOG = logging.getLogger(__name__)


class Counters:
    """Counts of the operators of one subtask."""

    def __init__(self, operators: Iterable[Operator], restored: Iterable[OperatorCounters]) -> None:
        self._counts = {operator.id: [0, 0, 0, 0, 0, 0, 0] for operator in operators}
        for operator_counters in restored:
            if operator_counters.operator_id in self._counts:
                kept = [
                    operator_counters.records_in,
                    operator_counters.records_out,
                    operator_counters.records_late,
                    operator_counters.records_malformed,
                    operator_counters.records_ahead,
                    operator_counters.records_failed,
                    operator_counters.records_lost,
                ]
                self._counts[operator_counters.operator_id] = kept

    def add(self, operators: Iterable[Operator], records_in: int, records_out: int) -> None:
        """Counts a batch that passed through some operators."""
        for operator in operators:
            count = self._counts[operator.id]
            count[0] += records_in
            count[1] += records_out

    def add_late(self, operator: Operator, records: int) -> None:
        """Counts late records, which are in no result."""
        self._counts[operator.id][2] += records

    def add_malformed(self, source: Operator | None, lines: int) -> None:
        """Counts lines that could not be parsed with the source's schema."""
        if source is not None:
            self._counts[source.id][3] += lines

    def add_ahead(self, operator: Operator | None, records: int) -> None:
        """Counts records too far ahead of the clock to advance event time; logs the first ones."""
        if operator is not None and records:
            if not self._counts[operator.id][4]:
                LOG.warning(
                    "operator %r: %d records are further ahead of this machine's clock than max_ahead allows; they are"
                    " processed, but do not advance event time, which would make all other records late",
                    operator.name or operator.id,
                    records,
                )
            self._counts[operator.id][4] += records

    def add_failed(self, operator: Operator, records: int) -> None:
        """Counts records that the operator failed on and skipped."""
        self._counts[operator.id][5] += records

    def values_losing(self, source: Operator, records: int) -> tuple[OperatorCounters, ...]:
        """The counts for a snapshot. records: of the source, that a restart from it loses."""
        return tuple(
            replace(counters, records_lost=counters.records_lost + records)
            if counters.operator_id == source.id
            else counters
            for counters in self.values()
        )

    def values(self) -> tuple[OperatorCounters, ...]:
        """The counts now."""
        return tuple(_counters(name, counts) for name, counts in self._counts.items())


def _counters(operator_id: str, counts: list[int]) -> OperatorCounters:
    records_in, records_out, late, malformed, ahead, failed, lost = counts
    return OperatorCounters(
        operator_id,
        records_in,
        records_out,
        records_late=late,
        records_malformed=malformed,
        records_ahead=ahead,
        records_failed=failed,
        records_lost=lost,
    )
