"""Probing the task managers that an earlier leader's jobs ran on, and what each answer means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, cast

import pytest
from lockgate_common.addresses import ProbeAnswer
from lockgate_coordinator.runtime import absent_task_managers
from lockgate_coordinator.runtime.absent_task_managers import AbsentTaskManagers
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.workers import KeyedWorkers

UNTIL_MS = 2_000


class Term:
    """The part of a term around it, on a clock of its own: calls at a time wait in `due`."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.answers: Iterator[ProbeAnswer | OSError] = iter(())
        self.awaited = {"tm-a"}
        self.ended: list[str] = []
        self.due: list[tuple[int, Callable[[], None]]] = []
        self.absent = AbsentTaskManagers(cast(Actor, self), cast(KeyedWorkers, self), self.awaits, self.ended.append)

    def awaits(self, name: str) -> bool:
        return name in self.awaited and self.now_ms < UNTIL_MS

    def tell(self, call: Callable[[], Any]) -> bool:
        call()
        return True

    def at(self, due_ms: int, call: Callable[[], None]) -> None:
        self.due.append((due_ms, call))

    def submit(self, _key: str, _call: Callable[[], Any]) -> Future[ProbeAnswer]:
        found: Future[ProbeAnswer] = Future()
        answer = next(self.answers)
        if isinstance(answer, OSError):
            found.set_exception(answer)
        else:
            found.set_result(answer)
        return found

    def pass_time(self) -> None:
        """Until nothing is due any more."""
        while self.due:
            self.now_ms, call = self.due.pop(0)
            call()


@pytest.fixture
def term(monkeypatch: pytest.MonkeyPatch) -> Term:
    made = Term()
    monkeypatch.setattr(absent_task_managers, "monotonic_ms", lambda: made.now_ms)
    return made


def test_one_that_refuses_connections_has_ended_even_if_it_closes_its_port_a_little_later(term: Term) -> None:
    term.answers = iter((ProbeAnswer.ACCEPTED, OSError("no more threads"), ProbeAnswer.REFUSED))
    term.absent.look_for([("tm-a", "host:1")])
    term.pass_time()
    assert term.ended == ["tm-a"]
    assert 0 < term.now_ms < UNTIL_MS


@pytest.mark.parametrize("answer", [ProbeAnswer.ACCEPTED, ProbeAnswer.NONE])
def test_one_that_does_not_refuse_is_waited_for_to_the_end(term: Term, answer: ProbeAnswer) -> None:
    term.answers = iter([answer] * 100)
    term.absent.look_for([("tm-a", "host:1")])
    term.pass_time()
    assert term.ended == []
    assert term.now_ms >= UNTIL_MS


def test_one_that_stays_away_is_probed_less_and_less_often(term: Term) -> None:
    probes: list[int] = []

    def answers() -> Iterator[ProbeAnswer | OSError]:
        while True:
            probes.append(term.now_ms)
            yield ProbeAnswer.NONE

    term.answers = answers()
    term.absent.look_for([("tm-a", "host:1")])
    term.pass_time()
    assert probes == [0, 50, 150, 350, 750, 1550]


def test_one_that_registers_meanwhile_is_left_alone(term: Term) -> None:
    term.answers = iter((ProbeAnswer.NONE, ProbeAnswer.REFUSED))
    term.absent.look_for([("tm-a", "host:1"), ("registered", "host:2")])
    term.awaited.clear()
    term.pass_time()
    assert term.ended == []


def test_one_that_two_jobs_wait_for_is_probed_once_at_a_time(term: Term) -> None:
    term.answers = iter((ProbeAnswer.NONE, ProbeAnswer.REFUSED))
    term.absent.look_for([("tm-a", "host:1")])
    term.absent.look_for([("tm-a", "host:1")])
    term.pass_time()
    assert term.ended == ["tm-a"]
