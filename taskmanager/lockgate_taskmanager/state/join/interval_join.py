"""The interval join of one subtask: rows of both sides wait until no partner can arrive any more.

    rows of a side --merge---> pairs with the rows of the other side that have arrived before
    watermark -----advance--> rows that are too old for any partner are dropped

The partner that arrives second makes the pair, so each pair is made once. A watermark w means that only rows with a
time above w may still arrive: a left row at l, with partners in [l + lower, l + upper], is kept until w reaches
l + upper, a right row at r until w reaches r - lower.

Candidates are found by whole milliseconds, which misses no partner. Whether two rows match is decided by microseconds,
if both rows have them: state of earlier versions does not.

The end of the input drops nothing: the memory is not needed then, and a drained job can go on from its savepoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState

from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.columns.arrays import numpy_of, one_batch
from lockgate_taskmanager.state.columns.keys import same_keys
from lockgate_taskmanager.state.event_clock import are_whole
from lockgate_taskmanager.state.join.join_spec import SIDES, JoinSpec
from lockgate_taskmanager.state.join.waiting import SideStores, WaitingRows, columns_of
from lockgate_taskmanager.state.layout import EVENT_MICROS, EVENT_TIME, HASH
from lockgate_taskmanager.state.store import FrozenStore
from lockgate_taskmanager.task.program import SnapshotOrder, UserError
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

Array = Any  # numpy.ndarray
_PAIRS_AT_ONCE = 1 << 18  # or somewhat more
_BYTES_AT_ONCE = 128 << 20


@dataclass(frozen=True, slots=True)
class Paired:
    """The result of a merge. records: rows merged; dropped: those that were late or without a time.

    pairs: with the other side's rows, in few large portions, because each costs a Spark job; computed lazily, so take
    them before the next merge.
    """

    records: int
    dropped: int
    pairs: Iterator[pa.Table]


class JoinedSide:
    """One side. keys: its key columns by position; first_ms, last_ms: where partners lie, from a row's own time on."""

    rows: WaitingRows  # from `JoinStore` on

    def __init__(self, operator: IntervalJoin, side: JoinSide, schema: pa.Schema) -> None:
        """schema: of the rows, with `__hash`, `__event_time` and `__lockgate_micros`.

        Raises UserError when a key is missing or nested.
        """
        is_left = side is JoinSide.LEFT
        lower, upper = operator.lower_ms, operator.upper_ms
        self.first_ms, self.last_ms = (lower, upper) if is_left else (-upper, -lower)
        self.incoming = schema
        self.schema = columns_of(schema)
        names = operator.left_keys if is_left else operator.right_keys
        self.keys = [_position(self.schema, name, side) for name in names]
        self.micros = self.schema.get_field_index(EVENT_MICROS)  # -1: in state of earlier versions

    def until(self, watermark: int) -> int:
        """Rows at or before this time can find no partner any more."""
        return max(watermark - self.last_ms, MIN_WATERMARK)


class JoinStore:
    """The store of an interval join. Used from the subtask's own thread. sides: those whose columns are known."""

    def __init__(self, spec: JoinSpec, stores: SideStores) -> None:
        """stores: of the rows of both sides."""
        self._spec = spec
        self._operator = spec.operator
        self._stores = stores
        self.sides: dict[JoinSide, JoinedSide] = {}
        self.watermark = MIN_WATERMARK

    @property
    def held_back_ms(self) -> int:
        """The delay of the output watermark: how much older than the watermark the times of a pair may be."""
        return max(0, self._operator.upper_ms, -self._operator.lower_ms)

    def columns_of(self, side: JoinSide) -> pa.Schema | None:
        """The input columns of a side; None while unknown."""
        known = self.sides.get(side)
        return None if known is None else known.incoming

    def accept(self, side: JoinSide, schema: pa.Schema) -> None:
        """Sets a side's columns, before its first rows. Raises UserError when they do not fit the other's, OSError."""
        joined = JoinedSide(self._operator, side, schema)
        self._add(side, joined, self._stores.fresh(self._spec.of(side), joined.schema))

    def _add(self, side: JoinSide, joined: JoinedSide, rows: WaitingRows) -> None:
        joined.rows = rows
        self.sides[side] = joined
        if len(self.sides) == len(SIDES):
            self._require_like_keys()

    def schema(self) -> pa.Schema | None:
        """Of the pairs; None while a side is not known. Raises UserError when both have a column of one name."""
        if len(self.sides) < len(SIDES):
            return None
        fields = [field for fields in self._output().values() for _, field in fields]
        names: dict[str, str] = {}
        for field in fields:
            if field.name.casefold() in names:
                raise UserError(
                    f"both sides of the join have a column '{field.name}': give one of them another name with "
                    "select(), or set left_prefix or right_prefix"
                )
            names[field.name.casefold()] = field.name
        return pa.schema(fields)

    def merge(self, side: JoinSide, table: pa.Table) -> Paired:
        """Merges rows of one side. Cost grows with these and their pairs, not with the rows held.

        Those at or before the watermark, and those without a time, are dropped and counted. A row with a NULL in its
        key has no partner.
        """
        mine, other = self.sides[side], self.sides.get(_other(side))
        if not table.num_rows:
            return Paired(0, 0, iter(()))
        batch = one_batch(table)
        times = batch.column(EVENT_TIME)
        in_time = pc.fill_null(pc.greater(times, self.watermark), False).to_numpy(zero_copy_only=False)
        dropped = batch.num_rows - int(np.count_nonzero(in_time))
        for key in mine.keys:
            in_time &= pc.is_valid(batch.column(key)).to_numpy(zero_copy_only=False)
        if not in_time.all():
            batch = batch.filter(pa.array(in_time))
        hashes, moments = numpy_of(batch, HASH), numpy_of(batch, EVENT_TIME)
        rows = batch.select(mine.schema.names)
        waits = moments > mine.until(self.watermark)
        if waits.all():
            mine.rows.add(rows, hashes, moments)
        else:  # the partners of some are in the past alone
            mine.rows.add(rows.filter(pa.array(waits)), hashes[waits], moments[waits])
        pairs = iter(()) if other is None else _gathered(self._pairs(side, rows, hashes, moments))
        return Paired(table.num_rows, dropped, pairs)

    def advance(self, watermark: int) -> None:
        """Advances event time to `watermark`. MAX_WATERMARK, the end of the input, has no effect."""
        if watermark == MAX_WATERMARK or watermark <= self.watermark:
            return
        self.watermark = watermark
        for side in self.sides.values():
            side.rows.forget(side.until(watermark))

    def snapshot(self, order: SnapshotOrder) -> tuple[FrozenStore, ...]:
        """The known sides as they are now, to be stored in this order. Raises OSError."""
        frozen: list[FrozenStore] = []
        for name, side in reversed(self.sides.items()):
            frozen.insert(0, side.rows.snapshot(order, self._about(name, side), later=tuple(frozen)))
        return tuple(frozen)

    def restore(self, states: Sequence[OperatorState], checkpoint_id: int) -> None:
        """Restores the state of one or several subtasks. Raises StateUnreadable, OSError, UserError."""
        times, purges = [], []
        for side, stored in self._spec.by_side(states).items():
            rows = self._stores.restored(self._spec.of(side), stored, checkpoint_id)
            sources = rows.restored_from
            self._add(side, JoinedSide(self._operator, side, sources[0].partial_schema), rows)
            is_whole = are_whole(sources, self._spec.key_groups)
            times.append(min(about.watermark for about in sources) if is_whole else MIN_WATERMARK)
            if len(sources) == 1:
                purges.append((self.sides[side], sources[0].purged_until))
        self.watermark = min(times)
        for joined, until in purges:  # rows purged before they were stored stay purged
            if joined.until(self.watermark) < until:
                joined.rows.purge(until)

    def close(self) -> None:
        """Releases memory and scratch files. Idempotent."""
        for side in self.sides.values():
            side.rows.close()

    def _pairs(self, side: JoinSide, rows: pa.RecordBatch, hashes: Array, times: Array) -> Iterator[pa.Table]:
        mine, other = self.sides[side], self.sides[_other(side)]
        schema, output = self.schema(), self._output()
        for positions, found in other.rows.near(hashes, times + mine.first_ms, times + mine.last_ms):
            here, there = rows.take(pa.array(positions)), found
            same = same_keys(here.select(mine.keys), there.select(other.keys))
            if mine.micros >= 0 and other.micros >= 0:
                same &= _are_near(mine, here.column(mine.micros), there.column(other.micros))
            if not same.all():
                here, there = here.filter(pa.array(same)), there.filter(pa.array(same))
            both = {side: here, _other(side): there}
            columns = [both[name].column(position) for name in SIDES for position, _ in output[name]]
            yield pa.Table.from_arrays(columns, schema=schema)

    def _output(self) -> dict[JoinSide, list[tuple[int, pa.Field]]]:
        """Which columns of each side are in a pair, by position, and what they are called there."""
        left, right = (self.sides[name] for name in SIDES)
        pairs = list(zip(left.keys, right.keys, strict=True))
        like = [pair for pair in pairs if _name(left, pair[0]).casefold() == _name(right, pair[1]).casefold()]
        shared, twice = {item for item, _ in like}, {item for _, item in like}
        operator = self._operator
        return {
            JoinSide.LEFT: [
                (at, field if at in shared else field.with_name(operator.left_prefix + field.name))
                for at, field in enumerate(left.schema)
                if at != left.micros
            ],
            JoinSide.RIGHT: [
                (at, field.with_name(operator.right_prefix + field.name))
                for at, field in enumerate(right.schema)
                if at not in twice and at != right.micros
            ],
        }

    def _require_like_keys(self) -> None:
        left, right = (self.sides[name] for name in SIDES)
        for mine, other in zip(left.keys, right.keys, strict=True):
            ours, theirs = left.schema.field(mine), right.schema.field(other)
            if ours.type != theirs.type:
                raise UserError(
                    f"the keys of the two sides differ: left '{ours.name}' is {ours.type}, right '{theirs.name}' is "
                    f"{theirs.type}; give them the same type with CAST before key_by()"
                )

    def _about(self, name: JoinSide, side: JoinedSide) -> About:
        return self._spec.of(name).about(side.incoming, self.watermark, side.until(self.watermark))


def _gathered(pairs: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The pairs combined into portions of a useful size, however few each look-up finds."""
    found: list[pa.Table] = []
    count = size = 0
    for pair in pairs:
        found.append(pair)
        count, size = count + pair.num_rows, size + pair.nbytes
        if count >= _PAIRS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield pa.concat_tables(found).combine_chunks()
            found, count, size = [], 0, 0
    if count:
        yield pa.concat_tables(found).combine_chunks()


def _are_near(mine: JoinedSide, here: pa.Array, there: pa.Array) -> Array:
    """Mask: the time there is in the interval around the one here. Both in microseconds, which NULL is beyond."""
    apart = pc.subtract(there, here)
    is_near = pc.and_(pc.greater_equal(apart, 1000 * mine.first_ms), pc.less_equal(apart, 1000 * mine.last_ms))
    return pc.fill_null(is_near, True).to_numpy(zero_copy_only=False)


def _other(side: JoinSide) -> JoinSide:
    return JoinSide.RIGHT if side is JoinSide.LEFT else JoinSide.LEFT


def _name(side: JoinedSide, position: int) -> str:
    return str(side.schema.field(position).name)


def _position(schema: pa.Schema, key: str, side: JoinSide) -> int:
    """Of a key column; as in Spark, whatever its case."""
    for position, field in enumerate(schema):
        if field.name.casefold() == key.casefold():
            if pa.types.is_nested(field.type):
                raise UserError(f"column '{field.name}' of type {field.type} cannot be a key; use a plain value")
            return position
    raise UserError(
        f"the {side.name.lower()} side of the join has no column '{key}'; its columns are: {', '.join(schema.names)}"
    )
