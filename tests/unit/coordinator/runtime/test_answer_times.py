"""How long a leader may be silent, by how late it has been before."""

from __future__ import annotations

from lockgate_coordinator.runtime.answer_times import AnswerTimes


def test_a_leader_that_was_never_late_has_a_second() -> None:
    times = AnswerTimes()
    assert times.patience_ms(7) == 1_000
    for late_ms in (-20, 0, 5):
        times.noted(7, late_ms)
    assert times.patience_ms(7) == 1_000


def test_a_slow_leader_has_three_times_as_long_as_it_has_taken() -> None:
    times = AnswerTimes()
    times.noted(7, 900)
    times.noted(7, 10)
    assert times.patience_ms(7) == 2_700


def test_no_leader_has_longer_than_one_that_is_stuck_for_good() -> None:
    times = AnswerTimes()
    times.noted(7, 60_000)
    assert times.patience_ms(7) == 10_000


def test_a_late_answer_is_forgotten_after_half_a_minute_of_heartbeats() -> None:
    times = AnswerTimes()
    times.noted(7, 900)
    for _ in range(60):
        times.noted(7, 0)
    assert times.patience_ms(7) == 1_000


def test_the_next_leader_is_not_given_time_for_the_slowness_of_the_last_one() -> None:
    times = AnswerTimes()
    times.noted(7, 900)
    assert times.patience_ms(8) == 1_000
    times.noted(8, 0)
    assert times.patience_ms(8) == 1_000
