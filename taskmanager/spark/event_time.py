"""Event time in Spark: where it comes from, and its highest value in a micro-batch, found by the batch's own job."""

from __future__ import annotations

from collections.abc import Sequence

from lockgate_proto.messages import EventTime, Operator
from pyspark.sql.functions import expr

from taskmanager.spark.errors import explained
from taskmanager.spark.leaf import DataFrame
from taskmanager.spark.session import is_connect
from taskmanager.state.layout import EVENT_TIME, PANE
from taskmanager.state.windows import WindowShape
from taskmanager.task.program import UserError

_METRIC = "lockgate_event_time"
_HIGHEST = "highest"
_WHOLE = ("bigint", "int", "smallint", "tinyint")


class Declaration:
    """An operator that declares event time: adds the column, and has Spark note the highest time of every batch."""

    def __init__(self, kind: EventTime, where: str) -> None:
        """where: the operator, for messages."""
        self._kind = kind
        self._where = where
        self._alone: DataFrame | None = None  # finds the highest time by a job of its own; only with Spark Connect

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Raises UserError for what is no time."""
        kind, where = self._kind, self._where
        millis = millis_sql(frame, kind.expression, where)
        with explained(where, frame.columns):
            result = frame.withColumn(kind.column, expr(kind.expression)) if kind.column else frame
            if kind.column:
                millis = millis_sql(result, f"`{kind.column.replace('`', '``')}`", where)
            top = expr(f"max({millis})").alias(_HIGHEST)
            self._alone = result.select(top) if is_connect(frame) else None
            return result.observe(_METRIC, top)

    def highest(self, frame: DataFrame) -> int | None:
        """The highest event time of the batch that `frame` was executed for last, in milliseconds; None without any."""
        if self._alone is not None:
            noted = dict(frame.executionInfo.flows).get(_METRIC)
            # Connect tells nothing of what lies behind a view, which an author's function may have made
            return (noted or self._alone.toArrow().to_pylist()[0])[_HIGHEST]  # type: ignore[no-any-return]
        found = frame._jdf.queryExecution().observedMetrics().get(_METRIC)
        return None if found.isEmpty() or found.get().isNullAt(0) else int(found.get().getLong(0))


def observes(operators: Sequence[Operator]) -> bool:
    """True when one of the operators declares event time."""
    return any(isinstance(operator.kind, EventTime) for operator in operators)


def with_panes(frame: DataFrame, expression: str, shape: WindowShape, where: str) -> DataFrame:
    """Adds the pane that each row lies in, NULL for rows without a time."""
    with explained(where, frame.columns):
        timed = frame.withColumn(EVENT_TIME, expr(millis_sql(frame, expression, where)))
        return timed.withColumn(PANE, expr(f"{EVENT_TIME} - pmod({EVENT_TIME} - {shape.offset_ms}L, {shape.pane_ms}L)"))


def millis_sql(frame: DataFrame, expression: str, where: str) -> str:
    """SQL of an event time in milliseconds. Raises UserError for what is no time."""
    kind = _kind(frame, expression, where)
    if kind == "timestamp":
        return f"unix_millis({expression})"
    if kind in ("timestamp_ntz", "date"):
        return f"unix_millis(CAST({expression} AS TIMESTAMP))"
    if kind in _WHOLE:
        return f"CAST({expression} AS BIGINT)"
    raise UserError(
        f"{where}: the event time '{expression}' is of type {kind}; it has to be a TIMESTAMP, or whole milliseconds"
        " since 1970 as BIGINT: use to_timestamp(...) or CAST(... AS TIMESTAMP)"
    )


def micros_sql(frame: DataFrame, expression: str, where: str) -> str:
    """SQL of an event time that `millis_sql` takes in microseconds, NULL where that is beyond 64 bits."""
    if _kind(frame, expression, where) in _WHOLE:
        return f"try_multiply(CAST({expression} AS BIGINT), 1000L)"
    return f"unix_micros(CAST({expression} AS TIMESTAMP))"


def _kind(frame: DataFrame, expression: str, where: str) -> str:
    with explained(where, frame.columns):
        return str(frame.select(expr(expression).alias(EVENT_TIME)).dtypes[0][1])
