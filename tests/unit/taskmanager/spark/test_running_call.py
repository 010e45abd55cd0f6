"""The call of a program that is interrupted, and its close, which closes everything and ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest
from lockgate_taskmanager.spark import user_code
from lockgate_taskmanager.spark.running_call import RunningCall
from lockgate_taskmanager.task.program import Canceled, DataError

WAIT_S = 60.0


class Hand:
    """A clock that the test sets, in seconds."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Jobs:
    """Counts interruptions, and keeps the calls whose stacks were asked for."""

    interruptions = 0

    def __init__(self) -> None:
        self.logged: list[tuple[int, float]] = []

    def adopt_thread(self) -> None: ...

    def interrupt(self) -> None:
        self.interruptions += 1

    def log_stacks(self, thread: int, took_s: float) -> None:
        self.logged.append((thread, took_s))


class Hanging:
    """An author's object whose close never returns."""

    def __init__(self) -> None:
        self.inside = threading.Event()

    def close(self) -> None:
        self.inside.set()
        while True:
            pass


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def call(hand: Hand) -> RunningCall:
    return RunningCall(Jobs(), hand)


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads whose author's code was to be ended."""
    found: list[int] = []
    end = user_code.end
    monkeypatch.setattr(user_code, "end", lambda thread: found.append(thread) or end(thread))
    return found


def test_each_close_that_hangs_is_interrupted_after_a_time_of_its_own(
    hand: Hand, call: RunningCall, ends: list[int]
) -> None:
    closing = [Hanging(), Hanging()]
    steps = [lambda item=item: user_code.close_quietly(item, "operator 'f'") for item in closing]
    thread = threading.Thread(target=call.close, args=(steps,), daemon=True)
    call.cancel()
    hand.now_s += 1000  # cancelled long before
    thread.start()
    for number, item in enumerate(closing):
        assert item.inside.wait(WAIT_S)
        hand.now_s += 3.9
        before = len(ends)
        call.cancel()
        assert len(ends) == before, "it may still be sending something"
        assert call.took_s() == pytest.approx(3.9)
        hand.now_s += 0.1
        call.cancel()
        assert ends[before:] == [thread.ident], number
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert call.took_s() is None


def test_everything_is_closed_and_the_first_error_is_raised(
    call: RunningCall, caplog: pytest.LogCaptureFixture
) -> None:
    closed: list[str] = []

    def failing(error: BaseException) -> Callable[[], None]:
        def close() -> None:
            closed.append(str(error))
            raise error

        return close

    with pytest.raises(OSError, match="first"), caplog.at_level(logging.ERROR):
        call.close([failing(OSError("first")), failing(SystemExit("second")), lambda: closed.append("last")])
    assert closed == ["first", "second", "last"]
    assert [record.getMessage() for record in caplog.records] == ["closing, too: SystemExit: second"]
    call.close([lambda: closed.append("again")])
    assert closed == ["first", "second", "last"]


def test_the_error_of_a_cancelled_call_is_its_cancellation(call: RunningCall) -> None:
    with pytest.raises(DataError), call.running():
        raise DataError("bad record")

    def interrupted() -> None:
        with call.running():
            call.cancel()
            raise DataError("a job that was interrupted")

    with pytest.raises(Canceled):
        interrupted()
    with pytest.raises(Canceled), call.running():
        pytest.fail("cancelled before")


def canceled(call: RunningCall, body: Callable[[], None]) -> None:
    """Runs a call that is cancelled in it."""
    with pytest.raises(Canceled), call.running():
        body()


def test_spark_jobs_are_interrupted_again_but_not_those_of_a_closed_program(hand: Hand) -> None:
    jobs = Jobs()
    call = RunningCall(jobs, hand)

    def body() -> None:
        call.cancel()
        call.cancel()

    canceled(call, body)
    assert jobs.interruptions == 2
    call.close([call.cancel])
    assert jobs.interruptions == 2


def test_between_two_calls_there_is_no_job_to_interrupt(hand: Hand) -> None:
    jobs = Jobs()
    call = RunningCall(jobs, hand)
    call.cancel()
    assert jobs.interruptions == 0
    with pytest.raises(Canceled), call.running():
        pytest.fail("cancelled before")


@pytest.mark.parametrize(
    ("took_s", "interruptions"),
    [
        ((0.09, 0.08), [0, 0, 1, 2]),
        ((0.11,), [1, 2, 3, 4]),
        ((0.3, *[0.001] * 100, *[0.01] * 7), [1, 2, 3, 4]),  # ticks say nothing, and commits little
        ((0.3, *[0.02] * 8), [0, 0, 1, 2]),
        ((0.004,), [1, 2, 3, 4]),
    ],
)
def test_a_call_like_those_that_were_short_is_left_alone_for_a_while(
    hand: Hand, took_s: tuple[float, ...], interruptions: list[int]
) -> None:
    jobs = Jobs()
    call = RunningCall(jobs, hand)
    for each_s in took_s:
        with call.running():
            hand.now_s += each_s
    found = []

    def body() -> None:
        for _ in interruptions:
            call.cancel()
            found.append(jobs.interruptions)
            hand.now_s += 0.101

    canceled(call, body)
    assert found == interruptions


@pytest.mark.parametrize(("took_s", "is_logged"), [(59.0, False), (270.0, True)])
def test_where_a_call_stands_is_logged_once_if_it_is_cancelled_after_long(
    hand: Hand, took_s: float, is_logged: bool
) -> None:
    jobs = Jobs()
    call = RunningCall(jobs, hand)
    calls = call.running()
    calls.__enter__()
    hand.now_s += took_s
    call.cancel()
    call.cancel()
    with pytest.raises(Canceled):
        calls.__exit__(None, None, None)
    assert jobs.logged == ([(threading.get_ident(), took_s)] if is_logged else [])


def test_between_two_calls_there_is_nothing_to_log(hand: Hand) -> None:
    jobs = Jobs()
    call = RunningCall(jobs, hand)
    with call.running():
        pass
    hand.now_s += 1_000
    call.cancel()
    assert jobs.logged == []
