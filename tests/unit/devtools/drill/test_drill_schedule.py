"""What a drill attacks, and in which order."""

from __future__ import annotations

import random

from lockgate_devtools.drill.model import Target
from lockgate_devtools.drill.schedule import Repeated, Shuffled


def test_one_target_as_often_as_it_is_to_be_struck() -> None:
    schedule = Repeated(Target.STANDBY, 3)
    assert schedule.next_round(0, 0.0) == [Target.STANDBY] * 3
    assert schedule.next_round(2, 9.0) == [Target.STANDBY]
    assert not schedule.next_round(3, 9.0)


def test_a_seed_repeats_the_order_and_every_target_comes_once_before_any_comes_again() -> None:
    first, again, other = (Shuffled(60, random.Random(seed)).next_round(0, 0.0) for seed in (7, 7, 8))
    assert list(first) == list(again) != list(other)
    assert sorted(first, key=str) == sorted(Target, key=str)


def test_what_a_round_has_left_is_struck_in_the_next_one() -> None:
    schedule = Shuffled(60, random.Random(1))
    drawn = list(schedule.next_round(0, 0.0))
    assert list(schedule.next_round(5, 30.0)) == drawn[5:]
    second = schedule.next_round(len(drawn), 59.0)
    assert len(second) == len(Target)
    assert list(schedule.next_round(len(drawn) + 2, 61.0)) == list(second)[2:], "a round that has begun is completed"
    assert not schedule.next_round(2 * len(Target), 61.0)


def test_the_few_that_are_left_of_a_turn_and_the_next_turn_are_one_round() -> None:
    schedule = Shuffled(60, random.Random(1))
    drawn = list(schedule.next_round(0, 0.0))
    both = list(schedule.next_round(len(drawn) - 2, 30.0))
    assert both[:2] == drawn[-2:]
    assert sorted(both[2:], key=str) == sorted(Target, key=str)


def test_what_cannot_be_struck_here_is_left_out() -> None:
    some = [target for target in Target if not target.is_link]
    assert sorted(Shuffled(60, random.Random(7), some).next_round(0, 0.0), key=str) == sorted(some, key=str)
