"""Session windows against a naive model that keeps every record: out of order, bridging, late, restored."""

from __future__ import annotations

import datetime
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import Aggregate, AggregateFunction, KeyedAggregate, SessionWindow, Window
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.intervals import joined_intervals
from lockgate_taskmanager.state.windows.session_state import SessionState
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

from tests.property.taskmanager.state.windows.window_homes import again, fired, hash_of, keep_longer, opened, split_up

NAMES = ("k", "__hash", "__pane", "__rows", "__p1", "__p2", "__p3")
SCHEMA = pa.schema([("k", pa.string()), *((name, pa.int64()) for name in NAMES[1:])])
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
Record = tuple[str | None, int | None, int]  # key, event time, value
Session = tuple[int, int, int, int]  # start, end, count, sum


def operator(gap: int, lateness: int) -> KeyedAggregate:
    aggregates = (Aggregate("n", AggregateFunction.COUNT, ""), Aggregate("s", AggregateFunction.SUM, "v"))
    return KeyedAggregate(("k",), aggregates, Window(SessionWindow(gap), "ts", lateness))


def partial(records: list[Record], gap: int) -> pa.Table:
    """What Spark makes of a batch: one row for each key and pane, with its first and last time."""
    groups: dict[Any, list[tuple[int | None, int]]] = defaultdict(list)
    for key, time, value in records:
        groups[key, None if time is None else time - time % gap].append((time, value))
    rows = []
    for (key, pane), members in groups.items():
        times = [time for time, _ in members if time is not None]
        total = sum(value for _, value in members)
        bounds = (min(times), max(times)) if times else (None, None)
        rows.append((key, hash_of(key), pane, len(members), total, *bounds))
    arrays = [pa.array(column, item.type) for column, item in zip(zip(*rows, strict=True), SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def as_pairs(table: pa.Table) -> list[tuple[str | None, Session]]:
    def ms(moment: datetime.datetime) -> int:
        return round((moment - EPOCH).total_seconds() * 1000)

    rows = [
        (row["k"], (ms(row["window_start"]), ms(row["window_end"]), row["n"], row["s"])) for row in table.to_pylist()
    ]
    return sorted(rows, key=repr)


@dataclass(frozen=True)
class Later:
    """Event time goes on by so much."""

    ms: int


class Naive:
    """Sessions as lists of (time, value), joined one by one."""

    def __init__(self, gap: int, lateness: int) -> None:
        self.gap, self.lateness = gap, lateness
        self.sessions: dict[str | None, list[list[tuple[int, int]]]] = defaultdict(list)
        self.watermark = self.gone = MIN_WATERMARK
        self.dropped = 0

    def change(self, lateness: int) -> None:
        """What was let go of does not come back, and what is kept no longer goes at once."""
        self.gone, self.lateness = max(self.gone, self.watermark - self.lateness), lateness
        self.advance(self.watermark)

    def is_kept(self, session: list[tuple[int, int]]) -> bool:
        return self.end(session) - 1 > max(self.gone, self.watermark - self.lateness)

    def end(self, session: list[tuple[int, int]]) -> int:
        return max(time for time, _ in session) + self.gap

    def result_of(self, key: str | None, session: list[tuple[int, int]]) -> tuple[str | None, Session]:
        values = [value for _, value in session]
        return key, (min(time for time, _ in session), self.end(session), len(values), sum(values))

    def add(self, records: list[Record]) -> list[tuple[str | None, Session]]:
        changed = []
        self.dropped += sum(time is None for _, time, _ in records)
        for key in {key for key, _, _ in records}:
            old = self.sessions[key]
            new = [[(time, value)] for item, time, value in records if item == key and time is not None]
            joined: list[tuple[list[tuple[int, int]], bool]] = []
            everything = [(session, False) for session in old] + [(item, True) for item in new]
            for members, is_new in sorted(everything, key=lambda item: min(item[0])):
                if joined and min(members)[0] <= self.end(joined[-1][0]):
                    joined[-1] = (joined[-1][0] + members, joined[-1][1] or is_new)
                else:
                    joined.append((list(members), is_new))
            self.sessions[key] = []
            for members, is_new in joined:
                if is_new and not self.is_kept(members):
                    self.dropped += len(members)
                    continue
                self.sessions[key].append(members)
                if is_new and self.end(members) - 1 <= self.watermark:
                    changed.append(self.result_of(key, members))
        return sorted(changed, key=repr)

    def advance(self, watermark: int) -> list[tuple[str | None, Session]]:
        before, self.watermark = self.watermark, max(self.watermark, watermark)
        fired = []
        for key, sessions in self.sessions.items():
            fired += [
                self.result_of(key, session) for session in sessions if before < self.end(session) - 1 <= self.watermark
            ]
            sessions[:] = [session for session in sessions if self.is_kept(session)]
        return sorted(fired, key=repr)


keys = st.sampled_from(["a", "a", "a", "b", "c", None])
records = st.lists(
    st.tuples(keys, st.one_of(st.none(), st.integers(-10, 60), st.integers(-10, 60)), st.integers(-50, 50)),
    min_size=1,
    max_size=3,
)
later = st.builds(Later, st.integers(1, 8))
steps = st.lists(
    st.one_of(records, records, records, later, st.sampled_from(["restore", "rescale", "keep 0", "keep 6", "keep 40"])),
    min_size=3,
    max_size=25,
)


def drawn(choice: random.Random) -> list[Any]:
    """A long plan: sessions that grow, meet, fire and are restored. Hypothesis likes short ones too much."""
    plan: list[Any] = []
    base = 0
    for _ in range(40):
        kind = choice.random()
        if kind < 0.75:
            size = choice.randint(1, 3)
            plan.append(
                [(choice.choice("aaabc"), base + choice.randint(-30, 60), choice.randint(0, 9)) for _ in range(size)]
            )
        elif kind < 0.92:
            step = choice.randint(1, 12)
            base += step
            plan.append(Later(step))
        else:
            plan.append(choice.choice(["restore", "rescale", f"keep {choice.choice([0, 6, 30])}"]))
    return plan


gaps, latenesses = st.sampled_from([1, 6, 12]), st.sampled_from([0, 0, 6, 30])


@settings(max_examples=150, deadline=None)
@given(gaps, latenesses, st.integers(0, 2**32))
def test_long_lives_of_sessions_agree_with_the_model(gap: int, lateness: int, seed: int) -> None:
    compare("memory", gap, lateness, drawn(random.Random(seed)))


@settings(max_examples=30, deadline=None)
@given(gaps, latenesses, st.integers(0, 2**32), st.booleans())
def test_long_lives_of_sessions_in_rocksdb_agree_with_the_model(
    gap: int, lateness: int, seed: int, is_split: bool
) -> None:
    with split_up(is_split):
        compare("rocksdb", gap, lateness, drawn(random.Random(seed)))


@settings(max_examples=200, deadline=None)
@given(gaps, latenesses, steps)
def test_sessions_agree_with_a_model_that_keeps_every_record(gap: int, lateness: int, plan: list[Any]) -> None:
    compare("memory", gap, lateness, plan)


@settings(max_examples=40, deadline=None)
@given(gaps, latenesses, steps, st.booleans())
def test_sessions_in_rocksdb_agree_with_a_model_that_keeps_every_record(
    gap: int, lateness: int, plan: list[Any], is_split: bool
) -> None:
    with split_up(is_split):
        compare("rocksdb", gap, lateness, plan)


def compare(where: str, gap: int, lateness: int, plan: list[Any]) -> None:
    """Plays a plan with both and compares all they say."""
    with opened(where, operator(gap, lateness), SCHEMA) as home:
        state, naive = home.fresh(), Naive(gap, lateness)
        dropped, watermark = 0, -20
        for step in [*plan, Later(MAX_WATERMARK)]:
            if isinstance(step, str):
                if step.startswith("keep"):
                    lateness = int(step.split()[1])
                    keep_longer(home, lateness)
                    naive.change(lateness)
                state = again(home, state, 3 if step == "rescale" else 1)
            elif isinstance(step, Later):
                watermark = min(watermark + step.ms, MAX_WATERMARK)
                assert as_pairs(fired(state, watermark)) == naive.advance(watermark)
            else:
                merged = state.merge(partial(step, gap))
                dropped += merged.dropped
                assert as_pairs(merged.changed) == naive.add(step)
                assert merged.records == len(step)
        assert dropped == naive.dropped
        assert home.held(state) == 0, "at the end nothing is left"


def test_a_record_between_two_sessions_makes_one_of_them() -> None:
    aggregate = operator(10, 0)
    state = SessionState(StoreSpec("windows", aggregate, 16, range(16)), SCHEMA)
    for time, sessions in ((0, 1), (40, 2), (20, 3), (10, 2), (30, 1)):
        state.merge(partial([("a", time, 2)], 10))
        assert len(state) == sessions
    assert as_pairs(state.advance(60)) == [("a", (0, 50, 5, 10))]


def test_removed_rows_give_their_place_back() -> None:
    aggregate = operator(10, 0)
    state = SessionState(StoreSpec("windows", aggregate, 16, range(16)), SCHEMA)
    for number in range(60):
        batch: list[Record] = [(f"{number}-{key}", 100 * number + key % 5, key) for key in range(300)]
        state.merge(partial(batch, 10))
        fired = state.advance(100 * number - 1)
        assert fired.num_rows == (300 if number else 0)
    assert len(state) == 300
    assert len(state._key) < 6000, "18,000 rows have been here"
    assert len(state._index) < 6000


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-20, 20), st.integers(0, 6)), max_size=20))
def test_intervals_that_touch_are_one_group(plan: list[tuple[int, int, int]]) -> None:
    names, first = (np.array([item[side] for item in plan], np.int64) for side in (0, 1))
    ends = first + np.array([item[2] for item in plan], np.int64)
    groups, greatest = joined_intervals(names, first, ends)
    for key in range(3):
        covered: set[int] = set()
        for item, start, length in plan:
            if item == key:
                covered.update(range(2 * start, 2 * (start + length) + 1))  # halves, so that neighbours do not touch
        runs = sum(point - 1 not in covered for point in covered)
        assert len({group for group, item in zip(groups.tolist(), names.tolist(), strict=True) if item == key}) == runs
    for group, end in zip(groups.tolist(), ends.tolist(), strict=True):
        assert end <= greatest[group]
