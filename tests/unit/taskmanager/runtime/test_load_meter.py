"""A subtask's load covers the last seconds, and its lag is the clock minus its watermark."""

from __future__ import annotations

import pytest
from lockgate_common.backlog import Backlog
from lockgate_proto.messages import SubtaskLoad, Watermark
from lockgate_taskmanager.runtime import load_meter, time_shares
from lockgate_taskmanager.runtime.load_meter import LoadMeter
from lockgate_taskmanager.runtime.time_shares import Share, TimeShares
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets, in seconds: monotonic, and since 1970."""
    now = [0.0]
    monkeypatch.setattr(time_shares.time, "monotonic_ns", lambda: int(now[0] * 1_000_000_000))
    monkeypatch.setattr(load_meter, "unix_ms", lambda: int(now[0] * 1_000))
    return now


def test_the_load_is_that_of_the_last_seconds(hand: list[float]) -> None:
    shares = TimeShares()
    meter = LoadMeter(shares)
    hand[0] = 10
    assert meter.load() == SubtaskLoad(1_000, 0)
    for _ in range(8):  # two seconds: a quarter busy, a quarter waits for outputs
        hand[0] += 0.25
        with shares.waits(Share.BACKPRESSURED):
            hand[0] += 0.25
        with shares.waits(Share.IDLE):
            hand[0] += 0.5
        found = meter.load()
    assert found == SubtaskLoad(250, 250)
    with shares.waits(Share.IDLE):
        hand[0] += 60
        assert meter.load().busy_permille < 50
        hand[0] += 1
        assert meter.load() == SubtaskLoad(0, 0)


def test_its_memory_is_bounded(hand: list[float]) -> None:
    meter = LoadMeter(TimeShares())
    for _ in range(10_000):
        hand[0] += 0.01
        meter.load()
    assert len(meter._marks) < 10


def test_the_backlog_is_asked_for_once_a_second_and_is_absent_where_unknown(hand: list[float]) -> None:
    meter, asked = LoadMeter(TimeShares()), list[Backlog]()

    def backlog() -> Backlog:
        asked.append(Backlog(records=len(asked), splits=7))
        return asked[-1]

    load = meter.load()
    assert load == SubtaskLoad(load.busy_permille)
    for _ in range(100):
        meter.polled(backlog)
        hand[0] += 0.03
    assert len(asked) == 4
    load = meter.load()
    assert (load.has_backlog_records, load.backlog_records) == (True, 3)
    assert (load.has_backlog_splits, load.backlog_splits) == (True, 7)
    assert (load.has_backlog_bytes, load.backlog_bytes) == (False, 0)


@pytest.mark.usefixtures("hand")
def test_two_looks_at_once_divide_nothing_by_nothing() -> None:
    assert LoadMeter(TimeShares()).load() == SubtaskLoad(0, 0)


def _event_time(meter: LoadMeter) -> tuple[int | None, int | None]:
    load = meter.load()
    assert load.has_watermark or not (load.watermark_unix_ms or load.has_lag)
    return load.watermark_unix_ms if load.has_watermark else None, load.lag_ms if load.has_lag else None


def test_heartbeats_carry_it_once_a_second(hand: list[float]) -> None:
    meter = LoadMeter(TimeShares())
    reported = []
    for _ in range(10):
        reported.append(meter.news() is not None)
        hand[0] += 0.5
    assert reported == [True, False] * 5


def test_lag_is_the_clock_minus_the_watermark(hand: list[float]) -> None:
    meter = LoadMeter(TimeShares())
    hand[0] = 50
    assert _event_time(meter) == (None, None)
    meter.passed(Watermark(48_500))
    assert _event_time(meter) == (48_500, 1_500)
    meter.passed(Watermark(0))
    assert _event_time(meter) == (0, 50_000)


@pytest.mark.usefixtures("hand")
@pytest.mark.parametrize(
    ("watermark", "shown"),
    [
        (Watermark(MIN_WATERMARK), (None, None)),
        (Watermark(MAX_WATERMARK), (None, None)),
        (Watermark(7_000, idle=True), (7_000, None)),
    ],
)
def test_an_unset_final_or_idle_watermark_has_no_lag(
    watermark: Watermark, shown: tuple[int | None, int | None]
) -> None:
    meter = LoadMeter(TimeShares())
    meter.passed(watermark)
    assert _event_time(meter) == shown
    assert meter.behind_ms is None
