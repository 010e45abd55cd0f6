"""Processing time never falls, and catches up with a clock that was set back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_taskmanager.state.processing_clock import ProcessingClock


def test_it_is_the_wall_clock() -> None:
    clock = ProcessingClock()
    assert [clock.tick(unix_ms) for unix_ms in (1000, 1001, 5000)] == [1000, 1001, 5000]
    assert clock.unix_of(6000) == 6000


def test_after_a_step_back_it_runs_at_half_the_speed_until_the_clock_has_caught_up() -> None:
    clock = ProcessingClock()
    clock.tick(1000)
    assert [clock.tick(unix_ms) for unix_ms in (400, 401, 402, 500, 1600, 1601)] == [1000, 1000, 1001, 1050, 1600, 1601]


def test_a_second_step_back_counts_from_there() -> None:
    clock = ProcessingClock()
    for unix_ms in (1000, 400, 500):
        clock.tick(unix_ms)
    assert [clock.tick(unix_ms) for unix_ms in (300, 320)] == [1050, 1060]


def test_a_restored_time_is_its_start() -> None:
    clock = ProcessingClock(1000)
    assert clock.tick(900) == 1000
    assert clock.tick(950) == 1025
    assert clock.unix_of(1100) == 1100
    assert clock.unix_of(1030) == 960


def test_it_knows_how_far_it_is_ahead_of_the_clock() -> None:
    clock = ProcessingClock(1000)
    assert clock.ahead_ms == 0, "there was no clock yet"
    found = []
    for unix_ms in (400, 600, 1600, 2000, 500):
        clock.tick(unix_ms)
        found.append(clock.ahead_ms)
    assert found == [600, 500, 0, 0, 1500]


@pytest.mark.parametrize("least", [0, 10_000])
@given(steps=st.lists(st.integers(1, 20_000)), due=st.integers(0, 20_000))
def test_it_never_falls_and_is_not_woken_too_late(least: int, steps: list[int], due: int) -> None:
    clock = ProcessingClock(least)
    before = least
    for unix_ms in steps:
        now_ms = clock.tick(unix_ms)
        assert now_ms >= max(before, unix_ms)
        if due > now_ms:
            wakes = clock.unix_of(due)
            assert wakes > unix_ms
            other = ProcessingClock(least)
            other.__dict__.update(clock.__dict__)
            assert other.tick(wakes) >= due
            assert other.now_ms == due, "nor too early"
        before = now_ms
