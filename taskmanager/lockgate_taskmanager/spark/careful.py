"""Re-runs a batch on which a Spark job has failed, without the failing records.

None of this is built or run before a batch fails. The stage's own job finds the failing records by bisection; only
these go through the operators one at a time, which identifies the operator that fails and its input: for a line that
was exploded into words that may be one word. All other records are processed by one job, as if the failing ones had not
been there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import pyarrow as pa
from lockgate_proto.messages import Operator

from lockgate_taskmanager.spark.chain import named, queries_of, query_of, transform
from lockgate_taskmanager.spark.contents import Records, records_of, without
from lockgate_taskmanager.spark.dead_letters import letters, record_text, spares, text_of
from lockgate_taskmanager.spark.event_time import Declaration, Times
from lockgate_taskmanager.spark.inputs import like
from lockgate_taskmanager.spark.isolation import Budget, isolate
from lockgate_taskmanager.spark.leaf import Content, DataFrame, Form, LeafSpec
from lockgate_taskmanager.spark.malformed import is_malformed
from lockgate_taskmanager.spark.outputs import Transform
from lockgate_taskmanager.spark.partials import PartialAggregate
from lockgate_taskmanager.spark.plan import Plan, TimesOf
from lockgate_taskmanager.spark.workbench import Workbench
from lockgate_taskmanager.task.program import DataError, ProgramError, UserCodeFailed, UserError

Check = Callable[[], None]


@dataclass(slots=True)
class Outcome:
    """The result of a stage for a batch.

    tables: its result, in order, at least one; failed: by operator, the records missing from it, as dead letters;
    malformed: lines that could not be parsed; times: the event times, if the stage declares them.
    """

    tables: list[pa.Table] = field(default_factory=list)
    failed: list[tuple[Operator, pa.Table]] = field(default_factory=list)
    malformed: int = 0
    times: Times = field(default_factory=Times)

    def add(self, table: pa.Table, plan: Plan) -> None:
        """A part of the result, and the counters of its plan."""
        self.tables.append(table)
        self.malformed += plan.malformed
        self.merge_times(plan.times)

    def merge_times(self, times: Times) -> None:
        """The event times of a part."""
        known = [piece.highest_ms for piece in (self.times, times) if piece.highest_ms is not None]
        self.times = Times(max(known, default=None), self.times.ahead + times.ahead)


def may_be_a_record(error: ProgramError) -> bool:
    """Whether leaving out a record may help. It does not when the author's code met an outage."""
    if isinstance(error, UserCodeFailed):
        return not error.is_environmental
    return isinstance(error, DataError) and not is_malformed(error)


class CarefulStage:
    """Runs batches that have failed. Used from one thread at a time."""

    def __init__(
        self, name: str, operators: Sequence[Operator], spec: LeafSpec, tail: Transform | None, bench: Workbench
    ) -> None:
        """spec, tail: as the stage was compiled with."""
        self._name, self._operators, self._spec, self._tail, self._bench = name, operators, spec, tail, bench

    def run(self, whole: Plan, content: Content, reason: ProgramError, check: Check) -> Outcome:
        """The batch without the failing records. whole: the stage's plan; reason: why the batch failed.

        check: called before each job, raises Canceled. Raises errors that are not caused by single records, and those
        of an operator that must not skip records.
        """
        records = records_of(content, self._spec)
        budget, outcome = Budget(), Outcome()

        def attempt(first: int, end: int) -> None:
            check()
            whole.run(records.of([(first, end)]))

        bad = isolate(records.count, attempt, budget, reason, may_be_a_record)
        kept: dict[int, pa.Table] = {}
        for number, why in bad.items():
            check()
            table = self._one_by_one(records.of([(number, number + 1)]), why, outcome, budget, check)
            if table is not None:
                kept[number] = table
        self._add_the_rest(whole, records, list(bad), kept, outcome, check)
        outcome.failed = _by_operator(outcome.failed)
        return outcome

    def _add_the_rest(
        self,
        whole: Plan,
        records: Records,
        bad: Sequence[int],
        kept: Mapping[int, pa.Table],
        outcome: Outcome,
        check: Check,
    ) -> None:
        """All records except the bad ones, which are replaced by the part of them that could be processed."""
        first = 0
        for number in (*sorted(kept), records.count):
            if spans := without([at for at in bad if first <= at < number], first, number):
                check()
                outcome.add(whole.run(records.of(spans)), whole)
            if number in kept:
                # nested types carry nullability, which is lost when Spark has read a table
                outcome.tables.append(like(kept[number], whole.schema))
            first = number + 1
        if not outcome.tables:
            outcome.tables.append(whole.schema.empty_table())

    def _one_by_one(
        self, content: Content, reason: ProgramError, outcome: Outcome, budget: Budget, check: Check
    ) -> pa.Table | None:
        """Passes one bad record through the operators; returns what is left of it, None for nothing.

        reason: its error.
        """
        spec, content = self._as_rows(content)
        steps = [*map(transform, self._operators), *([copy(self._tail)] if self._tail else [])]
        done = 0
        while done < len(steps):
            step = self._step(steps, done, spec)
            table = step.run(records_of(content, spec), reason, outcome, budget, check)
            if not table.num_rows:
                return None
            content, spec = table, LeafSpec(Form.TABLE, table=table.schema)
            done = step.end
        return content

    def _as_rows(self, content: Content) -> tuple[LeafSpec, Content]:
        """A record in the form in which operators get it: text may stand for several rows.

        Unchanged if it cannot leave Spark.
        """
        if self._spec.form is Form.TABLE:
            return self._spec, content
        try:
            table = self._plan("records", self._spec, lambda frame: frame, "the source").run(content)
        except UserError:
            return self._spec, content
        return LeafSpec(Form.TABLE, table=table.schema), table

    def _step(self, steps: Sequence[Transform], first: int, spec: LeafSpec) -> Step:
        """One operator, or as many as needed until the result can leave Spark. The tail is the last step."""
        why: UserError | None = None
        for end in range(first + 1, len(steps) + 1):
            taken, operators = steps[first:end], self._operators[first:end]
            where = named(operators[-1]) if operators else "the outputs"
            declared = [step.times for step in taken if isinstance(step, Declaration)]
            times, sql = declared[-1] if declared else None, queries_of(operators)
            try:
                plan = self._plan(f"{first}-{end}", spec, _chained(taken), where, times, sql)
            except UserError as error:
                why = error
                continue
            tail = taken[-1] if end > len(self._operators) else None
            return Step(plan, operators, where, tail, end)
        assert why is not None, "there is a step"
        raise why

    def _plan(
        self, name: str, spec: LeafSpec, build: Transform, where: str, times: TimesOf | None = None, sql: str = ""
    ) -> Plan:
        return self._bench.plan(f"{self._name}-careful-{name}", spec, build, where, times, sql)


@dataclass(frozen=True, slots=True)
class Step:
    """Consecutive operators, mostly one.

    tail: that of the stage, if it is in this step; end: steps done after this one.
    """

    plan: Plan
    operators: Sequence[Operator]
    where: str
    tail: Transform | None
    end: int

    def run(self, rows: Records, reason: ProgramError, outcome: Outcome, budget: Budget, check: Check) -> pa.Table:
        """The result without the failing records. Raises the errors of operators that must not skip records."""
        results: dict[tuple[int, int], tuple[pa.Table, Times]] = {}

        def attempt(first: int, end: int) -> None:
            check()
            results[first, end] = self.plan.run(rows.of([(first, end)])), self.plan.times

        try:
            bad = isolate(rows.count, attempt, budget, reason, may_be_a_record)
        except DataError as error:
            raise self._blamed(error) from error
        for number, why in bad.items():
            operator = self._culprit(why)
            if operator is None or not spares(operator):
                raise self._blamed(why) from why
            error_text = text_of(why, self.where)
            outcome.failed.append(
                (operator, letters(operator, [record_text(rows.of([(number, number + 1)]))], [error_text]))
            )
        if not bad:
            result, times = results[0, rows.count]
        elif spans := without(bad, 0, rows.count):
            check()
            result, times = self.plan.run(rows.of(spans)), self.plan.times
        else:
            return self.plan.schema.empty_table()
        outcome.merge_times(times)
        return result

    def _culprit(self, error: ProgramError) -> Operator | None:
        """The operator that failed; of several, the one whose query Spark names, or the first."""
        query = error.query if isinstance(error, DataError) else ""
        found = [operator for operator in self.operators if query and query in query_of(operator)]
        if found:
            return found[0]
        is_clear = len(self.operators) == 1 or all(map(spares, self.operators))
        return self.operators[0] if self.tail is None and is_clear else None

    def _blamed(self, error: ProgramError) -> ProgramError:
        if not isinstance(error, DataError) or error.operator_id:
            return error
        if isinstance(self.tail, PartialAggregate):
            return self.tail.blamed(error)
        operator = self._culprit(error)
        return error if operator is None else error.at(named(operator), operator.id)


def _chained(steps: Sequence[Transform]) -> Transform:
    def build(frame: DataFrame) -> DataFrame:
        for step in steps:
            frame = step(frame)
        return frame

    return build


def _by_operator(failed: Sequence[tuple[Operator, pa.Table]]) -> list[tuple[Operator, pa.Table]]:
    """One table for each operator."""
    operators = {operator.id: operator for operator, _ in failed}
    return [
        (operator, pa.concat_tables([letters for failing, letters in failed if failing.id == name]))
        for name, operator in operators.items()
    ]
