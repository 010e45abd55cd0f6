"""Partial aggregates: computed by Spark per micro-batch, for keyed state to merge, see `state.layout`.

Only functions that can be computed in parts are allowed: count, sum, min and max of an expression over one record. An
input is text from an author, so it is never pasted into a call, where `DISTINCT x` or `a), max(b` would change the
meaning; it is parsed as an expression of its own, and Spark's plan is checked before any record is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lockgate_proto.messages import Aggregate, AggregateFunction, CountWindow, KeyedAggregate, Operator, SessionWindow
from pyspark.sql import functions as sf

from lockgate_taskmanager.spark import event_time
from lockgate_taskmanager.spark.chain import hash_sql, named, quoted, require_columns
from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.jobs import to_arrow
from lockgate_taskmanager.spark.leaf import DataFrame
from lockgate_taskmanager.spark.passable import refusal
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.state.layout import HASH, PANE, ROWS, Fold, Part, folds, parts, with_bounds
from lockgate_taskmanager.state.windows.shape import WindowShape, shape_of
from lockgate_taskmanager.task.program import DataError, UserError

_FUNCTIONS = {Fold.COUNT: sf.count, Fold.SUM: sf.sum, Fold.MIN: sf.min, Fold.MAX: sf.max}
_ADDED_UP = frozenset({"Count", "Sum", "Min", "Max"})  # Spark's classes of these
_HINT = (
    "An aggregate is computed in parts that are merged, so its input is one expression over a record, without DISTINCT,"
    " subqueries or other aggregates. For distinct values deduplicate by key and value first, and then aggregate"
)


class PartialAggregate:
    """Rows to partial aggregates per key."""

    def __init__(self, operator: Operator, where: str) -> None:
        """where: names the edge, in messages. Raises UserError for an unknown function."""
        kind = operator.kind
        assert isinstance(kind, KeyedAggregate)
        for aggregate in kind.aggregates:
            if not folds(aggregate):
                raise UserError(
                    f"{named(operator)}: aggregate '{aggregate.output}' has a function unknown to this version"
                )
        # by processing time, the subtask that keeps the windows adds the time
        window = None if kind.window is None or kind.window.processing_time else kind.window
        if window is not None and isinstance(window.kind, SessionWindow):
            kind = with_bounds(kind)
        self._kind = kind
        self._shape: WindowShape | None = None if window is None else shape_of(window)
        self._id, self._name = operator.id, named(operator)
        self._where = where
        self._input: tuple[DataFrame, Sequence[Any]] | None = None  # of the last plan, and its grouping columns

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
        """Adds the aggregate that fails on the current batch, if it is one: each is tried separately."""
        if self._input is None:
            return error
        frame, by = self._input
        try:
            with explained(self._name, on_records=True):
                to_arrow(frame)
        except DataError:
            return error  # caused by an earlier operator
        for part in self._computed():
            try:
                with explained(self._name, on_records=True):
                    to_arrow(self._grouped(frame, by, [part]))
            except DataError as found:
                aggregate = self._kind.aggregates[part.aggregate]
                called = f"{aggregate.function.name.lower()} of '{aggregate.input}'"
                text = f"aggregate '{aggregate.output}' ({called}): {found.text}"
                return DataError(text, query=error.query, fragment=error.fragment).at(self._name, self._id)
        return error

    def _computed(self) -> list[Part]:
        return [part for part in parts(self._kind) if part.column != ROWS]

    def _grouped(self, frame: DataFrame, by: Sequence[Any], computed: Sequence[Part]) -> DataFrame:
        with explained(self._name, frame.columns):
            columns = [_computed(self._kind.aggregates[part.aggregate], part) for part in computed]
            result = frame.groupBy(*by).agg(sf.count(sf.lit(1)).alias(ROWS), *columns)
            result.columns  # noqa: B018  Spark Connect analyzes only when asked
        if not is_connect(frame):  # Connect shows no plan; but a subquery has no view there that it could read
            _require_added_up(result, len(by), self._name)
        return result

    def _require_passable(self, result: DataFrame, computed: Sequence[Part]) -> None:
        """Raises UserError for a part that cannot be merged as Spark would merge it: text with a collation, for
        example.
        """
        types = {field.name: field.dataType for field in result.schema.fields}
        for part in computed:
            aggregate = self._kind.aggregates[part.aggregate]
            if why := refusal(types[part.column]):
                raise UserError(f"{self._name}: aggregate '{aggregate.output}' of '{aggregate.input}' {why}")

    def _require_sound(self, frame: DataFrame, by: Sequence[Any], part: Part) -> None:
        """Raises UserError that names the aggregate, if it is the one that Spark refuses."""
        aggregate = self._kind.aggregates[part.aggregate]
        try:
            self._grouped(frame, by, [part])
        except UserError as error:
            problem = str(error).removeprefix(f"{self._name}: ").rstrip(".")
            hint = "" if problem.startswith("unknown column") else f". {_HINT}."
            message = f"{self._name}: aggregate '{aggregate.output}' of '{aggregate.input}': {problem}{hint}"
            raise UserError(message) from error


class RecordParts(PartialAggregate):
    """Each record as a partial aggregate of its own, in the order of the records, for count windows."""

    def __init__(self, operator: Operator, where: str) -> None:
        """As PartialAggregate."""
        kind = operator.kind
        assert isinstance(kind, CountWindow)
        super().__init__(replace(operator, kind=KeyedAggregate(kind.keys, kind.aggregates)), where)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Raises UserError as PartialAggregate does."""
        types = {field.name: field.dataType for field in super().__call__(frame).schema.fields}
        keys, computed = self._kind.keys, self._computed()
        with explained(self._name, frame.columns):
            columns = [_alone(self._kind.aggregates[part.aggregate], part, types[part.column]) for part in computed]
            rows = frame.select(
                *[frame[quoted(key)].alias(key) for key in keys], sf.lit(1).cast("long").alias(ROWS), *columns
            )
            names = [*map(quoted, keys), f"{hash_sql(keys)} AS {HASH}", *map(quoted, rows.columns[len(keys) :])]
            return rows.selectExpr(*names)


def _computed(aggregate: Aggregate, part: Part) -> Any:
    text = aggregate.input.strip()
    if part.fold is Fold.COUNT and text in ("", "*"):
        return sf.count(sf.lit(1)).alias(part.column)
    if not text:
        raise UserError(f"aggregate '{aggregate.output}': {aggregate.function.name.lower()} needs an input expression")
    value = _value(text)
    if aggregate.function is AggregateFunction.AVG and part.fold is Fold.SUM:
        value = value.cast("double")
    return _FUNCTIONS[part.fold](value).alias(part.column)


def _value(text: str) -> Any:
    """Only one expression fits between THEN and END: no list, alias or DISTINCT. Spark removes the CASE again."""
    return sf.expr(f"CASE WHEN true THEN {text}\nEND")


def _alone(aggregate: Aggregate, part: Part, kind: Any) -> Any:
    """The part of one record. kind: its type as `_computed` has it."""
    text = aggregate.input.strip()
    if part.fold is not Fold.COUNT:
        return _value(text).cast(kind).alias(part.column)
    counts = sf.lit(1) if text in ("", "*") else sf.when(_value(text).isNull(), 0).otherwise(1)
    return counts.cast(kind).alias(part.column)


def _require_added_up(result: DataFrame, keys: int, where: str) -> None:
    """Raises UserError unless the top of the plan is one aggregation that consists of known functions only.

    keys: number of columns in front of the aggregates.
    """
    plan = result._jdf.queryExecution().analyzed()
    if plan.nodeName() != "Aggregate" or not plan.subqueries().isEmpty():
        raise UserError(f"{where}: it reads more than the record")
    expressions = plan.aggregateExpressions()
    for index in range(keys, expressions.size()):
        found = expressions.apply(index).child()
        is_aggregate = found.nodeName() == "AggregateExpression"
        if not is_aggregate or found.isDistinct() or found.aggregateFunction().nodeName() not in _ADDED_UP:
            raise UserError(f"{where}: it is not a plain count, sum, min or max")
