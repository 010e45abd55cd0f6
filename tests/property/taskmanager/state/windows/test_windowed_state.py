"""Windowed state against a naive model that keeps every record: out of order, late, restored in the middle."""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CumulatingWindow,
    KeyedAggregate,
    SlidingWindow,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

from tests.property.taskmanager.state.windows.window_homes import again, fired, hash_of, keep_longer, opened, split_up

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("__hash", pa.int64()),
        ("__pane", pa.int64()),
        ("__rows", pa.int64()),
        ("__p1", pa.int64()),
        ("__p2", pa.int64()),
    ]
)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
Record = tuple[str | None, int | None, int]  # key, event time, value
Kind = TumblingWindow | SlidingWindow | CumulatingWindow
Result = tuple[str | None, int, int]  # key, start, end


def operator(kind: Kind, lateness: int) -> KeyedAggregate:
    aggregates = (
        Aggregate("n", AggregateFunction.COUNT, ""),
        Aggregate("s", AggregateFunction.SUM, "v"),
        Aggregate("hi", AggregateFunction.MAX, "v"),
    )
    return KeyedAggregate(("k",), aggregates, Window(kind, "ts", lateness))


def partial(records: list[Record], pane_ms: int, offset: int) -> pa.Table:
    """What Spark makes of a batch: one row for each key and pane."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for key, time, value in records:
        groups[key, None if time is None else time - (time - offset) % pane_ms].append(value)
    columns = list(zip(*[(k, hash_of(k), p, len(v), sum(v), max(v)) for (k, p), v in groups.items()], strict=True))
    arrays = [pa.array(column, field.type) for column, field in zip(columns or [[]] * 6, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def as_pairs(table: pa.Table) -> list[tuple[Result, tuple[int, int, int]]]:
    rows = []
    for row in table.to_pylist():
        start, end = (round((row[name] - EPOCH).total_seconds() * 1000) for name in ("window_start", "window_end"))
        rows.append(((row["k"], start, end), (row["n"], row["s"], row["hi"])))
    assert len({item for item, _ in rows}) == len(rows), "a window is emitted once"
    return rows


class Naive:
    """Every accepted record, assigned to windows one by one."""

    def __init__(self, kind: Kind, lateness: int) -> None:
        self.size = kind.size_ms
        self.slide = kind.slide_ms if isinstance(kind, SlidingWindow) else kind.size_ms
        self.step = kind.step_ms if isinstance(kind, CumulatingWindow) else 0
        self.offset, self.lateness = kind.offset_ms, lateness
        self.windows: dict[Result, list[int]] = defaultdict(list)
        self.fired: set[Result] = set()
        self.watermark = self.gone = MIN_WATERMARK
        self.dropped = 0

    def change(self, lateness: int) -> None:
        """What was let go of does not come back."""
        self.gone, self.lateness = max(self.gone, self.watermark - self.lateness), lateness

    def is_kept(self, end: int) -> bool:
        return end - 1 > max(self.gone, self.watermark - self.lateness)

    def ends(self, time: int) -> list[int]:
        return [end for _, end in self.bounds(time)]

    def bounds(self, time: int) -> list[tuple[int, int]]:
        """Start and end of each window that holds a time."""
        last = time - (time - self.offset) % self.slide
        if self.step:
            ends = range(last + self.step, last + self.size + 1, self.step)
            return [(last, end) for end in ends if end > time]
        return [(start, start + self.size) for start in range(last, time - self.size, -self.slide)]

    def add(self, records: list[Record]) -> dict[Result, tuple[int, int, int]]:
        again = set()
        for key, time, value in records:
            if time is None or not self.is_kept(max(self.ends(time))):
                self.dropped += 1
                continue
            for start, end in self.bounds(time):
                name = (key, start, end)
                if self.is_kept(end):
                    self.windows[name].append(value)
                    if end - 1 <= self.watermark:
                        again.add(name)
        return {name: self.value(name) for name in again}

    def advance(self, watermark: int) -> dict[Result, tuple[int, int, int]]:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        due = {name for name in self.windows if before < name[2] - 1 <= self.watermark}
        return {name: self.value(name) for name in due}

    def value(self, name: Result) -> tuple[int, int, int]:
        values = self.windows[name]
        return len(values), sum(values), max(values)


kinds = st.sampled_from(
    [
        TumblingWindow(10),
        TumblingWindow(7, 3),
        SlidingWindow(10, 2),
        SlidingWindow(6, 4, 1),
        SlidingWindow(9, 9),
        CumulatingWindow(12, 3),
        CumulatingWindow(10, 5, 7),
    ]
)
keys = st.sampled_from(["a", "b", "c", "dd", None])
records = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.integers(-30, 90)), st.integers(-50, 50)), min_size=1, max_size=12
)
restarts = st.sampled_from(["restore", "rescale", "keep 0", "keep 12", "keep 40"])
steps = st.lists(st.one_of(records, st.integers(-40, 100), restarts), max_size=14)


plans = (kinds, st.sampled_from([0, 0, 5, 25]), steps)
lives = (kinds, st.sampled_from([0, 5, 25, 25]), st.integers(0, 2**32))


def drawn(choice: random.Random) -> list[Any]:
    """A long plan: few keys, many panes, records for windows that have fired. Hypothesis likes short ones too much."""
    plan: list[Any] = []
    base = 0
    for _ in range(40):
        kind = choice.random()
        if kind < 0.7:
            size = choice.randint(1, 3)
            plan.append(
                [(choice.choice("aaabc"), base + choice.randint(-20, 15), choice.randint(0, 9)) for _ in range(size)]
            )
        elif kind < 0.92:
            base += choice.randint(1, 9)
            plan.append(base)
        else:
            plan.append(choice.choice(["restore", "rescale", f"keep {choice.choice([0, 5, 25])}"]))
    return plan


@settings(max_examples=100, deadline=None)
@given(*lives)
def test_long_lives_of_windows_agree_with_the_model(kind: Kind, lateness: int, seed: int) -> None:
    compare("memory", kind, lateness, drawn(random.Random(seed)))


@settings(max_examples=30, deadline=None)
@given(*lives, st.booleans())
def test_long_lives_of_windows_in_rocksdb_agree_with_the_model(
    kind: Kind, lateness: int, seed: int, is_split: bool
) -> None:
    with split_up(is_split):
        compare("rocksdb", kind, lateness, drawn(random.Random(seed)))


@settings(max_examples=300, deadline=None)
@given(*plans)
def test_windowed_state_agrees_with_a_model_that_keeps_every_record(kind: Kind, lateness: int, plan: list[Any]) -> None:
    compare("memory", kind, lateness, plan)


@settings(max_examples=50, deadline=None)
@given(*plans, st.booleans())
def test_windows_in_rocksdb_agree_with_a_model_that_keeps_every_record(
    kind: Kind, lateness: int, plan: list[Any], is_split: bool
) -> None:
    with split_up(is_split):
        compare("rocksdb", kind, lateness, plan)


def compare(where: str, kind: Kind, lateness: int, plan: list[Any]) -> None:
    """Plays a plan with both and compares all they say."""
    aggregate = operator(kind, lateness)
    assert aggregate.window is not None
    shape = shape_of(aggregate.window)
    with opened(where, aggregate, SCHEMA) as home:
        state, naive = home.fresh(), Naive(kind, lateness)
        dropped = 0
        for step in [*plan, MAX_WATERMARK]:
            if isinstance(step, str):
                if step.startswith("keep"):
                    lateness = int(step.split()[1])
                    keep_longer(home, lateness)
                    naive.change(lateness)
                state = again(home, state, 3 if step == "rescale" else 1)
            elif isinstance(step, int):
                assert dict(as_pairs(fired(state, step))) == naive.advance(step)
            else:
                merged = state.merge(partial(step, shape.pane_ms, shape.offset_ms))
                dropped += merged.dropped
                assert dict(as_pairs(merged.changed)) == naive.add(step)
                assert merged.records == len(step)
        assert dropped == naive.dropped
        assert home.held(state) == 0, "at the end nothing is left"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(records, records), min_size=1, max_size=6))
def test_a_snapshot_is_unaffected_by_changes_while_it_is_written(plan: list[Any]) -> None:
    aggregate = operator(SlidingWindow(10, 5), 0)
    state = PaneState(StoreSpec("windows", aggregate, 16, range(16)), SCHEMA)
    for before, after in plan:
        state.merge(partial(before, 5, 0))
        frozen, expected = state.freeze(), PaneState(StoreSpec("windows", aggregate, 16, range(16)), SCHEMA)
        found = state_file.read(
            frozen.to_buffer(), "f", signature=state_file.signature(aggregate), max_parallelism=16, wanted=range(16)
        )
        state.merge(partial(after, 5, 0))
        state.advance(after[0][1] if after[0][1] is not None else state.clock.now)
        again = state_file.read(
            frozen.to_buffer(), "f", signature=state_file.signature(aggregate), max_parallelism=16, wanted=range(16)
        )
        assert [batch.to_pylist() for batch in again.batches] == [batch.to_pylist() for batch in found.batches]
        expected.restore([again])
        assert expected.clock.now == frozen.about.watermark


def test_purged_rows_give_their_places_back() -> None:
    aggregate = operator(TumblingWindow(10), 0)
    state = PaneState(StoreSpec("windows", aggregate, 16, range(16)), SCHEMA)
    for number in range(60):
        batch = [(f"{chr(97 + key % 26)}{'x' * (key // 26)}", 10 * number, key) for key in range(300)]
        state.merge(partial(batch, 10, 0))  # type: ignore[arg-type]
        fired = state.advance(10 * number - 1)
        assert fired.num_rows == (300 if number else 0)
    assert len(state) == 300
    assert len(state._index) < 6000, "18,000 rows have been here"
    assert as_pairs(state.advance(599))[0][1][0] == 1
