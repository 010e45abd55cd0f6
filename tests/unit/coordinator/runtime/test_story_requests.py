"""A job's story is put together of what task managers answer, and says what is missing."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_coordinator.runtime.errors import Stopped
from lockgate_coordinator.runtime.story_requests import MOST_LINES, StoryRequests
from lockgate_proto.messages import StoryAnswer, StoryLine, StoryRequest

OWN = (StoryLine("c1-1"),)


class FakeTerm:
    """Task managers of which one is not connected, and a timer that is fired by hand."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, StoryRequest]] = []
        self.timers: list[Callable[[], None]] = []
        self.canceled = 0
        self.requests = StoryRequests(self, self._send)  # type: ignore[arg-type]

    def at(self, _due_ms: int, call: Callable[[], None]) -> Any:
        self.timers.append(call)
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.canceled += 1

    def _send(self, name: str, request: StoryRequest) -> bool:
        if name == "gone":
            return False
        self.sent.append((name, request))
        return True

    def ask(self, *names: str) -> Any:
        return self.requests.ask("job", "run", names, OWN, ("It began late.",))


def test_it_is_complete_when_all_have_answered() -> None:
    term = FakeTerm()
    answer = term.ask("tm-1", "tm-0", "gone")
    assert [name for name, _ in term.sent] == ["tm-0", "tm-1"]
    request = term.sent[0][1]
    assert (request.job_key, request.run_id, request.lines) == ("job", "run", MOST_LINES // 3)
    term.requests.answer("tm-0", StoryAnswer(request.request, (StoryLine("tm-0-1"),)))
    term.requests.answer("tm-0", StoryAnswer(request.request, (StoryLine("said twice"),)))
    assert not answer.done()
    term.requests.answer("tm-1", StoryAnswer(request.request, (StoryLine("tm-1-1"),), cut=True))
    story = answer.result()
    assert story.parts == (OWN, (StoryLine("tm-0-1"),), (StoryLine("tm-1-1"),))
    assert story.remarks == ("It began late.", "Older lines of task manager tm-1 are not shown.")
    assert term.canceled == 1


def test_one_that_does_not_answer_is_named() -> None:
    term = FakeTerm()
    answer = term.ask("tm-0", "tm-1")
    term.requests.answer("tm-1", StoryAnswer(term.sent[0][1].request))
    term.timers[0]()
    assert answer.result().remarks[1:] == ("Task manager tm-0 did not answer within 2000 ms: its lines are missing.",)
    term.requests.answer("tm-0", StoryAnswer(term.sent[0][1].request))  # too late: dropped


def test_an_answer_to_an_earlier_leader_is_not_taken_for_one_to_this() -> None:
    before, now = FakeTerm(), FakeTerm()
    before.ask("tm-0")
    asked = now.ask("tm-0")
    now.requests.answer("tm-0", StoryAnswer(before.sent[0][1].request, (StoryLine("of another job"),)))
    assert not asked.done()


def test_without_task_managers_it_is_the_leaders() -> None:
    assert FakeTerm().ask().result().parts == (OWN,)


def test_an_answer_longer_than_requested_is_truncated() -> None:
    term = FakeTerm()
    answer = term.ask("tm-0")
    many = tuple(StoryLine(f"tm-0-{number}") for number in range(2 * MOST_LINES))
    term.requests.answer("tm-0", StoryAnswer(term.sent[0][1].request, many))
    assert answer.result().parts[1] == many[-MOST_LINES:]


def test_the_end_of_the_term_fails_waiting_calls() -> None:
    term = FakeTerm()
    answer = term.ask("tm-0")
    term.requests.close()
    with pytest.raises(Stopped):
        answer.result()
