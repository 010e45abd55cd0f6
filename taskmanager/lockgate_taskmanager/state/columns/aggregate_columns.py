"""The aggregates of many rows: one column per part, folded a batch at a time. The owner decides what a row means."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate

from lockgate_taskmanager.state.columns.folded import Column, Freeze, FrozenColumn
from lockgate_taskmanager.state.layout import Fold, Part, parts
from lockgate_taskmanager.task.program import DataError, UserError

Array = Any  # numpy.ndarray
_MOST_LEFT = 32  # times what a round has folded: beyond that, few rows come often


class AggregateColumns:
    """Columns of all parts of an operator's aggregates; row i of each belongs together."""

    def __init__(self, operator: KeyedAggregate, schema: pa.Schema) -> None:
        """schema: of the partial table, see `layout`. Raises UserError when a column or type does not fit."""
        self._operator = operator
        self._schema = schema
        self._parts = parts(operator)
        self._columns = tuple(_column(part, operator.aggregates[part.aggregate], schema) for part in self._parts)
        self._scratch = np.zeros(0, np.int64)
        self.fields = tuple(
            pa.field(aggregate.output, self._type_of(i)) for i, aggregate in enumerate(operator.aggregates)
        )

    def reserve(self, count: int) -> None:
        """Makes room for `count` rows in all."""
        for column in self._columns:
            column.reserve(count)
        if len(self._scratch) < count:
            self._scratch = np.zeros(max(1024, 2 * count), np.int64)

    def fold(self, rows: Array, partial: pa.RecordBatch) -> Array | None:
        """Folds a partial into each of `rows`, which have room and may come more than once. Raises DataError.

        Returns the positions in `rows` that stand for every row once, None when all are distinct.
        """
        columns = [partial.column(part.column) for part in self._parts]
        last: Array | None = None
        pending = np.arange(len(rows))
        while len(pending):
            chosen = rows[pending]
            self._scratch[chosen] = pending
            winners = self._scratch[chosen] == pending  # one occurrence of each row
            if winners.all() and last is None:
                self._fold_distinct(rows, columns)
                return None
            here = pending[winners]
            last = here if last is None else last
            self._fold_distinct(rows[here], _taken(columns, here))
            pending = pending[~winners]
            if len(pending) > _MOST_LEFT * len(here):
                self._fold_often(rows[pending], _taken(columns, pending))
                break
        return last

    def results(self, rows: Array) -> list[pa.Array]:
        """The values of the aggregates for `rows`, one array for each of `fields`."""
        arrays: list[pa.Array] = []
        at = 0
        for aggregate in self._operator.aggregates:
            arrays.append(self._columns[at].take(rows))
            at += 1
            if aggregate.function is AggregateFunction.AVG:
                arrays[-1] = _quotient(arrays[-1], self._columns[at].take(rows))
                at += 1
        return arrays

    def added_up(self, pieces: Iterable[tuple[Array, Array]], count: int) -> AggregateColumns:
        """New columns of `count` rows. pieces: pairs of new rows (distinct) and the old rows folded into them."""
        total = AggregateColumns(self._operator, self._schema)
        total.reserve(count)
        for new, old in pieces:
            total._fold_distinct(new, [column.take(old) for column in self._columns])
        return total

    def over_ranges(self, first: Array, counts: Array) -> AggregateColumns:
        """New columns with a row for each range of old rows, folded in order. counts: of its rows, from `first` on.

        Spans of 1, 2, 4 ... rows are folded once for all the ranges that have them, and a range is at most one span of
        each length: long ranges take few steps. No span reaches beyond a range: what no range has cannot overflow.
        """
        total = AggregateColumns(self._operator, self._schema)
        total.reserve(len(first))
        lengths = [1 << level for level in range(int(counts.max(initial=0)).bit_length())]
        used = [np.flatnonzero(counts & length) for length in lengths]  # the ranges that have a span of this length
        starts = [first[which] + counts[which] % length for which, length in zip(used, lengths, strict=True)]
        needed = [np.zeros(0, np.int64)]  # starts of the spans, the longest first
        for start, length in zip(reversed(starts), reversed(lengths), strict=True):
            is_needed = np.zeros((first + counts).max(), np.bool_)
            for some in (start, needed[-1], needed[-1] + length):
                is_needed[some] = True
            needed.append(np.flatnonzero(is_needed))
        spans, place = self, np.arange((first + counts).max(initial=0))  # place: the row of a span in `spans`
        for which, start, length in zip(used, starts, lengths, strict=True):
            if length > 1:
                mine = needed.pop()
                pairs = ((np.arange(len(mine)), place[half]) for half in (mine, mine + length // 2))
                spans, place = spans.added_up(pairs, len(mine)), place.copy()
                place[mine] = np.arange(len(mine))
            else:
                needed.pop()
            total._fold_distinct(which, [column.take(place[start]) for column in spans._columns])
        return total

    def take_in(self, rows: Array, others: Array) -> None:
        """Folds each of `others` into the row beside it in `rows`, which may come more than once.

        others: distinct, and none of `rows`; their values are lost.
        """
        self._take_in(rows, self, others)

    def _fold_often(self, rows: Array, values: Sequence[pa.Array]) -> None:
        """Folds a value into each of `rows`, of which few come often."""
        rest = AggregateColumns(self._operator, self._schema)
        rest.reserve(len(rows))
        places = np.arange(len(rows))
        rest._fold_distinct(places, values)
        self._take_in(rows, rest, places)

    def _take_in(self, rows: Array, held: AggregateColumns, others: Array) -> None:
        """The same as `take_in` with `others` in `held`: neighbours are added up, then pairs of these, in few steps."""
        if not len(rows):
            return
        order = np.argsort(rows, kind="stable")
        rows, others = rows[order], others[order]
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        distinct, counts = rows[first], np.diff(np.append(first, len(rows)))
        rank = np.arange(len(rows)) - np.repeat(first, counts)  # among those for the same row
        while rank.any():
            is_left = rank % 2 == 0
            left = np.flatnonzero(is_left[:-1] & (rank[1:] > 0))
            held._fold_distinct(others[left], [column.take(others[left + 1]) for column in held._columns])
            others, rank = others[is_left], rank[is_left] // 2
        self._fold_distinct(distinct, [column.take(others) for column in held._columns])

    def reset(self, rows: Array, output: str = "") -> None:
        """Makes `rows` as they were before the first fold; only in one aggregate, if it is named."""
        for part, column in zip(self._parts, self._columns, strict=True):
            if output in ("", self._operator.aggregates[part.aggregate].output):
                column.reset(rows)

    def pending_of(self, rows: Array) -> Array:
        """With `layout.with_pending`: the records in each of `rows` since it last fired."""
        return self._columns[-1].take(rows).to_numpy(zero_copy_only=False)

    @property
    def bounds(self) -> tuple[str, str]:
        """With `layout.with_bounds`: the columns of the partial that hold the first and the last time."""
        return self._parts[-2].column, self._parts[-1].column

    def bounds_of(self, rows: Array) -> tuple[Array, Array]:
        """With `layout.with_bounds`: first and last time of `rows`, milliseconds."""
        first, last = (column.take(rows).to_numpy(zero_copy_only=False) for column in self._columns[-2:])
        return first, last

    def freeze(self, count: int, reader: Freeze) -> tuple[tuple[str, FrozenColumn], ...]:
        """The first `count` rows as they are now, with the names they are stored under. Copies nothing."""
        names = [f"{self._operator.aggregates[part.aggregate].output}#{part.fold.value}" for part in self._parts]
        return tuple((name, column.freeze(count, reader)) for name, column in zip(names, self._columns, strict=True))

    def restore(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Replaces everything by stored batches with one column for each part, in order."""
        for number, column in enumerate(self._columns):
            column.restore([batch.column(number) for batch in batches])

    def _fold_distinct(self, rows: Array, columns: Sequence[pa.Array]) -> None:
        for part, column, values in zip(self._parts, self._columns, columns, strict=True):
            try:
                column.merge(rows, values)
            except DataError as error:
                output = self._operator.aggregates[part.aggregate].output
                raise DataError(f"aggregate '{output}': {error}") from error

    def _type_of(self, aggregate: int) -> pa.DataType:
        if self._operator.aggregates[aggregate].function is AggregateFunction.AVG:
            return pa.float64()
        return next(c.type for p, c in zip(self._parts, self._columns, strict=True) if p.aggregate == aggregate)


def _taken(columns: Sequence[pa.Array], places: Array) -> list[pa.Array]:
    positions = pa.array(places)
    return [column.take(positions) for column in columns]


def field_of(schema: pa.Schema, name: str) -> pa.Field:
    """A column of the partial table. Raises UserError when there is none."""
    index = schema.get_field_index(name)
    if index < 0:
        raise UserError(f"the input has no column '{name}'; its columns are {', '.join(schema.names)}")
    return pa.field(name, schema.field(index).type)


def _quotient(sums: pa.Array, counts: pa.Array) -> pa.Array:
    return pc.divide(sums.cast(pa.float64()), counts.cast(pa.float64()))


def _column(part: Part, aggregate: Aggregate, schema: pa.Schema) -> Column:
    kind = pa.int64() if part.fold is Fold.COUNT else field_of(schema, part.column).type
    try:
        return Column(part.fold, kind)
    except UserError as error:
        raise UserError(f"aggregate '{aggregate.output}': {error}") from error
