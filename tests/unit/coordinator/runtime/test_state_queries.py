"""A query of state goes to one task manager, and has one answer or one error, whatever becomes of that."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_coordinator.runtime.errors import Busy, Stopped
from lockgate_coordinator.runtime.state_queries import MOST_WAITING, Query, StateQueries
from lockgate_proto.messages import CompletedCheckpoint, KeyedValue, OperatorKeys, QueryOutcome, StateAnswer, StateQuery


def checkpoint(number: int) -> CompletedCheckpoint:
    return CompletedCheckpoint(number, f"file:///chk-{number}/_metadata", "sha256:0")


CHECKPOINT = checkpoint(7)
KEYS = (OperatorKeys("op", ('["a"]',)),)


class FakeTerm:
    """Registered task managers, and timers that are fired by hand."""

    def __init__(self, *registered: str) -> None:
        self.registered = registered
        self.sent: list[tuple[str, StateQuery]] = []
        self.timers: list[Callable[[], None]] = []
        self.canceled = 0
        self.queries = StateQueries(self, self._send)  # type: ignore[arg-type]

    def at(self, _due_ms: int, call: Callable[[], None]) -> Any:
        self.timers.append(call)
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.canceled += 1

    def _send(self, name: str, query: StateQuery) -> bool:
        self.sent.append((name, query))
        return name in self.registered

    def ask(self, job_key: str = "job", *names: str) -> Any:
        return self.queries.ask(Query(job_key, "run", CHECKPOINT, KEYS), names or self.registered)[1]

    def ask_newest(self, number: int = 7, run_id: str = "run", *names: str) -> tuple[int, Any]:
        """The id of the checkpoint that answers, and the answer. number: of the newest one."""
        query = Query("job", run_id, checkpoint(number), KEYS, is_newest=True)
        found, answer = self.queries.ask(query, names or self.registered)
        return found.checkpoint_id, answer

    def complete(self, number: int, run_id: str = "run") -> None:
        self.queries.completed("job", run_id, checkpoint(number))

    def opening(self) -> list[tuple[str, str, str]]:
        """What task managers were asked to open: which, where, of which operators."""
        return [
            (name, query.pointer, " ".join(operator.operator_id for operator in query.operators))
            for name, query in self.sent
            if query.open_only
        ]

    def opened(self, outcome: QueryOutcome = QueryOutcome.ANSWERED) -> None:
        """The answer to the last of these."""
        name, query = next(each for each in reversed(self.sent) if each[1].open_only)
        self.queries.answer(name, StateAnswer(query.request, outcome))

    def number(self, place: int = -1) -> int:
        return self.sent[place][1].request


def answered(number: int, *operators: str) -> StateAnswer:
    return StateAnswer(number, QueryOutcome.ANSWERED, tuple(KeyedValue(name) for name in operators or ("op",)))


def test_the_queries_of_a_job_go_to_one_task_manager_while_it_is_there() -> None:
    term = FakeTerm("tm-0", "tm-1", "tm-2")
    for _ in range(3):
        term.ask()
    (name,) = {name for name, _ in term.sent}
    assert term.sent[0][1] == StateQuery(term.number(0), "file:///chk-7/_metadata", "sha256:0", KEYS)
    rest = [other for other in term.registered if other != name]
    term.ask("job", *rest)
    assert term.sent[-1][0] in rest
    for number in range(40):
        term.ask(f"job-{number}")
    assert {name for name, _ in term.sent} == set(term.registered)


def test_an_answer_counts_once_and_only_from_whom_it_was_asked() -> None:
    term = FakeTerm("tm-0")
    answer = term.ask()
    right = answered(term.number())
    term.queries.answer("tm-9", right)
    term.queries.answer("tm-0", answered(term.number() + 1))
    assert not answer.done()
    term.queries.answer("tm-0", right)
    term.queries.answer("tm-0", StateAnswer(term.number(), QueryOutcome.UNREADABLE_STATE))
    assert answer.result() is right
    assert term.canceled == 1
    term.timers[0]()


def test_an_answer_to_an_earlier_leader_is_not_taken_for_one_to_this() -> None:
    before, now = FakeTerm("tm-0"), FakeTerm("tm-0")
    before.ask()
    asked = now.ask()
    now.queries.answer("tm-0", answered(before.number()))
    assert not asked.done()


@pytest.mark.parametrize("operators", [("other",), ("op", "op"), ("op", "other")])
def test_an_answer_for_other_keys_is_refused(operators: tuple[str, ...]) -> None:
    term = FakeTerm("tm-0")
    asked = term.ask()
    term.queries.answer("tm-0", answered(term.number(), *operators))
    with pytest.raises(Busy, match="answered for other keys"):
        asked.result()


def test_without_an_answer_there_is_a_reason() -> None:
    term = FakeTerm("tm-0")
    late, lost, over = term.ask(), term.ask(), None
    term.timers[0]()
    assert isinstance(late.exception(), Busy)
    term.queries.lost("tm-9")
    assert not lost.done()
    term.queries.lost("tm-0")
    assert "tm-0, which read the state, is gone" in str(lost.exception())
    over = term.ask()
    term.queries.close()
    assert isinstance(over.exception(), Stopped)
    with pytest.raises(Busy, match="no task manager is registered"):
        FakeTerm().ask().result()


def test_queries_do_not_pile_up() -> None:
    term = FakeTerm("tm-0")
    for _ in range(MOST_WAITING):
        term.ask()
    with pytest.raises(Busy, match="are waiting for answers already"):
        term.ask().result()
    term.queries.answer("tm-0", answered(term.number(0)))
    assert not term.ask().done()


def warm(*registered: str) -> FakeTerm:
    """Checkpoint 7 is open."""
    term = FakeTerm(*registered)
    assert [term.ask_newest()[0], term.ask_newest()[0]] == [7, 7]
    term.opened()
    return term


def test_each_new_checkpoint_is_opened_while_the_one_before_answers() -> None:
    term = warm("tm-0", "tm-1")
    (name, *_), *_ = term.sent
    term.complete(8)
    assert term.opening() == [(name, "file:///chk-7/_metadata", "op"), (name, "file:///chk-8/_metadata", "op")]
    assert term.ask_newest(8)[0] == 7
    assert term.sent[-1][1].pointer == "file:///chk-7/_metadata"
    term.opened()
    assert term.ask_newest(8)[0] == 8
    assert len(term.opening()) == 2


def test_a_checkpoint_that_is_named_answers_itself() -> None:
    term = warm("tm-0")
    term.complete(8)
    query = Query("job", "run", checkpoint(8), KEYS)
    found, _ = term.queries.ask(query, term.registered)
    assert found.checkpoint_id == 8


@pytest.mark.parametrize(
    "outcome", [QueryOutcome.UNREADABLE_STATE, QueryOutcome.CHECKPOINT_GONE, QueryOutcome.NOT_ANSWERABLE]
)
def test_what_cannot_be_opened_is_not_asked_for_again(outcome: QueryOutcome) -> None:
    term = warm("tm-0")
    term.complete(8)
    term.opened(outcome)
    assert term.ask_newest(8)[0] == 7
    assert len(term.opening()) == 2
    term.complete(9)
    assert term.opening()[-1][1] == "file:///chk-9/_metadata"


def test_a_query_moves_on_when_what_was_open_is_gone() -> None:
    term = warm("tm-0")
    term.complete(8)
    number, answer = term.ask_newest(8)
    gone = StateAnswer(term.number(), QueryOutcome.CHECKPOINT_GONE)
    term.queries.answer("tm-0", gone)
    assert (number, answer.result()) == (7, gone)
    assert term.ask_newest(8)[0] == 8


def test_another_run_reader_or_leader_begins_with_its_newest_checkpoint() -> None:
    term = warm("tm-0", "tm-1")
    (name, *_), *_ = term.sent
    (other,) = set(term.registered) - {name}
    term.complete(8)
    assert term.ask_newest(8, "run", other)[0] == 8  # the reader is away
    term = warm("tm-0")
    assert term.ask_newest(1, "another run")[0] == 1
    term = warm("tm-0")
    term.queries.lost("tm-0")
    term.complete(8)
    assert term.ask_newest(8)[0] == 8
    term = warm("tm-0")
    term.queries.ended("job")
    assert term.ask_newest(8)[0] == 8


def test_a_late_answer_about_another_run_changes_nothing() -> None:
    term = warm("tm-0")
    term.complete(8)
    late = term.sent[-1][1].request
    term.ask_newest(1, "another run")
    term.queries.answer("tm-0", StateAnswer(late, QueryOutcome.ANSWERED))
    assert term.ask_newest(1, "another run")[0] == 1
    assert [pointer for _, pointer, _ in term.opening()][-1] == "file:///chk-1/_metadata"
