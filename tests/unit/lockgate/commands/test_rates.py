"""Rates out of totals."""

from __future__ import annotations

from lockgate.commands.rates import Rates


def test_a_rate_is_that_of_the_time_between_two_totals() -> None:
    rates = Rates()
    assert rates.add("a", 1_000, 10.0) == 0
    assert rates.add("a", 3_000, 12.0) == 1_000
    assert rates.add("b", 7_000, 12.0) == 0
    assert rates.add("a", 9_000, 13.0) == 6_000


def test_totals_too_close_to_each_other_leave_the_rate_as_it_is() -> None:
    rates = Rates()
    rates.add("a", 0, 0.0)
    rates.add("a", 100, 1.0)
    assert rates.add("a", 1_000, 1.1) == 100
    assert rates.add("a", 1_000, 2.0) == 900


def test_a_total_that_falls_is_a_restart() -> None:
    rates = Rates()
    rates.add("a", 100, 0.0)
    assert rates.add("a", 50, 1.0) == 0
    assert rates.add("a", 60, 2.0) == 10
