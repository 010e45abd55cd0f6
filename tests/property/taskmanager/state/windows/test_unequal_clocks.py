"""Windows of subtasks that are not equally far, rescaled: each key against a model with a watermark of its own.

The watermark of a key is the highest that any subtask that held it has come to. Windows that it has passed have fired:
they never do again, and what comes for them is late, however far behind the subtask is that holds the key now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import TumblingWindow
from lockgate_taskmanager.state.about import About
from lockgate_taskmanager.state.event_clock import EventClock
from lockgate_taskmanager.state.format import state_file
from lockgate_taskmanager.state.spec import StoreSpec
from lockgate_taskmanager.state.windows.pane_state import PaneState
from lockgate_taskmanager.state.windows.shape import shape_of
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

from tests.property.taskmanager.state.windows import test_session_state as sessions
from tests.property.taskmanager.state.windows import test_windowed_state as windows
from tests.property.taskmanager.state.windows.window_fleet import GROUPS, KEYS, Fleet, group_of
from tests.property.taskmanager.state.windows.window_homes import keep_longer, opened

parallelisms = st.integers(1, 5)
records = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(-20, 60)), st.integers(-9, 9)),
    min_size=1,
    max_size=10,
)
advances = st.tuples(st.integers(0, 4), st.integers(-20, 70))  # of one subtask alone
rescales = st.builds("rescale {} {}".format, parallelisms, st.sampled_from(["", "", "0", "9", "30"]))
steps = st.lists(st.one_of(records, advances, advances, rescales), min_size=4, max_size=20)


window_plans = (windows.kinds, st.sampled_from([0, 0, 5, 25]), parallelisms, steps)
session_plans = (sessions.gaps, sessions.latenesses, parallelisms, steps)


@settings(max_examples=200, deadline=None)
@given(*window_plans)
def test_windows_fire_once_after_a_change_of_their_subtask(
    kind: windows.Kind, lateness: int, parallelism: int, plan: list[Any]
) -> None:
    compare_windows("memory", kind, lateness, parallelism, plan)


@settings(max_examples=40, deadline=None)
@given(*window_plans)
def test_windows_in_rocksdb_fire_once_after_a_change_of_their_subtask(
    kind: windows.Kind, lateness: int, parallelism: int, plan: list[Any]
) -> None:
    compare_windows("rocksdb", kind, lateness, parallelism, plan)


@settings(max_examples=200, deadline=None)
@given(*session_plans)
def test_sessions_fire_once_after_a_change_of_their_subtask(
    gap: int, lateness: int, parallelism: int, plan: list[Any]
) -> None:
    compare_sessions("memory", gap, lateness, parallelism, plan)


@settings(max_examples=40, deadline=None)
@given(*session_plans)
def test_sessions_in_rocksdb_fire_once_after_a_change_of_their_subtask(
    gap: int, lateness: int, parallelism: int, plan: list[Any]
) -> None:
    compare_sessions("rocksdb", gap, lateness, parallelism, plan)


def compare_windows(
    where: str,
    kind: windows.Kind,
    lateness: int,
    parallelism: int,
    plan: list[Any],
    broken: Sequence[int] = (),
) -> None:
    """Plays a plan with both and compares all they say. broken: see Fleet."""
    aggregate = windows.operator(kind, lateness)
    assert aggregate.window is not None
    shape = shape_of(aggregate.window)
    with opened(where, aggregate, windows.SCHEMA) as home:
        fleet = Fleet(home, parallelism, broken)
        naive = {key: windows.Naive(kind, lateness) for key in KEYS}
        for step in [*plan, MAX_WATERMARK]:
            if isinstance(step, str):
                rescale(home, fleet, naive, step)
            elif isinstance(step, list):
                merged = fleet.merge(step, lambda mine: windows.partial(mine, shape.pane_ms, shape.offset_ms))
                expected: dict[Any, Any] = {}
                before = sum(item.dropped for item in naive.values())
                for key in KEYS:
                    expected |= naive[key].add([item for item in step if item[0] == key])
                assert dict(found for item in merged for found in windows.as_pairs(item.changed)) == expected
                assert sum(item.dropped for item in merged) == sum(item.dropped for item in naive.values()) - before
            else:
                for number, watermark in advancing(fleet, step):
                    expected = {}
                    for key in fleet.keys(number):
                        expected |= naive[key].advance(watermark)
                    assert dict(windows.as_pairs(fleet.advance(number, watermark))) == expected
        assert not fleet.held(), "at the end nothing is left"


def compare_sessions(
    where: str, gap: int, lateness: int, parallelism: int, plan: list[Any], broken: Sequence[int] = ()
) -> None:
    """Plays a plan with both and compares all they say. broken: see Fleet."""
    with opened(where, sessions.operator(gap, lateness), sessions.SCHEMA) as home:
        fleet = Fleet(home, parallelism, broken)
        naive = {key: sessions.Naive(gap, lateness) for key in KEYS}
        for step in [*plan, MAX_WATERMARK]:
            if isinstance(step, str):
                rescale(home, fleet, naive, step)
            elif isinstance(step, list):
                merged = fleet.merge(step, lambda mine: of_sessions(mine, gap))
                before = sum(item.dropped for item in naive.values())
                expected = [
                    found for key in KEYS for found in naive[key].add([item for item in step if item[0] == key])
                ]
                assert sorted(
                    (found for item in merged for found in sessions.as_pairs(item.changed)), key=repr
                ) == sorted(expected, key=repr)
                assert sum(item.dropped for item in merged) == sum(item.dropped for item in naive.values()) - before
            else:
                for number, watermark in advancing(fleet, step):
                    expected = [found for key in fleet.keys(number) for found in naive[key].advance(watermark)]
                    fired = sessions.as_pairs(fleet.advance(number, watermark))
                    assert fired == sorted(expected, key=repr)
        assert not fleet.held(), "at the end nothing is left"


def rescale(home: Any, fleet: Fleet, naive: dict[Any, Any], step: str) -> None:
    """To another parallelism, and a job of another lateness where the step says one."""
    _, parallelism, *lateness = step.split()
    for number in map(int, lateness):
        keep_longer(home, number)
        for model in naive.values():
            model.change(number)
    fleet.rescale(int(parallelism))


def advancing(fleet: Fleet, step: Any) -> list[tuple[int, int]]:
    """Which subtasks come how far: one, or at the end all."""
    if isinstance(step, int):
        return [(number, step) for number in range(len(fleet.subtasks))]
    return [(step[0] % len(fleet.subtasks), step[1])]


def of_sessions(merged: list[Any], gap: int) -> Any:
    return sessions.partial(merged, gap) if merged else sessions.SCHEMA.empty_table()


def piece(owned: range, watermark: int, *ahead: tuple[int, int, int]) -> About:
    return About(windows.SCHEMA, "", GROUPS, owned, watermark, ahead=ahead)


def test_a_clock_remembers_who_was_ahead_until_it_has_passed_them() -> None:
    clock = EventClock(GROUPS, range(2, 14))
    clock.restore([piece(range(8), 50), piece(range(8, 12), 20), piece(range(12, 16), 70)])
    hashes = np.arange(2, 14)
    assert clock.now == 20
    assert clock.ahead == ((2, 8, 50), (12, 14, 70)), "of its own key groups alone"
    assert clock.reached.of(hashes).tolist() == [50] * 6 + [20] * 4 + [70] * 2
    clock.advance(60)
    assert clock.ahead == ((12, 14, 70),)
    assert clock.reached.of(hashes).tolist() == [60] * 10 + [70] * 2
    clock.advance(70)
    assert clock.ahead == ()
    assert clock.reached.of(hashes) == 70, "one for all again: nothing is looked up by key"


def test_the_end_of_the_input_keeps_the_key_groups_that_are_ahead() -> None:
    clock = EventClock(GROUPS, range(16))
    clock.restore([piece(range(8), 50), piece(range(8, 16), 20)])
    clock.advance(MAX_WATERMARK)
    assert clock.reached.of(np.arange(3)) == MAX_WATERMARK
    assert (clock.before_end, clock.ahead) == (20, ((0, 8, 50),))


def test_a_piece_that_knows_no_time_and_one_of_before_count_as_they_did() -> None:
    clock = EventClock(GROUPS, range(16))
    clock.restore([piece(range(0), 50), piece(range(8, 16), MIN_WATERMARK)])
    assert (clock.now, clock.ahead) == (MIN_WATERMARK, ())
    clock.restore([])
    assert (clock.now, clock.ahead) == (MIN_WATERMARK, ())
    clock = EventClock(GROUPS, range(8))
    clock.restore([piece(range(8), 30, (2, 4, 90))])
    assert (clock.now, clock.ahead) == (30, ((2, 4, 90),)), "the same subttry again, which had not caught up yet"


def test_key_groups_of_a_subtask_that_had_nothing_to_store_knew_of_no_time() -> None:
    clock = EventClock(GROUPS, range(16))
    clock.restore([piece(range(8), 100)])
    assert (clock.now, clock.ahead) == (MIN_WATERMARK, ((0, 8, 100),)), "what is sent again for 8 to 15 is not late"


def test_key_groups_that_are_ahead_are_part_of_the_file() -> None:
    aggregate = windows.operator(TumblingWindow(10), 0)
    state = PaneState(StoreSpec("windows", aggregate, GROUPS, range(16)), windows.SCHEMA)
    state.clock.restore([piece(range(8), 50), piece(range(8, 16), 20)])
    mark = state_file.signature(aggregate)
    data = state.freeze().to_buffer()
    read = state_file.read(data, "f", signature=mark, max_parallelism=GROUPS, wanted=range(16))
    assert (read.about.watermark, read.about.ahead) == (20, ((0, 8, 50),))
    state.advance(50)
    data = state.freeze().to_buffer()
    read = state_file.read(data, "f", signature=mark, max_parallelism=GROUPS, wanted=range(16))
    assert (read.about.watermark, read.about.ahead) == (50, ())
    assert len({group_of(key) for key in KEYS}) > 4, "the models above are about many key groups"
