"""Windows of processing time under every state backend: they end by the clock, once, and survive restarts."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import (
    CumulatingWindow,
    KeyedAggregate,
    OperatorState,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)
from lockgate_taskmanager.state.factory import AggregateStores
from lockgate_taskmanager.task.program import SnapshotOrder, StateUnreadable, UserError

from tests.state_homes import BACKENDS, GROUPS, SUMS, TestingBackend
from tests.windows_by_the_clock import NOON, WindowsByTheClock, found_in, hash_of

KINDS = {
    "tumbling": TumblingWindow(10),
    "sliding": SlidingWindow(20, 10),
    "session": SessionWindow(10),
    "cumulating": CumulatingWindow(20, 10),
}
Row = tuple[str, int, int, int]  # key, start and end behind NOON, count


class Windows:
    """Stores of one backend and one kind of windows."""

    def __init__(self, backend: str, kind: str, folder: Path) -> None:
        self.testing = TestingBackend(BACKENDS[backend], folder)
        self.operator = KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(KINDS[kind], processing_time=True))
        self.number = 0

    def fresh(self) -> Any:
        store = self._stores(range(GROUPS)).fresh(records("a").schema)
        self.testing.made.append(store)
        return store

    def stored(self, store: Any, order: SnapshotOrder | None = None) -> OperatorState:
        self.number += 1
        return self.testing.stored(store, self.number, order or SnapshotOrder(is_savepoint=True), self.number)

    def restored(self, *states: OperatorState, groups: range = range(GROUPS)) -> Any:
        store = self._stores(groups).restored(states, self.number)
        self.testing.made.append(store)
        return store

    def _stores(self, groups: range) -> AggregateStores:
        return AggregateStores(self.testing.maker, self.testing.spec(self.operator, groups))


def records(keys: str) -> pa.Table:
    """A record with the value 1 for each letter, as a partial without a time."""
    hashes = [hash_of(key) for key in keys]
    columns = [pa.array(column, pa.int64()) for column in (hashes, [1] * len(keys), [1] * len(keys))]
    return pa.table([pa.array(list(keys), pa.string()), *columns], names=["k", "__hash", "__rows", "__p1"])


def rows(store: Any, first: pa.Table | None) -> list[Row]:
    found = found_in(store, first)
    assert all(row["n"] == row["total"] for row in found)
    return sorted((row["k"], _ms(row["window_start"]), _ms(row["window_end"]), row["n"]) for row in found)


def _ms(time: Any) -> int:
    return round(time.timestamp() * 1000) - NOON


CLOCK = WindowsByTheClock(records, rows)
at, end = CLOCK.at, CLOCK.end


@pytest.fixture(params=BACKENDS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    found: list[Windows] = []

    def make(kind: str) -> Windows:
        found.append(Windows(request.param, kind, tmp_path / kind))
        return found[-1]

    yield make
    for windows in found:
        windows.testing.close()


@pytest.mark.parametrize(
    ("kind", "wakes", "expected"),
    [
        ("tumbling", 10, [("a", 0, 10, 2), ("b", 0, 10, 1)]),
        ("sliding", 10, [("a", -10, 10, 2), ("b", -10, 10, 1)]),
        ("session", 11, [("b", 1, 11, 1)]),
        ("cumulating", 10, [("a", 0, 10, 2), ("b", 0, 10, 1)]),
    ],
)
def test_windows_end_by_the_clock_without_any_input(made: Any, kind: str, wakes: int, expected: list[Row]) -> None:
    store = made(kind).fresh()
    assert store.wakes_at() is None, "there is no window"
    assert at(store, 1) == []
    merged = store.merge(records("ab"))
    assert (merged.records, merged.dropped, merged.changed.num_rows) == (2, 0, 0)
    assert at(store, 7) == []
    store.merge(records("a"))
    assert store.wakes_at() == NOON + wakes
    assert store.tick(NOON + wakes - 1) is None
    assert at(store, wakes) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tumbling", [("a", 0, 10, 1)]),
        ("sliding", [("a", -10, 10, 1), ("a", 0, 20, 1)]),
        ("session", [("a", 5, 15, 1)]),
        ("cumulating", [("a", 0, 10, 1), ("a", 0, 20, 1)]),
    ],
)
def test_after_the_last_window_nothing_wakes_the_subtask(made: Any, kind: str, expected: list[Row]) -> None:
    store = made(kind).fresh()
    at(store, 5)
    store.merge(records("a"))
    assert CLOCK.while_it_wakes(store) == expected


def test_a_record_at_the_end_of_a_window_is_in_the_next(made: Any) -> None:
    store = made("tumbling").fresh()
    at(store, 9)
    store.merge(records("a"))
    assert at(store, 10) == [("a", 0, 10, 1)]
    store.merge(records("aa"))
    assert at(store, 20) == [("a", 10, 20, 2)]


def test_a_session_lasts_while_records_come(made: Any) -> None:
    store = made("session").fresh()
    for ms in range(0, 45, 9):
        assert at(store, ms) == []
        store.merge(records("a"))
    assert at(store, 45) == []
    assert at(store, 46) == [("a", 0, 46, 5)]


@pytest.mark.parametrize("kind", KINDS)
def test_event_time_has_no_effect_but_its_end_fires_all(made: Any, kind: str) -> None:
    ends = {
        "tumbling": [(0, 10)],
        "sliding": [(-10, 10), (0, 20)],
        "session": [(5, 15)],
        "cumulating": [(0, 10), (0, 20)],
    }[kind]
    CLOCK.check_event_time(made(kind).fresh(), [(key, *bounds, 1) for key in "ab" for bounds in ends])


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_window_keeps_its_records_and_has_no_second_end(made: Any, kind: str) -> None:
    """A replayed record comes into a later window; the sum over tumbling windows stays exact."""
    ended_before = CLOCK.check_restore(made(kind))
    ended_before.merge(records("a"))
    assert {row[3] for row in at(ended_before, 110)} == {1}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_divided_and_put_together_when_a_job_is_rescaled(made: Any, kind: str) -> None:
    CLOCK.check_rescale(made(kind))


def test_a_rescaled_subtask_does_not_return_to_windows_that_have_ended_elsewhere(made: Any) -> None:
    """The clock of the new task manager is behind that of the one before."""
    windows = made("tumbling")
    before = windows.fresh()
    at(before, 5)
    before.merge(records("abcdefgh"))
    kept = windows.stored(before)
    parts = [windows.restored(kept, groups=groups) for groups in (range(7), range(7, GROUPS))]
    first = at(parts[0], 200)
    whole = windows.restored(*(windows.stored(part) for part in parts))
    rest = at(whole, 50)
    assert sorted(row[0] for row in first + rest) == list("abcdefgh")
    assert whole.merge(records("abcdefgh")).dropped == 0
    found = end(whole)
    assert [row[3] for row in found] == [1] * 8
    assert min(row[1] for row in found) >= 190


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_set_back_loses_nothing_and_ends_no_window_twice(made: Any, kind: str) -> None:
    store = made(kind).fresh()
    at(store, 1000)
    store.merge(records("a"))
    found = at(store, 1012)
    assert at(store, -3_600_000) == []
    store.merge(records("a"))
    wakes = store.wakes_at()
    assert wakes is not None
    assert -3_600_000 < wakes - NOON <= -3_600_000 + 20, "at half the speed of the clock"
    found += CLOCK.while_it_wakes(store)
    assert len({row[:3] for row in found}) == len(found), "no window ends twice"
    assert sum(row[3] for row in found) == {"sliding": 4, "cumulating": 3}.get(kind, 2)
    assert all(row[1] < 1100 for row in found)


def test_a_clock_behind_the_windows_is_said_in_the_log_until_it_has_caught_up(
    made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """After a restore, too: the task manager before had a clock that was ahead."""
    caplog.set_level(logging.INFO)
    windows = made("tumbling")
    store = windows.fresh()
    at(store, 3_600_000)
    store.merge(records("a"))
    at(store, 3_600_010)
    assert not caplog.records
    again = windows.restored(windows.stored(store))
    for late in (store, again):
        caplog.clear()
        at(late, 10)
        at(late, 7_199_000)
        assert ["the clock is 3600.0 s behind" in record.getMessage() for record in caplog.records] == [True]
        at(late, 7_300_000)
        assert "operator 'op': the clock has caught up" in caplog.records[-1].getMessage()


def test_other_columns_than_those_of_the_stored_windows_are_refused(made: Any) -> None:
    windows = made("tumbling")
    store = windows.fresh()
    at(store, 5)
    store.merge(records("a"))
    again = windows.restored(windows.stored(store))
    again.set_input_schema(records("a").schema)
    assert again.partial_schema.names == records("a").schema.names
    other = pa.schema([pa.field("k", pa.int64()), *list(records("a").schema)[1:]])
    with pytest.raises(UserError, match=r"columns \(k string, .* the input now has \(k int64"):
        again.set_input_schema(other)


def test_windows_of_event_time_are_not_continued_by_the_clock(made: Any) -> None:
    windows = made("tumbling")
    by_event = windows.operator = KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(KINDS["tumbling"], "at"))
    timed = records("a").schema.insert(2, pa.field("__pane", pa.int64()))
    kept = windows.stored(windows.testing.fresh(by_event, timed))
    windows.operator = KeyedAggregate(SUMS.keys, SUMS.aggregates, Window(KINDS["tumbling"], processing_time=True))
    with pytest.raises(StateUnreadable, match="aggregat"):
        windows.restored(kept)
