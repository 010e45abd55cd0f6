"""The interval join against nested loops over every record: out of order, late, restored and rescaled in the middle.

In memory and in RocksDB, and from one to the other through a savepoint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import IntervalJoin, JoinSide, OperatorState
from lockgate_taskmanager.state.join import join_database, join_heap, join_table
from lockgate_taskmanager.state.rocksdb import engine
from lockgate_taskmanager.task.program import SnapshotOrder
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

from tests.join_homes import HOMES, JoinFolder, count_of, join_folder
from tests.property.taskmanager.state.windows.window_homes import hash_of

GROUPS = 16
SCHEMAS = {
    side: pa.schema([("k", pa.string()), (value, pa.int64()), ("__hash", pa.int64()), ("__event_time", pa.int64())])
    for side, value in ((JoinSide.LEFT, "a"), (JoinSide.RIGHT, "b"))
}
Record = tuple[str | None, int | None]  # key, event time; a number tells records apart


def group_of(key: str | None) -> int:
    return hash_of(key) % GROUPS


def table(side: JoinSide, records: list[tuple[Record, int]]) -> pa.Table:
    rows = [(key, number, hash_of(key), time) for (key, time), number in records]
    columns = list(zip(*rows, strict=True)) or [()] * 4
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMAS[side], strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[side])


class Naive:
    """Every accepted record, joined with every other."""

    def __init__(self, operator: IntervalJoin) -> None:
        self.operator = operator
        self.records: dict[JoinSide, list[tuple[Record, int]]] = {side: [] for side in SCHEMAS}
        self.watermark = MIN_WATERMARK
        self.dropped = 0

    def add(self, side: JoinSide, records: list[tuple[Record, int]]) -> None:
        for record, number in records:
            if record[1] is None or record[1] <= self.watermark:
                self.dropped += 1
            else:
                self.records[side].append((record, number))

    def pairs(self) -> Counter[tuple[str, int, int]]:
        found: Counter[tuple[str, int, int]] = Counter()
        for (key, left), a in self.records[JoinSide.LEFT]:
            for (other, right), b in self.records[JoinSide.RIGHT]:
                if key is not None and key == other and left is not None and right is not None:
                    found[key, a, b] += left + self.operator.lower_ms <= right <= left + self.operator.upper_ms
        return +found

    def kept(self, side: JoinSide) -> int:
        """Rows that a partner may still come for."""
        reach = self.operator.upper_ms if side is JoinSide.LEFT else -self.operator.lower_ms
        here = [record for record, _ in self.records[side]]
        return sum(key is not None and time is not None and time + reach > self.watermark for key, time in here)


class Subtasks:
    """The subtasks of a join, each with its key groups. home: one of HOMES."""

    def __init__(self, operator: IntervalJoin, parallelism: int, home: str, folder: JoinFolder) -> None:
        self.operator, self.home, self.folder = operator, home, folder
        self.ranges = [range(i * GROUPS // parallelism, (i + 1) * GROUPS // parallelism) for i in range(parallelism)]
        self.stores = [folder.store(HOMES[home], operator, GROUPS, groups) for groups in self.ranges]

    def merge(self, side: JoinSide, records: list[tuple[Record, int]]) -> tuple[list[Any], int]:
        found, dropped = [], 0
        for store, groups in zip(self.stores, self.ranges, strict=True):
            if store.columns_of(side) is None:
                store.accept(side, SCHEMAS[side])
            mine = [record for record in records if group_of(record[0][0]) in groups]
            merged = store.merge(side, table(side, mine))
            assert merged.records == len(mine)
            dropped += merged.dropped
            for pairs in merged.pairs:
                assert pairs.schema.names == ["k", "a", "b"]
                found += [(row["k"], row["a"], row["b"]) for row in pairs.to_pylist()]
        return found, dropped

    def restored(self, parallelism: int, home: str, is_savepoint: bool) -> Subtasks:
        """Others that go on where these are. A change of home needs a savepoint."""
        order = SnapshotOrder(is_savepoint=is_savepoint or home != self.home)
        states: list[OperatorState] = []
        for number, store in enumerate(self.stores):
            states += self.folder.stored(HOMES[self.home], store, number + 1, order)
            store.close()
        fresh = Subtasks(self.operator, parallelism, home, self.folder)
        if states:
            for store in fresh.stores:
                store.restore(states, 1)
        return fresh

    def kept(self) -> int:
        """How many rows wait."""
        return sum(map(count_of, self.stores))


keys = st.sampled_from(["a", "b", "c", "dd", "eee", None])
times = st.one_of(st.none(), st.integers(-40, 120))
records = st.lists(st.tuples(keys, times), min_size=1, max_size=12)
sides = st.sampled_from([JoinSide.LEFT, JoinSide.RIGHT])
steps = st.lists(
    st.one_of(
        st.tuples(sides, records),
        st.integers(-50, 130),
        st.sampled_from(["end"]),
        st.tuples(st.just("restore"), st.integers(1, 3), st.sampled_from([*HOMES, ""]), st.booleans()),
    ),
    max_size=20,
)
bounds = st.one_of(
    st.just((0, 0)), st.tuples(st.integers(-30, 30), st.integers(0, 30)).map(lambda t: (t[0], t[0] + t[1]))
)


def in_memory(subtasks: Subtasks) -> int:
    """How many rows take memory."""
    rows: list[Any] = [side.rows for store in subtasks.stores for side in store.sides.values()]
    return sum(map(len, rows))


@contextmanager
def eager(is_eager: bool) -> Iterator[None]:
    """Rows move together, portions and blocks end, and ranges are removed wherever that can be."""
    with pytest.MonkeyPatch.context() as patch:
        if is_eager:
            for module, name, value in (
                (join_heap, "_FEW_ROWS", 0),
                (join_heap, "_AT_ONCE", 3),
                (join_heap, "_LEAST_COUNTED_MS", 1),
                (join_database, "_AT_ONCE", 3),
                (join_database, "_HEADS_AT_ONCE", 2),
                (join_database, "_BLOCKS_AT_ONCE", 2),
                (join_database, "_ROWS_A_CLEARING", 2),
                (join_table, "_TAIL_BYTES", 60),
                (join_table, "_BLOCK_BYTES", 100),
                (engine, "BYTES_AT_ONCE", 150),
            ):
                patch.setattr(module, name, value)
        yield


def agrees(limits: tuple[int, int], todo: list[Any], is_eager: bool, home: str) -> None:
    """A plan with nested loops."""
    operator = IntervalJoin(("k",), ("k",), "at", "at", *limits)
    found: list[Any] = []
    number = dropped = 0
    with join_folder() as folder, eager(is_eager):
        naive, subtasks = Naive(operator), Subtasks(operator, 2, home, folder)
        for step in todo:
            if isinstance(step, int):
                naive.watermark = max(naive.watermark, step)
            if isinstance(step, int) or step == "end":
                for store in subtasks.stores:
                    store.advance(MAX_WATERMARK if step == "end" else naive.watermark)
            elif step[0] == "restore":
                if all(store.columns_of(side) is None for store in subtasks.stores for side in SCHEMAS):
                    naive.watermark = MIN_WATERMARK  # there is no state without columns; sources tell it again
                subtasks = subtasks.restored(step[1], step[2] or subtasks.home, step[3])
                assert subtasks.kept() == sum(map(naive.kept, SCHEMAS))
            else:
                side, batch = step
                numbered = [(record, number + i) for i, record in enumerate(batch)]
                number += len(batch)
                naive.add(side, numbered)
                made, late = subtasks.merge(side, numbered)
                found += made
                dropped += late
            assert Counter(found) == naive.pairs(), "each pair once, as soon as both have come"
            assert dropped == naive.dropped
            if is_eager and subtasks.home == "memory":
                assert in_memory(subtasks) == sum(map(naive.kept, SCHEMAS)), "nothing is kept that no row needs"
        assert subtasks.kept() == sum(map(naive.kept, SCHEMAS)), "nothing is kept that no row needs"


@settings(max_examples=400, deadline=None)
@given(bounds, steps, st.booleans())
def test_the_join_agrees_with_nested_loops(limits: tuple[int, int], todo: list[Any], is_eager: bool) -> None:
    agrees(
        limits,
        [step for step in todo if "rocksdb" not in (step if isinstance(step, tuple) else ())],
        is_eager,
        "memory",
    )


@settings(max_examples=80, deadline=None)
@given(bounds, steps, st.booleans())
def test_in_rocksdb_and_from_one_home_to_the_other(limits: tuple[int, int], todo: list[Any], is_eager: bool) -> None:
    agrees(limits, todo, is_eager, "rocksdb")
