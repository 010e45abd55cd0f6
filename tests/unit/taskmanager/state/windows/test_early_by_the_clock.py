"""Windows of processing time with a trigger, under every state backend: early results, and one end by the clock."""

from __future__ import annotations

import datetime
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import EarlyFiringWindow, KeyedAggregate, OperatorState, Window
from lockgate_taskmanager.state.factory import AggregateStores
from lockgate_taskmanager.task.program import SnapshotOrder
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK

from tests.state_homes import BACKENDS, GROUPS, SUMS, TestingBackend

from .test_processing_windows import records

HOMES = ("filesystem, incremental", "rocksdb")
NOON = 1_800_000_000_000  # a multiple of 1000
KINDS = {"tumbling": (100, 100, 0, False), "sliding": (100, 50, 0, False), "cumulating": (100, 50, 0, True)}
Row = tuple[str, int, int, bool, int]  # key, start and end behind NOON, is it early, count


class Windows:
    """Stores of one backend and one kind of windows."""

    def __init__(
        self, backend: str, folder: Path, kind: str, every_count: int = 0, every_ms: int = 0, *, purge: bool = False
    ) -> None:
        self.testing = TestingBackend(BACKENDS[backend], folder)
        window = EarlyFiringWindow(*KINDS[kind], every_count, every_ms, purge)
        self.operator = KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(window, processing_time=True))
        self.number = 0

    def fresh(self) -> Any:
        self.testing.made.append(self._stores(range(GROUPS)).fresh(records("a").schema))
        return self.testing.made[-1]

    def stored(self, store: Any, part: int = 0) -> OperatorState:
        self.number += 1
        return self.testing.stored(store, self.number, SnapshotOrder(), part)

    def restored(self, *states: OperatorState, groups: range = range(GROUPS)) -> Any:
        self.testing.made.append(self._stores(groups).restored(states, self.number))
        return self.testing.made[-1]

    def _stores(self, groups: range) -> AggregateStores:
        return AggregateStores(self.testing.maker, self.testing.spec(self.operator, groups))


@pytest.fixture(params=HOMES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found: list[Windows] = []

    def make(*about: Any, **more: Any) -> Windows:
        found.append(Windows(request.param, tmp_path / str(len(found)), *about, **more))
        return found[-1]

    yield make
    for windows in found:
        windows.testing.close()


def rows(store: Any, *tables: pa.Table | None) -> list[Row]:
    """What has fired, portion by portion."""
    portions = [table for table in tables if table is not None]
    while store.has_more:
        portions.append(store.go_on())
    found = [row for table in portions for row in table.to_pylist()]
    assert all(row["n"] == (row["total"] or 0) for row in found)
    return sorted(
        (row["k"], _ms(row["window_start"]), _ms(row["window_end"]), row["is_early"], row["n"]) for row in found
    )


def _ms(time: datetime.datetime) -> int:
    return round(time.timestamp() * 1000) - NOON


def at(store: Any, ms: int) -> list[Row]:
    """All that the subtask does at this time: it ticks until nothing is due."""
    found = rows(store, store.tick(NOON + ms))
    while (wakes := store.wakes_at()) is not None and wakes <= NOON + ms:
        found += rows(store, store.tick(NOON + ms))
    return found


def put(store: Any, keys: str) -> list[Row]:
    merged = store.merge(records(keys))
    assert (merged.records, merged.dropped) == (len(keys), 0)
    return rows(store, merged.changed)


def end(store: Any) -> list[Row]:
    return rows(store, store.advance(MAX_WATERMARK))


def test_enough_records_fire_each_window_and_the_clock_ends_it_once(made: Any) -> None:
    store = made("sliding", 2).fresh()
    at(store, 10)
    assert put(store, "a") == []
    at(store, 60)
    assert put(store, "a") == [("a", 0, 100, True, 2)]
    assert store.wakes_at() == NOON + 100, "the first window ended at 50"
    assert at(store, 99) == []
    assert at(store, 100) == [("a", 0, 100, False, 2)]
    assert at(store, 150) == [("a", 50, 150, False, 1)]
    assert store.wakes_at() is None


@pytest.mark.parametrize("purge", [False, True])
def test_the_clock_fires_what_is_new_over_a_silent_source(made: Any, purge: bool) -> None:
    store = made("tumbling", 0, 30, purge=purge).fresh()
    at(store, 5)
    put(store, "ab")
    assert store.wakes_at() == NOON + 30
    assert at(store, 29) == []
    assert at(store, 30) == [("a", 0, 100, True, 1), ("b", 0, 100, True, 1)]
    assert at(store, 60) == [], "nothing is new"
    put(store, "a")
    assert at(store, 90) == [("a", 0, 100, True, 1 if purge else 2)]
    assert at(store, 100) == [("a", 0, 100, False, 0 if purge else 2), ("b", 0, 100, False, 0 if purge else 1)]
    assert store.wakes_at() is None


def test_a_window_that_ends_has_no_early_result_at_the_same_time(made: Any) -> None:
    store = made("sliding", 0, 50).fresh()
    at(store, 60)
    put(store, "a")
    assert at(store, 100) == [("a", 0, 100, False, 1), ("a", 50, 150, True, 1)]


def test_cumulating_windows_grow_early(made: Any) -> None:
    store = made("cumulating", 0, 20).fresh()
    at(store, 10)
    put(store, "a")
    assert at(store, 20) == [("a", 0, 50, True, 1), ("a", 0, 100, True, 1)]
    assert at(store, 50) == [("a", 0, 50, False, 1)]
    at(store, 55)
    put(store, "a")
    assert at(store, 60) == [("a", 0, 100, True, 2)]
    assert end(store) == [("a", 0, 100, False, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_window_knows_what_is_new_and_has_no_second_end(made: Any, kind: str) -> None:
    windows = made(kind, 3, 40)
    before = windows.fresh()
    at(before, 5)
    put(before, "aab")
    kept = windows.stored(before)
    ended = [row for row in at(before, 200) if not row[3]]
    over = windows.stored(before)
    again, ended_before = windows.restored(kept), windows.restored(over)
    at(again, 10)
    assert {row[4] for row in put(again, "a") if row[0] == "a"} == {3}, "two were new in the snapshot"
    assert {row[0] for row in at(again, 40)} == {"b"}
    assert [row[:3] for row in at(again, 200) if not row[3]] == [row[:3] for row in ended]
    assert at(ended_before, 300) == []


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_divided_and_put_together_when_a_job_is_rescaled(made: Any, kind: str) -> None:
    windows = made(kind, 0, 40)
    before = windows.fresh()
    at(before, 5)
    put(before, "abcdefgh" * 3)
    kept = windows.stored(before)
    parts = [windows.restored(kept, groups=groups) for groups in (range(7), range(7, GROUPS))]
    first = [row for row in at(parts[0], 300) if not row[3]]  # is further on than the other
    whole = windows.restored(*[windows.stored(part, number) for number, part in enumerate(parts)])
    found = at(whole, 300)
    assert not any(row[3] for row in found), "all have ended"
    assert not {row[0] for row in first} & {row[0] for row in found}
    assert sorted(first + found) == [row for row in at(before, 300) if not row[3]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_set_back_ends_no_window_twice_and_makes_no_long_pause(made: Any, kind: str) -> None:
    store = made(kind, 0, 40).fresh()
    at(store, 1000)
    put(store, "a")
    found = at(store, 1101)
    assert at(store, -3_600_000) == []
    put(store, "a")
    assert -3_600_000 < store.wakes_at() - NOON <= -3_600_000 + 40
    early = at(store, store.wakes_at() - NOON)
    assert early
    assert all(row[3] for row in early)
    while (wakes := store.wakes_at()) is not None:
        found += at(store, wakes - NOON)
    finals = [row[:3] for row in found if not row[3]]
    assert len(set(finals)) == len(finals), "no window ends twice"
    assert sum(row[4] for row in found if not row[3]) == (2 if kind == "tumbling" else 4)


@pytest.mark.parametrize("seed", range(3))
def test_pieces_hold_every_record_once_over_restarts_rescales_and_jumps(made: Any, seed: int) -> None:
    rng = random.Random(seed)
    windows = made("tumbling", *rng.choice([(2, 0), (0, 30), (3, 30)]), purge=True)
    stores, ms, sent, found = [windows.fresh()], 0, Counter[str](), list[Row]()
    ranges = [range(GROUPS)]
    at(stores[0], ms)
    for _ in range(40):
        step = rng.random()
        if step < 0.5:
            keys = "".join(rng.choices("abcdefgh", k=rng.randint(1, 6)))
            sent.update(keys)
            for groups, store in zip(ranges, stores, strict=True):
                hashes = records(keys).column("__hash").to_pylist()
                mine = [key for key, hash_ in zip(keys, hashes, strict=True) if hash_ % GROUPS in groups]
                found += put(store, "".join(mine))
        elif step < 0.9:
            ms += rng.choice([0, 7, 20, 45, 120, -150])
            for number, store in enumerate(stores):
                found += at(store, ms - 13 * number)
        else:
            states = [windows.stored(store, part) for part, store in enumerate(stores)]
            ranges = [range(GROUPS)] if len(ranges) > 1 else [range(5), range(5, GROUPS)]
            stores = [windows.restored(*states, groups=groups) for groups in ranges]
            for store in stores:
                found += at(store, ms)
    for store in stores:
        found += end(store)
    total: Counter[str] = Counter()
    for key, _, _, _, n in found:
        total[key] += n
    assert total == sent
    finals = [row[:3] for row in found if not row[3]]
    assert len(set(finals)) == len(finals), "a window ends once"
    assert {row[:3] for row in found} == set(finals), "and each with early results does"


def test_windows_that_end_at_each_tick_do_not_keep_early_results_back(made: Any) -> None:
    """As on a busy machine, where a tick takes as long as a slide."""
    store = made("sliding", 0, 10).fresh()
    store.tick(NOON + 10)
    found: list[Row] = []
    for ms in range(50, 500, 50):
        put(store, "a")
        found += rows(store, store.tick(NOON + ms))
    final = {row[:3] for row in found if not row[3]}
    assert any(row[3] for row in found)
    assert final
    seen: set[tuple[str, int, int]] = set()
    for row in found:
        assert row[:3] not in seen, "an early result behind the final one"
        seen |= set() if row[3] else {row[:3]}
