"""Windows of processing time through restarts, rescales and clocks that jump: each record in its windows, each once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CumulatingWindow,
    KeyedAggregate,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state.late_clock import LateClock
from lockgate_taskmanager.state.windows.processing_windows import ProcessingWindows, timed_schema, times_of
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.property.taskmanager.state.windows.window_homes import GROUPS, Home, opened, split_up

from .window_fleet import hash_of

KINDS = {
    "tumbling": TumblingWindow(10, 3),
    "sliding": SlidingWindow(10, 5),
    "cumulating": CumulatingWindow(12, 4),
    "session": SessionWindow(6),
}
WINDOWS_OF_A_RECORD = {"sliding": 2}
SCHEMA = pa.schema([("k", pa.string()), ("__hash", pa.int64()), ("__rows", pa.int64())])
NOON = 1_800_000_000_000

batches = st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=6)
clocks = st.one_of(st.integers(0, 12), st.integers(-40, 60))
restarts = st.sampled_from(["restore", "rescale"])
plans = st.lists(st.one_of(batches, clocks, restarts), max_size=25)


class Subtasks:
    """Subtasks that share the key groups, and whose clocks differ."""

    def __init__(self, home: Home, operator: KeyedAggregate) -> None:
        self.home, self.operator = home, operator
        self.ranges = [range(GROUPS)]
        self.stores: list[Any] = [self.by_clock(home.fresh())]
        self.emitted: Counter[tuple[str, int, int]] = Counter()
        self.unix_ms = NOON
        self.tick()

    def by_clock(self, windows: Any) -> ProcessingWindows:
        assert self.operator.window is not None
        return ProcessingWindows(self.operator.window, times_of(self.operator), windows, LateClock("count"))

    def tick(self, by: int = 0) -> None:
        """Moves the clocks. The second subtask's is 7 ms behind."""
        self.unix_ms += by
        for number, store in enumerate(self.stores):
            self.note(store, store.tick(self.unix_ms - 7 * number))

    def note(self, store: Any, portion: pa.Table | None) -> None:
        """What has fired, to the last portion."""
        portions = [] if portion is None else [portion]
        while store.has_more:
            portions.append(store.go_on())
        for row in (row for table in portions for row in table.to_pylist()):
            start, end = (round(row[name].timestamp() * 1000) for name in ("window_start", "window_end"))
            assert (row["k"], start, end) not in self.emitted, "a window ends once"
            self.emitted[row["k"], start, end] = row["n"]

    def merge(self, keys: list[str]) -> None:
        """A record of each key."""
        for range_, store in zip(self.ranges, self.stores, strict=True):
            mine = [key for key in keys if hash_of(key) % GROUPS in range_]
            counts = Counter(mine)
            columns = [list(counts), [hash_of(key) for key in counts], list(counts.values())]
            arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
            merged = store.merge(pa.Table.from_arrays(arrays, schema=SCHEMA))
            assert (merged.records, merged.dropped, merged.changed.num_rows) == (len(mine), 0, 0)

    def restart(self, parts: int) -> None:
        """Continues from a snapshot, with so many subtasks."""
        snapshots = [self.home.stored(store._windows) for store in self.stores]
        self.ranges = [range(GROUPS * part // parts, GROUPS * (part + 1) // parts) for part in range(parts)]
        self.stores = [self.by_clock(self.home.restored(snapshots, range_)) for range_ in self.ranges]
        self.tick()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None)
@given(plan=plans)
def test_every_record_is_in_its_windows(kind: str, plan: list[Any]) -> None:
    play("memory", kind, plan)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(plan=plans, is_split=st.booleans())
def test_every_record_is_in_its_windows_in_rocksdb(kind: str, plan: list[Any], is_split: bool) -> None:
    with split_up(is_split):
        play("rocksdb", kind, plan)


def play(where: str, kind: str, plan: list[Any]) -> None:
    """The sums over all windows, or over all whole ones, are those of the records."""
    operator = KeyedAggregate(
        ("k",), (Aggregate("n", AggregateFunction.COUNT, ""),), Window(KINDS[kind], processing_time=True)
    )
    sent: Counter[str] = Counter()
    with opened(where, operator, timed_schema(operator, SCHEMA)) as home:
        subtasks = Subtasks(home, operator)
        for step in plan:
            if isinstance(step, list):
                subtasks.merge(step)
                sent.update(step)
            elif isinstance(step, int):
                subtasks.tick(step)
            else:
                subtasks.restart(1 if step == "restore" else 3 - len(subtasks.stores))
        for store in subtasks.stores:
            subtasks.note(store, store.advance(MAX_WATERMARK))
            assert store.wakes_at() is None
        found: Counter[str] = Counter()
        for (key, start, end), n in subtasks.emitted.items():
            if kind != "cumulating" or end - start == KINDS["cumulating"].size_ms:  # type: ignore[union-attr]
                found[key] += n
        assert found == Counter({key: n * WINDOWS_OF_A_RECORD.get(kind, 1) for key, n in sent.items()})
