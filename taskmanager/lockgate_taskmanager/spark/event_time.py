"""Event time in Spark: the declared time column, and the highest time in a micro-batch, found by the batch's own job.

A time far ahead of the clock is a mistake of its producer, and would make every other record late permanently. Such a
record is processed like any other, but is ignored when the highest time is determined. Only a batch with such a record
costs a second job: a plan that is executed again has no current clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lockgate_common.clock import unix_ms
from lockgate_proto.event_times import ANY_TIME_AHEAD, DEFAULT_MAX_AHEAD_MS
from lockgate_proto.messages import EventTime, Operator
from pyspark.sql.functions import expr

from lockgate_taskmanager.spark.errors import explained
from lockgate_taskmanager.spark.jobs import to_arrow
from lockgate_taskmanager.spark.leaf import DataFrame
from lockgate_taskmanager.spark.session import is_connect
from lockgate_taskmanager.state.layout import EVENT_TIME, PANE
from lockgate_taskmanager.state.windows.shape import WindowShape
from lockgate_taskmanager.task.program import UserError

_METRIC = "lockgate_event_time"
_HIGHEST = "highest"
_MOST_TIMESTAMP_MS = (2**63 - 1) // 1000  # TIMESTAMP has microseconds in 64 bits
_WHOLE = ("bigint", "int", "smallint", "tinyint")


@dataclass(frozen=True, slots=True)
class Times:
    """The event times of a batch: the highest within the bound, None without any, and how many are beyond the bound."""

    highest_ms: int | None = None
    ahead: int = 0


def latest_ms(kind: EventTime, unix_ms: int) -> int | None:
    """The latest plausible event time at wall clock `unix_ms`; None when any time is."""
    if kind.max_ahead_ms == ANY_TIME_AHEAD:
        return None
    return unix_ms + (kind.max_ahead_ms or DEFAULT_MAX_AHEAD_MS)


class Declaration:
    """An operator that declares event time: adds the column, and lets Spark record the highest time of every batch."""

    def __init__(self, kind: EventTime, where: str, clock: Callable[[], int] = unix_ms) -> None:
        """where: the operator, in messages. clock: the wall clock, in milliseconds since 1970."""
        self._kind = kind
        self._where = where
        self._clock = clock
        self._timed: DataFrame | None = None  # the last output
        self._millis = ""
        # determines the highest time with a job of its own; only with Spark Connect
        self._alone: DataFrame | None = None

    def __call__(self, frame: DataFrame) -> DataFrame:
        """Raises UserError for an expression that is not a time."""
        kind, where = self._kind, self._where
        millis = millis_sql(frame, kind.expression, where)
        with explained(where, frame.columns):
            result = frame.withColumn(kind.column, expr(kind.expression)) if kind.column else frame
            if kind.column:
                millis = millis_sql(result, f"`{kind.column.replace('`', '``')}`", where)
            top = expr(f"max({millis})").alias(_HIGHEST)
            self._timed, self._millis = result, millis
            self._alone = result.select(top) if is_connect(frame) else None
            return result.observe(_METRIC, top)

    def times(self, frame: DataFrame) -> Times:
        """For the batch over which `frame` was executed last, and which can still be read."""
        highest = self._highest(frame)
        latest = latest_ms(self._kind, self._clock())
        if highest is None or latest is None or highest <= latest:
            return Times(highest)
        assert self._timed is not None, "the frame was made here"
        beyond = f"{self._millis} > {latest}L"
        row = self._timed.selectExpr(f"max(if({beyond}, NULL, {self._millis})) AS highest", f"count_if({beyond}) AS n")
        (found,) = to_arrow(row).to_pylist()
        return Times(found["highest"], found["n"])

    def _highest(self, frame: DataFrame) -> int | None:
        """In milliseconds; None when there are no times."""
        if self._alone is not None:
            noted = dict(frame.executionInfo.flows).get(_METRIC)
            # Connect reports no observations behind a view, which an author's function may have made.
            return (noted or to_arrow(self._alone).to_pylist()[0])[_HIGHEST]  # type: ignore[no-any-return]
        found = frame._jdf.queryExecution().observedMetrics().get(_METRIC)
        return None if found.isEmpty() or found.get().isNullAt(0) else int(found.get().getLong(0))


def observes(operators: Sequence[Operator]) -> bool:
    """True when one of the operators declares event time."""
    return any(isinstance(operator.kind, EventTime) for operator in operators)


def with_panes(frame: DataFrame, expression: str, shape: WindowShape, where: str) -> DataFrame:
    """Adds the time and pane of each row, NULL for rows without a time."""
    with explained(where, frame.columns):
        pane = expr(f"{EVENT_TIME} - pmod({EVENT_TIME} - {shape.offset_ms}L, {shape.pane_ms}L)")
        return with_times(frame, expression, shape, where).withColumn(PANE, pane)


def with_times(frame: DataFrame, expression: str, shape: WindowShape, where: str) -> DataFrame:
    """Adds the time of each row in milliseconds, NULL for none, also if a bound of its window exceeds TIMESTAMP."""
    with explained(where, frame.columns):
        return frame.withColumn(EVENT_TIME, expr(usable_millis_sql(frame, expression, shape.extent_ms, where)))


def usable_millis_sql(frame: DataFrame, expression: str, reach_ms: int, where: str) -> str:
    """As `millis_sql`, but NULL for a time from which `reach_ms` leads beyond TIMESTAMP.

    Whole numbers go further, for example nanoseconds that are taken for milliseconds, and sums of them would wrap.
    """
    millis, most = millis_sql(frame, expression, where), _MOST_TIMESTAMP_MS - reach_ms
    return f"CASE WHEN {millis} BETWEEN {-most}L AND {most}L THEN {millis} END"


def millis_sql(frame: DataFrame, expression: str, where: str) -> str:
    """SQL of an event time in milliseconds. Raises UserError for an expression that is not a time."""
    kind = _kind(frame, expression, where)
    if kind == "timestamp":
        return f"unix_millis({expression})"
    if kind in ("timestamp_ntz", "date"):
        return f"unix_millis(CAST({expression} AS TIMESTAMP))"
    if kind in _WHOLE:
        return f"CAST({expression} AS BIGINT)"
    raise UserError(
        f"{where}: the event time '{expression}' is of type {kind}; it must be a TIMESTAMP, or whole milliseconds"
        " since 1970 as BIGINT: use to_timestamp(...) or CAST(... AS TIMESTAMP)"
    )


def micros_sql(frame: DataFrame, expression: str, where: str) -> str:
    """SQL of an event time (accepted by `millis_sql`) in microseconds, NULL when that exceeds 64 bits."""
    if _kind(frame, expression, where) in _WHOLE:
        return f"try_multiply(CAST({expression} AS BIGINT), 1000L)"
    return f"unix_micros(CAST({expression} AS TIMESTAMP))"


def _kind(frame: DataFrame, expression: str, where: str) -> str:
    with explained(where, frame.columns):
        return str(frame.select(expr(expression).alias(EVENT_TIME)).dtypes[0][1])
