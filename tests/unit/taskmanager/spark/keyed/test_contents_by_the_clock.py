"""Functions of windows by processing time, on every home of their records: called once, when the clock says so."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lockgate_proto.messages import CumulatingWindow, Operator, OperatorState, SlidingWindow, TumblingWindow, Window
from lockgate_taskmanager.spark.keyed import window_process
from lockgate_taskmanager.spark.keyed.window_process import WindowStores
from lockgate_taskmanager.state.backend import make_backend
from lockgate_taskmanager.state.contents.contents_spec import ContentsSpec
from lockgate_taskmanager.state.contents.window_contents import Calls
from lockgate_taskmanager.state.factory import StoreFactory
from lockgate_taskmanager.state.scratch import ScratchFolder
from lockgate_taskmanager.task.program import BY_ITSELF, SnapshotOrder, UserError

from tests.contents_homes import HOMES
from tests.state_homes import GROUPS
from tests.windows_by_the_clock import NOON, WindowsByTheClock, found_in, hash_of

KINDS: dict[str, Any] = {
    "tumbling": TumblingWindow(10),
    "sliding": SlidingWindow(20, 10),
    "cumulating": CumulatingWindow(20, 10),
}
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("__hash", pa.int64())])
Call = tuple[str, int, int, tuple[int, ...]]  # key, start and end behind NOON, the records' numbers


class NamingPlan:
    """In place of the Spark job: a row for each call, with the records that the function would get."""

    schema = pa.schema([("k", pa.string()), ("s", pa.int64()), ("e", pa.int64()), ("ns", pa.list_(pa.int64()))])

    def __init__(self, *_: Any) -> None:
        self.is_warm = False

    def run(self, calls: Sequence[Calls]) -> pa.Table:
        found: list[dict[str, Any]] = []
        for some in calls:
            last = None
            rows = zip(some.rows.to_pylist(), some.numbers, some.starts, some.ends, strict=True)
            for row, number, start, end in rows:
                if number != last:
                    found.append({"k": row["k"], "s": int(start), "e": int(end), "ns": []})
                found[-1]["ns"].append(row["n"])
                last = number
        return pa.Table.from_pylist(found, schema=self.schema)

    def warm_up(self) -> None:
        self.is_warm = True


class Windows:
    """Stores of one home and one kind of windows."""

    def __init__(self, home: str, kind: str, folder: Path) -> None:
        self.window, self.home, self.folder, self.number = Window(KINDS[kind], processing_time=True), home, folder, 0
        self.scratch, self.made = ScratchFolder(folder / "work", "state-"), list[Any]()

    def fresh(self, groups: range = range(GROUPS)) -> Any:
        self.made.append(self._stores(groups).fresh(SCHEMA))
        return self.made[-1]

    def stored(self, store: Any, order: SnapshotOrder = BY_ITSELF) -> OperatorState:
        self.number += 1
        backend = make_backend(HOMES[self.home], str(self.folder / "storage"), f"a{self.number}-windows-0")
        frozen = store.snapshot(order)
        state = frozen.persist(self.number, backend.writer(self.number))
        frozen.release()
        return state  # type: ignore[no-any-return]

    def restored(self, *states: OperatorState, groups: range = range(GROUPS)) -> Any:
        self.made.append(self._stores(groups).restored(states, self.number))
        return self.made[-1]

    def close(self) -> None:
        for store in self.made:
            store.close()
        self.scratch.close()

    def _stores(self, groups: range) -> WindowStores:
        spec = ContentsSpec("op", ("k",), self.window, GROUPS, groups)
        return WindowStores(Operator("op"), spec, StoreFactory(HOMES[self.home], self.scratch), None)  # type: ignore[arg-type]


def records(keys: str, first: int = 0) -> pa.Table:
    """A record for each letter, numbered from `first`."""
    columns = [list(keys), list(range(first, first + len(keys))), [hash_of(key) for key in keys]]
    return pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def calls(store: Any, first: pa.Table | None) -> list[Call]:
    rows = found_in(store, first)
    return sorted((row["k"], row["s"] - NOON, row["e"] - NOON, tuple(row["ns"])) for row in rows)


CLOCK = WindowsByTheClock(records, calls)
at, end = CLOCK.at, CLOCK.end


@pytest.fixture(params=HOMES)
def made(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(window_process, "WindowPlan", NamingPlan)
    found: list[Windows] = []

    def make(kind: str) -> Windows:
        found.append(Windows(request.param, kind, tmp_path / kind))
        return found[-1]

    yield make
    for windows in found:
        windows.close()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tumbling", [("a", 0, 10, (0, 2, 3)), ("b", 0, 10, (1,))]),
        ("sliding", [("a", -10, 10, (0, 2, 3)), ("b", -10, 10, (1,))]),
        ("cumulating", [("a", 0, 10, (0, 2, 3)), ("b", 0, 10, (1,))]),
    ],
)
def test_the_clock_ends_windows_without_input_with_records_in_order_of_arrival(
    made: Any, kind: str, expected: list[Call]
) -> None:
    store = made(kind).fresh()
    assert store.wakes_at() is None, "there is no window"
    assert at(store, 1) == []
    merged = store.merge(records("aba"))
    assert (merged.records, merged.dropped, merged.late, merged.changed.num_rows) == (3, 0, None, 0)
    at(store, 7)
    store.merge(records("a", 3))
    assert store.wakes_at() == NOON + 10
    assert store.tick(NOON + 9) is None
    assert at(store, 10) == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tumbling", [("a", 0, 10, (0,))]),
        ("sliding", [("a", -10, 10, (0,)), ("a", 0, 20, (0,))]),
        ("cumulating", [("a", 0, 10, (0,)), ("a", 0, 20, (0,))]),
    ],
)
def test_after_the_last_window_nothing_wakes_the_subtask(made: Any, kind: str, expected: list[Call]) -> None:
    store = made(kind).fresh()
    at(store, 5)
    store.merge(records("a"))
    assert CLOCK.while_it_wakes(store) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_event_time_has_no_effect_but_its_end_calls_for_every_window(made: Any, kind: str) -> None:
    bounds = {"tumbling": [(0, 10)], "sliding": [(-10, 10), (0, 20)], "cumulating": [(0, 10), (0, 20)]}[kind]
    expected = [(key, *ends, (number,)) for number, key in enumerate("ab") for ends in bounds]
    CLOCK.check_event_time(made(kind).fresh(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_window_keeps_its_records_and_has_no_second_call(made: Any, kind: str) -> None:
    ended_before = CLOCK.check_restore(made(kind))
    ended_before.merge(records("a", 7))
    assert {call[3] for call in at(ended_before, 110)} == {(7,)}


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_divided_and_put_together_when_a_job_is_rescaled(made: Any, kind: str) -> None:
    CLOCK.check_rescale(made(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_is_set_back_loses_nothing_and_ends_no_window_twice(made: Any, kind: str) -> None:
    store = made(kind).fresh()
    at(store, 1000)
    store.merge(records("a"))
    found = at(store, 1012)
    assert at(store, -3_600_000) == []
    store.merge(records("a", 1))
    wakes = store.wakes_at()
    assert -3_600_000 < wakes - NOON <= -3_600_000 + 20, "at half the speed of the clock"
    found += CLOCK.while_it_wakes(store)
    assert len({call[:3] for call in found}) == len(found), "no window ends twice"
    whole = [call for call in found if kind != "cumulating" or call[2] - call[1] == 20]
    assert Counter(number for call in whole for number in call[3]) == dict.fromkeys(
        (0, 1), 2 if kind == "sliding" else 1
    )


def test_a_rescaled_subtask_does_not_return_to_windows_that_have_ended_elsewhere(made: Any) -> None:
    """The clock of the new task manager is behind that of the one before."""
    windows = made("tumbling")
    before = windows.fresh()
    at(before, 5)
    before.merge(records("abcdefgh"))
    kept = windows.stored(before)
    parts = [windows.restored(kept, groups=groups) for groups in (range(7), range(7, GROUPS))]
    first = at(parts[0], 200)
    whole = windows.restored(*[windows.stored(part) for part in parts])
    rest = at(whole, 50)
    assert sorted(call[0] for call in first + rest) == list("abcdefgh")
    assert whole.merge(records("abcdefgh", 8)).dropped == 0
    found = end(whole)
    assert sorted(number for call in found for number in call[3]) == list(range(8, 16))
    assert min(call[1] for call in found) >= 190


@pytest.mark.parametrize("seed", range(4))
def test_every_record_is_in_one_call_over_restarts_rescales_and_jumps(made: Any, seed: int) -> None:
    rng, windows = random.Random(seed), made("tumbling")
    ranges, stores, sent, found, ms = [range(GROUPS)], [windows.fresh()], 0, list[Call](), 0
    for store in stores:
        at(store, ms)
    for _ in range(60):
        step = rng.random()
        if step < 0.5:
            keys = "".join(rng.choices("abcdefgh", k=rng.randint(1, 5)))
            for groups, store in zip(ranges, stores, strict=True):
                mine = [hash_of(key) % GROUPS in groups for key in keys]
                store.merge(records(keys, sent).filter(pa.array(mine)))
            sent += len(keys)
        elif step < 0.9:
            ms += rng.choice([0, 1, 4, 9, 25, -30])
            for number, store in enumerate(stores):
                found += at(store, ms - 7 * number)
        else:
            states = [windows.stored(store) for store in stores]
            ranges = [range(GROUPS)] if len(ranges) > 1 else [range(5), range(5, GROUPS)]
            stores = [windows.restored(*states, groups=groups) for groups in ranges]
            for store in stores:
                found += at(store, ms)
    for store in stores:
        found += end(store)
    assert sorted(number for call in found for number in call[3]) == list(range(sent))
    assert len({call[:3] for call in found}) == len(found), "a window ends once"


def test_columns_may_come_in_another_order_but_not_as_other_types(made: Any) -> None:
    windows = made("tumbling")
    store = windows.fresh()
    at(store, 5)
    store.merge(records("a"))
    again = windows.restored(windows.stored(store))
    assert again.partial_schema == SCHEMA
    given = records("a", 1).select(["__hash", "n", "k"])
    again.set_input_schema(given.schema)
    again.tick(NOON + 6)
    again.merge(given)
    assert at(again, 10) == [("a", 0, 10, (0, 1))]
    with pytest.raises(UserError, match=r"columns \(k string, .* the input now has \(k int64"):
        again.set_input_schema(SCHEMA.set(0, pa.field("k", pa.int64())))


def test_the_function_is_warmed_up(made: Any) -> None:
    store = made("tumbling").fresh()
    store.warm_up()
    assert store._windows._plan.is_warm
