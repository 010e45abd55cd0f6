"""How long one subtask takes, measured by another."""

from __future__ import annotations

import pytest
from lockgate_coordinator.job.pace import EffortWindow, effort_window, times_as_long, together
from lockgate_proto.messages import SubtaskEffort

EACH_US, RECORD_US, WIDTH = 20_000, 10, 100


def work(
    batches: int, records: int, *, slower: float = 1.0, width: int = WIDTH, quickest: int | None = None
) -> EffortWindow:
    """Batches of even size on a place that is so many times slower: 20 ms each and 10 us for each record."""
    busy = int((batches * EACH_US + records * RECORD_US) * slower)
    shortest = busy // batches if quickest is None else quickest
    return EffortWindow(10_000, busy, batches, records, records * width, shortest)


USUAL = work(50, 900_000, quickest=EACH_US + 1_000)


@pytest.mark.parametrize(
    ("own", "times"),
    [
        (USUAL, 1.0),
        (work(50, 900_000, slower=4), 4.0),
        (work(50, 100_000, slower=4), 4.0),  # its batches have become small, as those of a slow source do
        (work(50, 9_000_000), 1.0),  # a hot key: more of the same
        (work(500, 5_000), 1.0),  # many small batches cost time for nothing but themselves
        (work(50, 900_000, slower=4, width=400), 1.0),  # long records
        (work(50, 900_000, slower=0.25), 0.25),
    ],
)
def test_only_a_slow_place_makes_a_subtask_slow(own: EffortWindow, times: float) -> None:
    assert times_as_long(own, USUAL) == pytest.approx(times, rel=0.1)


def test_without_a_short_batch_to_learn_from_small_batches_get_the_benefit_of_the_doubt() -> None:
    even = work(50, 900_000)
    assert times_as_long(work(50, 100_000, slower=4), even) < 1.0
    assert times_as_long(work(50, 900_000, slower=4), even) == pytest.approx(4.0)


def test_records_without_a_size_are_compared_by_number() -> None:
    assert times_as_long(work(50, 900_000, slower=3, width=0), USUAL) == pytest.approx(3.0)


def test_an_effort_window_is_the_time_between_two_reports() -> None:
    before, now = SubtaskEffort(1_000, 2, 30, 400, 450), SubtaskEffort(501_000, 12, 130, 1_400, 300)
    found = effort_window(before, now, 1_000)
    assert found == EffortWindow(1_000, 500_000, 10, 100, 1_000, 300)
    assert found.busy_share == 0.5


def test_several_stretches_are_one() -> None:
    parts = [EffortWindow(10, 1, 2, 3, 4, 9), EffortWindow(20, 5, 6, 7, 8, 5)]
    assert together(parts) == EffortWindow(30, 6, 8, 10, 12, 5)
