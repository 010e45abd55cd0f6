"""Records in and out of each operator, since the job's first start.

Operators that run in one Spark job share that job's counts: its input is the input of each, its output the output.
"""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_proto.messages import Operator, OperatorCounters


class Counters:
    """Counts of the operators of one subtask."""

    def __init__(self, operators: Iterable[Operator], restored: Iterable[OperatorCounters]) -> None:
        self._counts = {operator.id: [0, 0, 0, 0] for operator in operators}
        for one in restored:
            if one.operator_id in self._counts:
                counts = [one.records_in, one.records_out, one.records_late, one.records_malformed]
                self._counts[one.operator_id] = counts

    def add(self, operators: Iterable[Operator], records_in: int, records_out: int) -> None:
        """Counts a batch through some operators."""
        for operator in operators:
            count = self._counts[operator.id]
            count[0] += records_in
            count[1] += records_out

    def add_late(self, operator: Operator, records: int) -> None:
        """Counts records that are in no result."""
        self._counts[operator.id][2] += records

    def add_malformed(self, source: Operator | None, lines: int) -> None:
        """Counts lines that were no records of the source's schema."""
        if source is not None:
            self._counts[source.id][3] += lines

    def values(self) -> tuple[OperatorCounters, ...]:
        """The counts now."""
        return tuple(OperatorCounters(name, *one) for name, one in self._counts.items())
