"""Queries of state wait for each other, but neither in any number nor for longer than their leader does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from lockgate_common.recurring_log import RecurringLog
from lockgate_proto.messages import QueryOutcome, StateAnswer, StateQuery
from lockgate_taskmanager.runtime import state_queries
from lockgate_taskmanager.runtime.state_queries import MOST_WAITING, WAIT_MS, StateQueries

LONG_S = 20.0
BROKEN = 99


class SlowReader:
    """Opens for one query after the other, each when the test lets it. Those above 100 are ready; 99 is broken."""

    def __init__(self, *_opened: object) -> None:
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.closed = threading.Event()

    def is_ready(self, query: StateQuery) -> bool:
        if query.request == BROKEN:
            raise MemoryError
        return query.request > 100

    def answer(self, query: StateQuery) -> StateAnswer:
        if not self.is_ready(query):
            self.begun.release()
            assert self.may_end.acquire(timeout=LONG_S)
        return StateAnswer(query.request, QueryOutcome.ANSWERED)

    def prepare(self, query: StateQuery) -> StateAnswer:
        self.begun.release()
        assert self.may_end.acquire(timeout=LONG_S)
        return StateAnswer(query.request, QueryOutcome.ANSWERED, (), "opened")

    def close(self) -> None:
        self.closed.set()


class Asked:
    """A task manager's queries over a slow reader, with a clock that is set by hand."""

    def __init__(self, work_dir: Path) -> None:
        self.now_ms = 0
        self.answers: list[StateAnswer] = []
        self.answered = threading.Semaphore(0)
        self.queries = StateQueries(str(work_dir), self._report)
        reader = self.queries._reader
        assert isinstance(reader, SlowReader)
        self.reader = reader

    def _report(self, answer: StateAnswer) -> None:
        self.answers.append(answer)
        self.answered.release()

    def ask(self, *numbers: int) -> None:
        for number in numbers:
            self.queries.ask(StateQuery(number))

    def begin(self, number: int) -> None:
        self.ask(number)
        assert self.reader.begun.acquire(timeout=LONG_S)

    def stop(self) -> list[int]:
        """The numbers of the queries that were answered."""
        self.reader.may_end.release(1000)
        self.queries.stop()
        assert self.reader.closed.wait(LONG_S)
        return [answer.request for answer in self.answers]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asked]:
    monkeypatch.setattr(state_queries, "SnapshotReader", SlowReader)
    made = Asked(tmp_path)
    monkeypatch.setattr(state_queries, "monotonic_ms", lambda: made.now_ms)
    yield made
    made.reader.may_end.release(1000)


def test_a_query_that_its_leader_has_given_up_is_not_read(asked: Asked) -> None:
    asked.begin(1)
    asked.ask(2)
    asked.now_ms = 1
    asked.ask(3)
    asked.now_ms = WAIT_MS
    asked.reader.may_end.release()
    assert asked.reader.begun.acquire(timeout=LONG_S)  # the next that is read
    asked.reader.may_end.release()
    assert asked.stop() == [1, 3]


@pytest.mark.parametrize("open_only", [False, True])
def test_a_query_of_what_is_open_does_not_wait_for_what_is_opened(asked: Asked, open_only: bool) -> None:
    asked.queries.ask(StateQuery(1, open_only=open_only))
    assert asked.reader.begun.acquire(timeout=LONG_S)
    asked.ask(2, 101)
    assert asked.answered.acquire(timeout=LONG_S)
    assert [answer.request for answer in asked.answers] == [101]
    asked.reader.may_end.release(2)
    assert asked.answered.acquire(timeout=LONG_S)
    assert asked.answered.acquire(timeout=LONG_S)
    assert [(answer.request, answer.problem) for answer in asked.answers[1:]] == [(1, "opened" * open_only), (2, "")]


def test_queries_do_not_pile_up(asked: Asked) -> None:
    asked.begin(1)
    asked.ask(*range(2, MOST_WAITING + 3))
    (refused,) = asked.answers
    assert (refused.request, refused.outcome) == (MOST_WAITING + 2, QueryOutcome.TRY_AGAIN)
    assert "try again in a moment" in refused.problem
    asked.reader.may_end.release()
    assert asked.reader.begun.acquire(timeout=LONG_S)
    asked.ask(1000)  # there is room again
    assert len(asked.answers) == 2


def test_those_that_wait_are_dropped_at_the_end(asked: Asked) -> None:
    asked.begin(1)
    asked.ask(2, 3)
    asked.queries.stop()
    asked.reader.may_end.release()
    assert asked.reader.closed.wait(LONG_S)
    assert [answer.request for answer in asked.answers] == [1]


def test_a_query_that_breaks_the_look_at_what_is_open_is_answered_and_waits_no_more(asked: Asked) -> None:
    for _ in range(MOST_WAITING + 1):
        asked.ask(BROKEN)
        assert asked.answered.acquire(timeout=LONG_S)
    problems = {(answer.request, answer.outcome, answer.problem) for answer in asked.answers}
    assert problems == {(BROKEN, QueryOutcome.UNREADABLE_STATE, "the state cannot be read: MemoryError")}
    asked.ask(101)
    assert asked.answered.acquire(timeout=LONG_S)
    assert asked.answers[-1] == StateAnswer(101, QueryOutcome.ANSWERED)


def test_each_job_whose_state_cannot_be_read_is_logged_once_a_minute(
    asked: Asked, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_queries, "_trouble", RecurringLog(lambda: 0))
    for key in ("a-1", "a-2", "a-1"):
        asked.queries.ask(StateQuery(BROKEN, f"file:///storage/default/{key}/run/chk-7/_metadata"))
        assert asked.answered.acquire(timeout=LONG_S)
    asked.queries.ask(StateQuery(BROKEN, "file:///storage/default/a-2/run/chk-8/_metadata"))
    assert asked.answered.acquire(timeout=LONG_S)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        f"a query of state in file:///storage/default/{key}/run/chk-7/_metadata could not be answered"
        for key in ("a-1", "a-2")
    ]
