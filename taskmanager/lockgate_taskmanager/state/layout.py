"""The columns of partial aggregates: what Spark computes before the exchange and the state folds after it.

A partial table has the key columns, then `__hash` (int64, Spark's xxhash64 of the keys; modulo max_parallelism it is
the key group), `__rows` (int64, input rows behind the partial) and one column per part. An aggregate has one part
(count, sum, min, max) or two (avg: sum and count).

With windows there is a column `__pane` (int64, see `windows.shape`) behind the hash: the start of the pane that the
rows lie in, in milliseconds, NULL for rows without a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate

HASH = "__hash"
ROWS = "__rows"
PANE = "__pane"
EVENT_TIME = "__event_time"  # milliseconds; of rows of a join, else only in Spark, before the aggregation
EVENT_MICROS = "__lockgate_micros"  # the same, of rows of a join, as exactly as Spark has it; NULL beyond its range
FIRST_TIME, LAST_TIME = "__first", "__last"  # of a session
WINDOW_START = "window_start"
WINDOW_END = "window_end"
IS_EARLY = "is_early"  # result of a window with a trigger that is not the final one
PENDING = "__pending"  # records of a window with a trigger since it last fired


class Fold(Enum):
    """How a part of a partial is folded into the state."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"


SESSION_FIRST = f"{FIRST_TIME}#{Fold.MIN.value}"
SESSION_END = f"{LAST_TIME}#{Fold.MAX.value}"
"""Column of stored sessions: the last time of each, by which they are purged."""


def counts(names: Iterable[str]) -> list[str]:
    """Those of stored columns that are counts, and so are never NULL."""
    return [name for name in names if name.endswith(f"#{Fold.COUNT.value}")]


@dataclass(frozen=True, slots=True)
class Part:
    """One column of the partial table and of the state.

    aggregate: index into `KeyedAggregate.aggregates`; column: its name in the partial table.
    """

    aggregate: int
    fold: Fold
    column: str


def with_bounds(operator: KeyedAggregate) -> KeyedAggregate:
    """The operator with two more aggregates: the first and the last event time, which session windows need."""
    first = Aggregate(FIRST_TIME, AggregateFunction.MIN, EVENT_TIME)
    last = Aggregate(LAST_TIME, AggregateFunction.MAX, EVENT_TIME)
    return replace(operator, aggregates=(*operator.aggregates, first, last))


def with_pending(operator: KeyedAggregate) -> KeyedAggregate:
    """The operator with one more aggregate: the number of records since the last firing, which triggers need."""
    pending = Aggregate(PENDING, AggregateFunction.COUNT)
    return replace(operator, aggregates=(*operator.aggregates, pending))


_FOLDS: dict[AggregateFunction, tuple[Fold, ...]] = {
    AggregateFunction.COUNT: (Fold.COUNT,),
    AggregateFunction.SUM: (Fold.SUM,),
    AggregateFunction.MIN: (Fold.MIN,),
    AggregateFunction.MAX: (Fold.MAX,),
    AggregateFunction.AVG: (Fold.SUM, Fold.COUNT),
}


def parts(operator: KeyedAggregate) -> tuple[Part, ...]:
    """The parts of an aggregate operator, in the order of its aggregates."""
    found: list[Part] = []
    for index, aggregate in enumerate(operator.aggregates):
        for fold in folds(aggregate):
            counts_rows = fold is Fold.COUNT and not aggregate.input
            found.append(Part(index, fold, ROWS if counts_rows else f"__p{len(found)}"))
    return tuple(found)


def folds(aggregate: Aggregate) -> tuple[Fold, ...]:
    """The parts one aggregate consists of; empty for a function this version does not know."""
    return _FOLDS.get(aggregate.function, ())
