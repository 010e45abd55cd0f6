"""How long subtasks run on without a leader."""

from __future__ import annotations

from lockgate_taskmanager.runtime.leader_grace import LONGEST_STEP_MS, LeaderGrace

ALONE, LED = False, True


def looks(grace: LeaderGrace, *registered: bool, start_ms: int = 0, every_ms: int = 500) -> list[int]:
    """The times at which it was over."""
    times = [start_ms + every_ms * number for number in range(len(registered))]
    return [at_ms for at_ms, is_led in zip(times, registered, strict=True) if grace.is_over(is_led, at_ms)]


def test_it_is_over_once_when_no_leader_has_come_in_time() -> None:
    assert looks(LeaderGrace(1_500), LED, *[ALONE] * 9) == [1_500]


def test_a_leader_in_between_starts_it_again() -> None:
    grace = LeaderGrace(1_500)
    assert looks(grace, LED, ALONE, ALONE, LED, ALONE, ALONE, ALONE, LED) == [3_000]
    assert looks(grace, ALONE, ALONE, ALONE, start_ms=4_000) == [5_000]


def test_a_process_that_was_stopped_does_not_count_the_time() -> None:
    grace = LeaderGrace(LONGEST_STEP_MS + 1_000)
    assert looks(grace, LED, ALONE) == []
    assert looks(grace, *[ALONE] * 3, start_ms=3_600_000) == [3_600_500]


def test_zero_is_no_limit() -> None:
    assert looks(LeaderGrace(0), LED, *[ALONE] * 9, every_ms=5_000) == []
