"""A subtask's time is busy, idle or back-pressured, and adds up."""

from __future__ import annotations

import contextlib

import pytest
from lockgate_taskmanager.runtime import time_shares
from lockgate_taskmanager.runtime.time_shares import Share, TimeShares


@pytest.fixture
def hand(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that the test sets, in seconds."""
    now = [0]
    monkeypatch.setattr(time_shares.time, "monotonic_ns", lambda: now[0] * 1_000_000_000)
    return now


def test_each_wait_counts_for_its_share(hand: list[int]) -> None:
    shares = TimeShares()
    hand[0] = 3
    with shares.waits(Share.IDLE):
        hand[0] = 5
    hand[0] = 6
    with contextlib.suppress(KeyError), shares.waits(Share.BACKPRESSURED):
        hand[0] = 10
        raise KeyError
    hand[0] = 11
    assert shares.seconds() == {Share.BUSY: 5.0, Share.IDLE: 2.0, Share.BACKPRESSURED: 4.0}


def test_a_wait_in_progress_counts(hand: list[int]) -> None:
    shares = TimeShares()
    with shares.waits(Share.IDLE):
        hand[0] = 60
        assert shares.seconds()[Share.IDLE] == 60
        hand[0] = 61
        assert shares.seconds()[Share.IDLE] == 61
    assert sum(shares.seconds().values()) == 61
