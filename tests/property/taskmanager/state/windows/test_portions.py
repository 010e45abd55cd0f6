"""A firing in portions that fails in the middle: nothing is put out twice, and nothing is left out.

The snapshot is taken between two portions. What was put out before it counts, as behind a barrier that overtakes; what
goes on from it puts out the rest, and the rest alone, when event time has come so far again.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import TumblingWindow

from tests.property.taskmanager.state.windows import test_unequal_clocks as unequal
from tests.property.taskmanager.state.windows import test_windowed_state as windows
from tests.property.taskmanager.state.windows.window_fleet import KEYS, Fleet
from tests.property.taskmanager.state.windows.window_homes import opened, split_up

broken = st.lists(st.integers(0, 4), max_size=20)


@settings(max_examples=200, deadline=None)
@given(*unequal.window_plans, broken)
def test_windows(kind: windows.Kind, lateness: int, parallelism: int, plan: list[Any], broken: list[int]) -> None:
    with split_up(True):
        unequal.compare_windows("memory", kind, lateness, parallelism, plan, broken)


@settings(max_examples=40, deadline=None)
@given(*unequal.window_plans, broken)
def test_windows_in_rocksdb(
    kind: windows.Kind, lateness: int, parallelism: int, plan: list[Any], broken: list[int]
) -> None:
    with split_up(True):
        unequal.compare_windows("rocksdb", kind, lateness, parallelism, plan, broken)


@settings(max_examples=200, deadline=None)
@given(*unequal.session_plans, broken)
def test_sessions(gap: int, lateness: int, parallelism: int, plan: list[Any], broken: list[int]) -> None:
    with split_up(True):
        unequal.compare_sessions("memory", gap, lateness, parallelism, plan, broken)


@settings(max_examples=40, deadline=None)
@given(*unequal.session_plans, broken)
def test_sessions_in_rocksdb(gap: int, lateness: int, parallelism: int, plan: list[Any], broken: list[int]) -> None:
    with split_up(True):
        unequal.compare_sessions("rocksdb", gap, lateness, parallelism, plan, broken)


def test_failures_do_come_in_the_middle() -> None:
    """So that the others do not compare whole firings alone."""
    for where in ("memory", "rocksdb"):
        kind = TumblingWindow(10)
        with split_up(True), opened(where, windows.operator(kind, 0), windows.SCHEMA) as home:
            fleet = Fleet(home, 1, [1, 0])
            fleet.merge([(key, 3, 1) for key in KEYS], lambda mine: windows.partial(mine, 10, 0))
            fired = [item[0][0] for item in windows.as_pairs(fleet.advance(0, 20))]
            assert sorted(fired, key=str) == sorted(KEYS, key=str)
            assert fleet.failures == 1
