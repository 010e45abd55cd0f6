"""Event time in Spark: where it comes from, and its highest value in a micro-batch, found by the batch's own job."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lockgate_proto.messages import EventTime, Operator
from pyspark.sql import Observation
from pyspark.sql.functions import expr

from taskmanager.spark.errors import explained
from taskmanager.spark.leaf import DataFrame
from taskmanager.state.layout import EVENT_TIME, PANE
from taskmanager.state.windows import WindowShape
from taskmanager.task.program import UserError

_METRIC = "lockgate_event_time"
_WHOLE = ("bigint", "int", "smallint", "tinyint")


def declare(kind: EventTime, where: str) -> Callable[[DataFrame], DataFrame]:
    """Adds the column, and has Spark note the highest time of every batch."""

    def build(frame: DataFrame) -> DataFrame:
        millis = millis_sql(frame, kind.expression, where)
        with explained(where, frame.columns):
            result = frame.withColumn(kind.column, expr(kind.expression)) if kind.column else frame
            if kind.column:
                millis = millis_sql(result, f"`{kind.column.replace('`', '``')}`", where)
            name = Observation(_METRIC) if _is_connect(frame) else _METRIC
            return result.observe(name, expr(f"max({millis})").alias("highest"))

    return build


def highest(frame: DataFrame) -> int | None:
    """The highest event time of the batch that `frame` was executed for last, in milliseconds; None without any."""
    if _is_connect(frame):
        return frame._plan.observations[_METRIC].get["highest"]  # type: ignore[no-any-return]
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
    with explained(where, frame.columns):
        kind = frame.select(expr(expression).alias(EVENT_TIME)).dtypes[0][1]
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


def _is_connect(frame: DataFrame) -> bool:
    return type(frame).__module__.startswith("pyspark.sql.connect")
