"""A failure that repeats is one line a minute."""

from __future__ import annotations

import logging

import pytest
from lockgate_common.recurring_log import RecurringLog

LOG = logging.getLogger("x")


class Hand:
    """A clock that the test sets."""

    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def recurring(hand: Hand) -> RecurringLog:
    return RecurringLog(hand)


def _lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_a_dependency_that_is_away_for_minutes_logs_a_line_a_minute(
    recurring: RecurringLog, hand: Hand, caplog: pytest.LogCaptureFixture
) -> None:
    for second in range(150):
        hand.now_ms = second * 1_000
        recurring.warning(LOG, "zookeeper", "no answer: %s", "refused")
    assert _lines(caplog) == [
        "no answer: refused",
        "no answer: refused (59 more times since the last line)",
        "no answer: refused (59 more times since the last line)",
    ]


def test_each_topic_is_bounded_separately(recurring: RecurringLog, caplog: pytest.LogCaptureFixture) -> None:
    for key in ("a", "b", "a", "b"):
        recurring.error(LOG, key, "job %s", key)
    assert _lines(caplog) == ["job a", "job b"]


def test_the_line_names_the_place_that_failed(recurring: RecurringLog, caplog: pytest.LogCaptureFixture) -> None:
    recurring.warning(LOG, "a", "first")
    assert caplog.records[0].funcName == "test_the_line_names_the_place_that_failed"


def test_topics_are_forgotten_at_last(recurring: RecurringLog, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1_001):
        recurring.warning(LOG, str(number), "x")
    caplog.clear()
    recurring.warning(LOG, "0", "again")
    recurring.warning(LOG, "1000", "left out")
    assert _lines(caplog) == ["again"]
