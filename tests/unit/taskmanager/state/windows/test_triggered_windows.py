"""Windows with a trigger against a naive model in every state backend: early results, restores, rescaling."""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CumulatingWindow,
    EarlyFiringWindow,
    KeyedAggregate,
    OperatorState,
    SlidingWindow,
    TriggeredWindow,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state import firing
from lockgate_taskmanager.state.factory import AggregateStores
from lockgate_taskmanager.state.store import ProcessingTimeStore
from lockgate_taskmanager.state.windows import triggered_database
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

from tests.state_homes import BACKENDS, GROUPS, TestingBackend

HOMES = ("filesystem, incremental", "rocksdb")
SIZE, PAUSE = 10, 1000
TUMBLING = TumblingWindow(SIZE)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        *((name, pa.int64()) for name in ("__hash", "__pane", "__rows", "__p1", "__p2")),
        ("__p3", "f8"),
    ]
)
Record = tuple[str | None, int, int]  # key, event time, value
Row = tuple[str | None, int, bool, int, int | None, int | None, float | None]
Bounded = tuple[str | None, int, int, bool, int, int | None, int | None, float | None]
Name = tuple[str | None, int, int]  # key, start and end
SHAPES = {
    "tumbling": (SIZE, SIZE, 0, False),
    "sliding": (12, 4, 1, False),
    "uneven": (7, 5, 2, False),  # panes of 1
    "cumulating": (12, 4, 3, True),
}


def operator(kind: Any, lateness_ms: int = 0) -> KeyedAggregate:
    aggregates = (
        Aggregate("n", AggregateFunction.COUNT, ""),
        Aggregate("s", AggregateFunction.SUM, "v"),
        Aggregate("hi", AggregateFunction.MAX, "v"),
        Aggregate("mean", AggregateFunction.AVG, "v"),
    )
    return KeyedAggregate(("k",), aggregates, Window(kind, "at", lateness_ms))


def trigger(every_count: int = 0, every_ms: int = 0, *, purge: bool = False) -> TriggeredWindow:
    return TriggeredWindow(SIZE, 0, every_count, every_ms, purge)


def hash_of(key: str | None) -> int:
    return sum(map(ord, key or "")) * 0x9E3779B97F4A7C15 % 2**63


def partial(records: list[Record], kind: Any = TUMBLING) -> pa.Table:
    """What Spark makes of a batch."""
    groups: dict[Any, list[int]] = defaultdict(list)
    shape = shape_of(Window(kind))
    for key, time, value in records:
        groups[key, time - (time - shape.offset_ms) % shape.pane_ms].append(value)
    rows = [(k, hash_of(k), pane, len(v), sum(v), max(v), float(sum(v))) for (k, pane), v in groups.items()]
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    counts = pa.array([row[3] for row in rows], pa.int64())
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays([*arrays, counts], schema=SCHEMA.append(pa.field("__p4", pa.int64())))


def rows_of(*tables: pa.Table) -> list[Row]:
    found = []
    for row in (row for table in tables for row in table.to_pylist()):
        start = round((row["window_start"] - EPOCH).total_seconds() * 1000)
        assert row["window_end"] - row["window_start"] == datetime.timedelta(milliseconds=SIZE)
        found.append((row["k"], start, row["is_early"], row["n"], row["s"], row["hi"], row["mean"]))
    return sorted(found, key=repr)


def bounded(*tables: pa.Table) -> list[Bounded]:
    """The same with the ends of windows of any size."""
    found = []
    for row in (row for table in tables for row in table.to_pylist()):
        start, end = (round((row[name] - EPOCH).total_seconds() * 1000) for name in ("window_start", "window_end"))
        found.append((row["k"], start, end, row["is_early"], row["n"], row["s"], row["hi"], row["mean"]))
    return sorted(found, key=repr)


class Naive:
    """Every record by key and window, and those since the last firing."""

    def __init__(self, kind: EarlyFiringWindow, lateness_ms: int) -> None:
        self.kind, self.lateness = kind, lateness_ms
        self.all: dict[Name, list[int]] = defaultdict(list)
        self.new: dict[Name, list[int]] = defaultdict(list)
        self.watermark, self.clock, self.late = -1, -1, 0

    def windows(self, time: int) -> list[tuple[int, int]]:
        """Those that hold a time, one by one."""
        size, slide, offset = self.kind.size_ms, self.kind.slide_ms, self.kind.offset_ms
        if self.kind.is_cumulating:
            start = time - (time - offset) % size
            return [(start, start + step) for step in range(slide, size + 1, slide) if time < start + step]
        return [(end - size, end) for end in range(time + 1, time + size + 1) if (end - size - offset) % slide == 0]

    def is_over(self, name: Name) -> bool:
        return name[2] <= self.watermark + 1

    def row(self, name: Name, *, early: bool) -> Bounded:
        values = (self.new if self.kind.purge else self.all)[name]
        if early or self.kind.purge:
            self.new[name] = []
        if not values:
            return (*name, early, 0, None, None, None)
        return (*name, early, len(values), sum(values), max(values), sum(values) / len(values))

    def merge(self, records: list[Record]) -> list[Bounded]:
        touched = set()
        for key, time, value in records:
            kept = [(start, end) for start, end in self.windows(time) if end + self.lateness > self.watermark + 1]
            self.late += not kept
            for bounds in kept:
                name = (key, *bounds)
                self.all[name].append(value)
                self.new[name].append(value)
                touched.add(name)
        again = [self.row(name, early=False) for name in touched if self.is_over(name)]
        full = [name for name in touched if 0 < self.kind.every_count <= len(self.new[name])]
        return again + [self.row(name, early=True) for name in full if not self.is_over(name)]

    def tick(self, unix_ms: int) -> list[Bounded]:
        before, self.clock = self.clock, unix_ms
        if before < 0 or not self.kind.every_ms or unix_ms // PAUSE == before // PAUSE:
            return []
        return [self.row(name, early=True) for name in list(self.new) if self.new[name] and not self.is_over(name)]

    def advance(self, watermark: int) -> list[Bounded]:
        before, self.watermark = self.watermark, watermark
        return [self.row(name, early=False) for name in list(self.all) if before + 1 < name[2] <= watermark + 1]


class Subtasks:
    """The stores of all key groups."""

    def __init__(self, testing: TestingBackend, aggregation: KeyedAggregate) -> None:
        self.testing, self.aggregation, self.number, self.late = testing, aggregation, 0, 0
        self.parts: list[tuple[range, Any]] = [(range(GROUPS), fresh(testing, aggregation))]

    def merge(self, records: list[Record]) -> list[pa.Table]:
        found = []
        for groups, store in self.parts:
            mine = [record for record in records if hash_of(record[0]) % GROUPS in groups]
            assert self.aggregation.window is not None
            merged = store.merge(partial(mine, self.aggregation.window.kind))
            assert merged.records == len(mine)
            self.late += merged.dropped
            found.append(merged.changed)
        return found

    def tick(self, unix_ms: int) -> list[pa.Table]:
        stores = [store for _, store in self.parts if isinstance(store, ProcessingTimeStore)]
        found = []
        for store in stores:
            wakes_at, fired = store.wakes_at(), store.tick(unix_ms)
            assert fired is None or (wakes_at is not None and wakes_at <= unix_ms), "it is called in time"
            found += [] if fired is None else [fired, *rest(store)]
        return found

    def advance(self, watermark: int) -> list[pa.Table]:
        return [table for _, store in self.parts for table in (store.advance(watermark), *rest(store))]

    def restart(self, cuts: list[int]) -> None:
        """From a checkpoint, which may be an increment. cuts: where the key groups of the next subtasks begin."""
        self.number += 1
        order = SnapshotOrder(self.number - 1) if self.number > 1 and len(self.parts) == 1 else SnapshotOrder()
        states = [self.testing.stored(store, self.number, order, at) for at, (_, store) in enumerate(self.parts)]
        bounds = [0, *cuts, GROUPS]
        ranges = [range(first, behind) for first, behind in pairwise(bounds)]
        self.parts = [(mine, restored(self.testing, self.aggregation, states, mine, self.number)) for mine in ranges]


def fresh(testing: TestingBackend, aggregation: KeyedAggregate) -> Any:
    testing.made.append(AggregateStores(testing.maker, testing.spec(aggregation)).fresh(partial([]).schema))
    return testing.made[-1]


def restored(
    testing: TestingBackend,
    aggregation: KeyedAggregate,
    states: list[OperatorState],
    groups: range = range(GROUPS),
    number: int = 1,
) -> Any:
    stores = AggregateStores(testing.maker, testing.spec(aggregation, groups))
    testing.made.append(stores.restored(states, number))
    return testing.made[-1]


def rest(store: Any) -> Iterator[pa.Table]:
    while store.has_more:
        assert store.is_settled
        yield store.go_on()


@pytest.fixture(params=HOMES)
def testing(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = TestingBackend(BACKENDS[request.param], tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("purge", [False, True])
@pytest.mark.parametrize(("every_count", "every_ms"), [(3, 0), (0, PAUSE), (4, PAUSE)])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_are_those_of_a_naive_model(
    testing: TestingBackend, monkeypatch: pytest.MonkeyPatch, shape: str, every_count: int, every_ms: int, purge: bool
) -> None:
    rng = random.Random(f"{shape} {every_count} {every_ms} {purge}")
    if every_ms:
        monkeypatch.setattr(firing, "ROWS_AT_ONCE", 8)  # merges are in parts
    lateness = 0 if purge or every_count == 4 else 12
    kind = EarlyFiringWindow(*SHAPES[shape], every_count, every_ms, purge)
    stored: Any = trigger(every_count, every_ms, purge=purge) if shape == "tumbling" else kind
    naive, subtasks = Naive(kind, lateness), Subtasks(testing, operator(stored, lateness))
    unix_ms, watermark, early, keys = 10_000, -1, 0, ["a", "b", "c", "dd", None]
    for step in range(30):
        unix_ms += rng.choice([0, 300, 700, 2500])
        assert bounded(*subtasks.tick(unix_ms)) == sorted(naive.tick(unix_ms), key=repr)
        size = rng.randint(0, 12)
        records = [
            (rng.choice(keys), max(0, watermark + rng.randint(-15, 25)), rng.randint(-9, 9)) for _ in range(size)
        ]
        wanted = sorted(naive.merge(records), key=repr)
        assert bounded(*subtasks.merge(records)) == wanted
        assert subtasks.late == naive.late
        early += sum(row[3] for row in wanted)
        if rng.random() < 0.4:
            watermark += rng.randint(0, 12)
            assert bounded(*subtasks.advance(watermark)) == sorted(naive.advance(watermark), key=repr)
        if step % 8 == 7:
            subtasks.restart(rng.choice([[], [5], [3, 9]]))
            naive.clock = -1
    watermark += 100
    assert bounded(*subtasks.advance(watermark)) == sorted(naive.advance(watermark), key=repr)
    assert early or every_ms
    if purge:
        assert not any(naive.new[name] for name in naive.all if not lateness), "pieces hold every record"


@pytest.mark.parametrize("purge", [False, True])
def test_early_results_build_up_or_are_pieces(testing: TestingBackend, purge: bool) -> None:
    store = fresh(testing, operator(trigger(2, purge=purge)))
    assert rows_of(store.merge(partial([("a", 1, 5)])).changed) == []
    assert rows_of(store.merge(partial([("a", 2, 7), ("b", 1, 1)])).changed) == [("a", 0, True, 2, 12, 7, 6.0)]
    again = ("a", 0, True, 3, 3, 1, 1.0) if purge else ("a", 0, True, 5, 15, 7, 3.0)
    assert rows_of(store.merge(partial([("a", 3, 1)] * 3)).changed) == [again]
    last = ("a", 0, False, 0, None, None, None) if purge else ("a", 0, False, 5, 15, 7, 3.0)
    assert rows_of(store.advance(SIZE)) == [last, ("b", 0, False, 1, 1, 1, 1.0)]


@pytest.mark.parametrize("kind", [SlidingWindow(6, 2), CumulatingWindow(6, 2)])
def test_each_of_a_records_windows_counts_its_own_records(testing: TestingBackend, kind: Any) -> None:
    """The early result of one takes nothing from the others, and late is what is too late for all."""
    is_cumulating = isinstance(kind, CumulatingWindow)
    store = fresh(testing, operator(EarlyFiringWindow(6, 2, 0, is_cumulating, 2, purge=True)))

    def counts(table: pa.Table) -> list[tuple[int, int, bool, int]]:
        return [row[1:5] for row in bounded(table)]

    store.merge(partial([("a", 0, 1)], kind))
    found = counts(store.merge(partial([("a", 2, 1)], kind)).changed)
    both = [(0, 4, True, 2), (0, 6, True, 2)] if is_cumulating else [(-2, 4, True, 2), (0, 6, True, 2)]
    assert found == both
    first = [(0, 2, False, 1)] if is_cumulating else [(-4, 2, False, 1)]
    assert counts(store.advance(1)) == first
    merged = store.merge(partial([("a", 1, 1)], kind))
    assert (merged.records, merged.dropped, merged.late) == (1, 0, None), "the later windows have it"
    store.advance(3)
    last = counts(store.advance(5))
    assert last == [(0, 6, False, 1)]
    late = store.merge(partial([("a", 1, 1)], kind))
    assert late.dropped == 1
    assert counts(late.late) == [(0, 6, False, 1)]


def test_too_many_changed_windows_are_found_again_by_looking_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triggered_database, "_MOST_NAMES", 3)
    monkeypatch.setattr(triggered_database, "ROWS_AT_ONCE", 2)
    testing = TestingBackend(BACKENDS["rocksdb"], tmp_path)
    store = fresh(testing, operator(trigger(every_ms=PAUSE)))
    try:
        store.tick(100)
        store.merge(partial([(f"k{number}", 10 * number, 1) for number in range(9)]))
        store.advance(29)  # of the last, three windows are over
        assert store.wakes_at() == PAUSE
        assert store.tick(PAUSE - 1) is None
        fired = [store.tick(PAUSE), *rest(store)]
        assert [row[:3] for row in rows_of(*fired)] == [(f"k{number}", 10 * number, True) for number in range(3, 9)]
        assert store.wakes_at() is None, "nothing is new"
        store.merge(partial([("k8", 80, 1)]))
        assert rows_of(store.tick(2 * PAUSE), *rest(store)) == [("k8", 80, True, 2, 2, 1, 1.0)]
    finally:
        testing.close()


def test_a_clock_that_is_set_back_makes_no_long_pause(testing: TestingBackend) -> None:
    store = fresh(testing, operator(trigger(every_ms=PAUSE)))
    store.tick(100 * PAUSE)
    store.merge(partial([("a", 1, 1)]))
    assert store.tick(5) is None
    assert store.wakes_at() == PAUSE
    assert rows_of(store.tick(PAUSE)) == [("a", 0, True, 1, 1, 1, 1.0)]


def test_the_trigger_may_change_but_not_whether_it_purges(testing: TestingBackend) -> None:
    store = fresh(testing, operator(trigger(5)))
    store.merge(partial([("a", 1, 1)] * 4))
    state = testing.stored(store)
    again = restored(testing, operator(trigger(3, PAUSE)), [state])
    assert rows_of(again.merge(partial([("a", 1, 1)])).changed) == [("a", 0, True, 5, 5, 1, 1.0)]
    for other in (trigger(5, purge=True), TumblingWindow(SIZE)):
        with pytest.raises(StateUnreadable):
            restored(testing, operator(other), [state])


def test_another_input_is_refused_after_a_restore(testing: TestingBackend) -> None:
    store = fresh(testing, operator(trigger(every_ms=PAUSE)))
    store.merge(partial([("a", 1, 1)]))
    again = restored(testing, operator(trigger(every_ms=PAUSE)), [testing.stored(store)])
    again.set_input_schema(partial([]).schema)
    with pytest.raises(UserError, match=r"the stored windows have the columns .*, the input now has"):
        again.set_input_schema(SCHEMA)


def test_columns_may_come_in_another_order_after_a_restore(testing: TestingBackend) -> None:
    store = fresh(testing, operator(trigger(every_ms=PAUSE)))
    store.merge(partial([("a", 1, 3)]))
    again = restored(testing, operator(trigger(every_ms=PAUSE)), [testing.stored(store)])
    given = partial([("a", 2, 4)])
    given = given.select(given.column_names[::-1])
    again.set_input_schema(given.schema)
    again.tick(0)
    again.merge(given)
    assert rows_of(again.tick(PAUSE), *rest(again)) == [("a", 0, True, 2, 7, 4, 3.5)]


def test_a_task_manager_that_does_not_know_triggers_refuses_them() -> None:
    """It sees a window without a kind: the field is one that its messages do not have."""
    with pytest.raises(UserError, match="of a kind that this task manager does not know; update it"):
        shape_of(Window(None, "at"))
