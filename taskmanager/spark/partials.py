"""Partial aggregates: what Spark computes of a micro-batch, for keyed state to add up, see `state.layout`.

Only what is known to be right in parts is computed: count, sum, min and max of an expression of one record. An input
is text that an author wrote, so it is never pasted into a call, where `DISTINCT x` or `a), max(b` would mean something
else, but parsed as an expression of its own; and what Spark has made of it is looked at before any record is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate, Operator, SessionWindow
from pyspark.sql import functions as sf

from taskmanager.spark import event_time
from taskmanager.spark.chain import hash_sql, named, quoted, require_columns
from taskmanager.spark.errors import explained
from taskmanager.spark.leaf import DataFrame
from taskmanager.spark.passable import refusal
from taskmanager.spark.session import is_connect
from taskmanager.state.layout import HASH, PANE, ROWS, Fold, Part, folds, parts, with_bounds
from taskmanager.state.windows import WindowShape, shape_of
from taskmanager.task.program import DataError, UserError

_FUNCTIONS = {Fold.COUNT: sf.count, Fold.SUM: sf.sum, Fold.MIN: sf.min, Fold.MAX: sf.max}
_ADDED_UP = frozenset({"Count", "Sum", "Min", "Max"})  # Spark's classes of these
_HINT = (
    "An aggregate is computed in parts that are added up, so it takes one expression of a record, without DISTINCT,"
    " subqueries or other aggregates. For distinct values deduplicate by key and value first, and then aggregate"
)


class PartialAggregate:
    """Rows to partial aggregates per key."""

    def __init__(self, operator: Operator, where: str) -> None:
        """where: names the edge, for messages. Raises UserError for a function that is not known."""
        kind = operator.kind
        assert isinstance(kind, KeyedAggregate)
        for one in kind.aggregates:
            if not folds(one):
                raise UserError(
                    f"{named(operator)}: aggregate '{one.output}' has a function this version does not know"
                )
        window = kind.window
        if window is not None and isinstance(window.kind, SessionWindow):
            kind = with_bounds(kind)
        self._kind = kind
        self._shape: WindowShape | None = None if window is None else shape_of(window)
        self._id, self._name = operator.id, named(operator)
        self._where = where
        self._input: tuple[DataFrame, Sequence[Any]] | None = None  # of the plan made last, and what it is grouped by

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Raises UserError for unknown columns, and for inputs that cannot be computed in parts."""
        kind, keys = self._kind, self._kind.keys
        require_columns(frame, keys, self._where)
        panes = []
        if kind.window is not None and self._shape is not None:
            frame = event_time.with_panes(frame, kind.window.event_time, self._shape, self._name)
            panes = [frame[PANE]]
        by = [*[frame[quoted(key)].alias(key) for key in keys], *panes]
        computed = self._computed()
        try:
            result = self._grouped(frame, by, computed)
        except UserError:
            for part in computed:
                self._require_sound(frame, by, part)
            raise
        self._input = frame, by
        self._require_passable(result, computed)
        with explained(self._name, frame.columns):
            names = [
                *map(quoted, keys),
                f"{hash_sql(keys)} AS {HASH}",
                *[quoted(name) for name in result.columns[len(keys) :]],
            ]
            result = result.selectExpr(*names)
            return result if keys else result.where(f"{ROWS} > 0")

    def blamed(self, error: DataError) -> DataError:
        """With the aggregate that refuses the batch which is loaded, where it is one: each is tried alone."""
        if self._input is None:
            return error
        frame, by = self._input
        try:
            with explained(self._name, on_records=True):
                frame.toArrow()
        except DataError:
            return error  # it comes of what stands before
        for part in self._computed():
            try:
                with explained(self._name, on_records=True):
                    self._grouped(frame, by, [part]).toArrow()
            except DataError as found:
                one = self._kind.aggregates[part.aggregate]
                called = f"{one.function.name.lower()} of '{one.input}'"
                text = f"aggregate '{one.output}' ({called}): {found.text}"
                return DataError(text, query=error.query, fragment=error.fragment).at(self._name, self._id)
        return error

    def _computed(self) -> list[Part]:
        return [part for part in parts(self._kind) if part.column != ROWS]

    def _grouped(self, frame: DataFrame, by: Sequence[Any], computed: Sequence[Part]) -> DataFrame:
        with explained(self._name, frame.columns):
            columns = [_computed(self._kind.aggregates[part.aggregate], part) for part in computed]
            result = frame.groupBy(*by).agg(sf.count(sf.lit(1)).alias(ROWS), *columns)
            result.columns  # noqa: B018  Spark Connect analyzes only when asked
        if not is_connect(frame):  # Connect shows no plan; a view that a subquery could read is not there either
            _require_added_up(result, len(by), self._name)
        return result

    def _require_passable(self, result: DataFrame, computed: Sequence[Part]) -> None:
        """Raises UserError for a part that cannot be added up as Spark would: of text with a collation, say."""
        types = {one.name: one.dataType for one in result.schema.fields}
        for part in computed:
            one = self._kind.aggregates[part.aggregate]
            if why := refusal(types[part.column]):
                raise UserError(f"{self._name}: aggregate '{one.output}' of '{one.input}' {why}")

    def _require_sound(self, frame: DataFrame, by: Sequence[Any], part: Part) -> None:
        """Raises UserError that names the aggregate, when it is the one that is refused."""
        one = self._kind.aggregates[part.aggregate]
        try:
            self._grouped(frame, by, [part])
        except UserError as error:
            problem = str(error).removeprefix(f"{self._name}: ").rstrip(".")
            hint = "" if problem.startswith("unknown column") else f". {_HINT}."
            message = f"{self._name}: aggregate '{one.output}' of '{one.input}': {problem}{hint}"
            raise UserError(message) from error


def _computed(aggregate: Aggregate, part: Part) -> Any:
    text = aggregate.input.strip()
    if part.fold is Fold.COUNT and text in ("", "*"):
        return sf.count(sf.lit(1)).alias(part.column)
    if not text:
        raise UserError(f"aggregate '{aggregate.output}': {aggregate.function.name.lower()} needs an input expression")
    # Between THEN and END stands one expression: no list, no alias, no DISTINCT. Spark drops the CASE again.
    value = sf.expr(f"CASE WHEN true THEN {text}\nEND")
    if aggregate.function is AggregateFunction.AVG and part.fold is Fold.SUM:
        value = value.cast("double")
    return _FUNCTIONS[part.fold](value).alias(part.column)


def _require_added_up(result: DataFrame, keys: int, where: str) -> None:
    """Raises UserError unless the plan on top is one aggregation of known functions, without anything that is not one.

    keys: how many columns stand in front of the aggregates.
    """
    plan = result._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Aggregate" or not plan.subqueries().isEmpty():
        raise UserError(f"{where}: it reads more than the record")
    expressions = plan.aggregateExpressions()
    for index in range(keys, expressions.size()):
        found = expressions.apply(index).child()
        is_aggregate = found.nodeName() == "AggregateExpression"
        if not is_aggregate or found.isDistinct() or found.aggregateFunction().nodeName() not in _ADDED_UP:
            raise UserError(f"{where}: it is no plain count, sum, min or max")
