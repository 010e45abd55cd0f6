"""Signals that end a drill, a demo or a benchmark, in whatever code they arrive."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator

import pytest
from lockgate_devtools.cluster.foreground import Stopped, stopped_by_signals


@pytest.fixture(autouse=True)
def _former_handlers() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    former = {number: signal.signal(number, signal.SIG_DFL) for number in numbers}
    yield
    for number, handler in former.items():
        signal.signal(number, handler)


class _Closing:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def _lost_in_del() -> None:
    _Closing()


def _lost_in_a_callback_that_keeps_it() -> None:
    try:
        signal.raise_signal(signal.SIGINT)
    except Stopped as error:
        kept = error  # which has this frame in its traceback
        assert kept


@pytest.mark.parametrize("lose", [_lost_in_del, _lost_in_a_callback_that_keeps_it])
def test_after_a_signal_that_was_lost_the_next_one_stops(
    lose: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "unraisablehook", lambda _lost: None)
    with stopped_by_signals():
        lose()
        lose()
        with pytest.raises(Stopped):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_during_the_stop_does_not_cut_it_short() -> None:
    steps = []

    def interrupted() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            steps.append("stopped in order")

    with pytest.raises(Stopped), stopped_by_signals():
        interrupted()
    assert steps


def test_a_hang_up_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    with stopped_by_signals():
        signal.raise_signal(signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
