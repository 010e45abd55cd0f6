"""A clock that is behind processing time is a line in the log a minute, and one when it has caught up."""

from __future__ import annotations

import logging

import pytest
from lockgate_common.recurring_log import RecurringLog
from lockgate_taskmanager.state.late_clock import LateClock


class Hand:
    """A clock that the test sets, in milliseconds."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def late(hand: Hand, caplog: pytest.LogCaptureFixture) -> LateClock:
    caplog.set_level(logging.INFO)
    return LateClock("counts", RecurringLog(hand))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    caplog.clear()
    return found


WARNING = (
    "WARNING operator 'counts': the clock is 3600.0 s behind processing time, which runs at half"
    " speed until the clock has caught up, in 7200 s; wait, or start a new job from a savepoint without the state of"
    " this operator"
)
CAUGHT_UP = "INFO operator 'counts': the clock has caught up with processing time"


def test_a_clock_that_is_late_is_reported_once_a_minute_and_once_when_it_has_caught_up(
    late: LateClock, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(10):
        late.note(3_600_000)
    assert lines(caplog) == [WARNING]
    hand.now_ms = 60_000
    late.note(3_600_000)
    assert lines(caplog) == [f"{WARNING} (9 more times since the last line)"]
    for behind_ms in (900, 1, 0, 0):
        late.note(behind_ms)
    assert lines(caplog) == [CAUGHT_UP]


def test_a_second_is_tolerated(late: LateClock, caplog: pytest.LogCaptureFixture) -> None:
    for behind_ms in (0, 1_000, 0):
        late.note(behind_ms)
    assert lines(caplog) == []


def test_a_clock_that_comes_and_goes_logs_no_more_than_one_that_stays(
    late: LateClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(100):
        late.note(3_600_000)
        late.note(0)
    assert lines(caplog) == [WARNING, CAUGHT_UP]
