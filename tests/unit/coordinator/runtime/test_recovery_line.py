"""Which job a leader dies of is found in a few deaths, and no other pays for it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lockgate_coordinator.runtime.recovery_line import MAX_DEATHS, RecoveryLine


class Died(Exception):
    """The leader's process is gone."""


class Leader:
    """One term over the counts that outlive it: calls run as they are queued. Only `survive` lets time pass."""

    def __init__(self, counts: dict[str, int], poison: str = "", runs: Callable[[str], bool] = lambda _: True) -> None:
        """poison: the job whose load ends the process. runs: whether a job gets through at once."""
        self.held: list[str] = []
        self.waits: list[str] = []
        self.needs_marks = True
        self.loaded: list[str] = []
        self._counts, self._poison, self._runs = counts, poison, runs
        self._queue: list[Callable[[], None]] = []
        persistence = SimpleNamespace(
            note_recovery=counts.__setitem__,
            clear_recovery_count=lambda key: counts.pop(key, None),
        )
        self._timers: list[Callable[[], None]] = []
        actor = SimpleNamespace(tell=self._queue.append, at=self._at)
        workers = SimpleNamespace(submit=self._submit)
        self.over = Event()
        fence = SimpleNamespace(over=self.over)
        self.line = RecoveryLine(cast(Any, fence), cast(Any, actor), cast(Any, workers), cast(Any, persistence))

    def _at(self, _due_ms: int, call: Callable[[], None]) -> SimpleNamespace:
        if call == self.line._prove:
            self._timers.append(call)
        return SimpleNamespace(cancel=lambda: None)

    def survive(self) -> Leader:
        """It has lived for PROVEN_MS. Raises Died."""
        while self._timers:
            self._timers.pop(0)()
        return self.recover()

    def _submit(self, _key: str, call: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_result(call())
        return answer

    def recover(self, *keys: str) -> Leader:
        """Raises Died."""
        for key in keys:
            self.line.enter(cast(Any, self._runner(key)), self._counts.get(key, 0))
        while self._queue:
            self._queue.pop(0)()
        return self

    def _runner(self, key: str) -> SimpleNamespace:
        def load(*, fresh: bool) -> None:
            assert not fresh
            assert not self.needs_marks or self._counts[key] >= 1, "nothing is looked at without a mark"
            self.loaded.append(key)
            if key == self._poison:
                raise Died
            if self._runs(key):
                self._queue.append(lambda: self.line.through(key))

        held, waits = self.held, self.waits
        return SimpleNamespace(key=key, load=load, hold_back=lambda _: held.append(key), wait=waits.append)


@pytest.mark.parametrize("order", [("poison", "a", "b"), ("a", "poison", "b"), ("a", "b", "poison")])
@pytest.mark.parametrize("slow", ["", "a"])
def test_the_poison_is_held_back_and_nothing_else(order: tuple[str, ...], slow: str) -> None:
    """slow: a job that the leader has not got through when the poison ends it."""
    counts: dict[str, int] = {}
    for _ in range(MAX_DEATHS):
        with pytest.raises(Died):
            Leader(counts, "poison", lambda key: key != slow or counts[key] > 1).recover(*order).survive()
        assert all(counts.get(key, 0) <= 1 for key in ("a", "b"))
    last = Leader(counts).recover(*order)
    assert last.held == ["poison"]
    assert sorted(last.loaded) == ["a", "b"]
    assert counts == {"poison": MAX_DEATHS}


def test_jobs_that_killed_no_leader_are_recovered_concurrently() -> None:
    assert sorted(Leader({}, runs=lambda _: False).recover("a", "b", "c").loaded) == ["a", "b", "c"]


def test_a_suspect_waits_for_the_one_before_it() -> None:
    counts = {"b": 2, "a": 1}
    leader = Leader(counts, runs=lambda _: False).recover("b", "a", "clean")
    assert sorted(leader.loaded) == ["a", "clean"]
    assert counts == {"a": 2, "b": 2, "clean": 1}
    leader.line.through("a")
    leader.recover().survive()
    assert leader.loaded[-1] == "b"
    assert counts == {"b": 3, "clean": 1}


def test_a_healthy_job_is_never_held_back_by_leaders_that_die_one_after_the_other() -> None:
    """Each is killed in the middle of the recovery, if it has begun."""
    counts: dict[str, int] = {}
    for _ in range(10):
        Leader(counts, runs=lambda _: False).recover("healthy")
        assert counts["healthy"] <= MAX_DEATHS - 1
    last = Leader(counts).recover("healthy")
    assert last.loaded == []
    last.survive()
    assert (last.loaded, last.held, counts) == (["healthy"], [], {})


def test_a_job_that_only_proven_leaders_die_of_is_held_back() -> None:
    counts = {"poison": MAX_DEATHS - 1}
    with pytest.raises(Died):
        Leader(counts, "poison").recover("poison").survive()
    assert Leader(counts).recover("poison", "other").held == ["poison"]


def test_jobs_that_no_leader_has_died_of_do_not_wait_for_the_proof() -> None:
    leader = Leader({"doubtful": MAX_DEATHS - 1, "suspect": 1}).recover("doubtful", "suspect", "clean")
    assert sorted(leader.loaded) == ["clean", "suspect"]
    assert leader.waits == ["2 leaders in a row died while they recovered it: this one lives without it first"]
    assert leader.survive().loaded[-1] == "doubtful"


def test_a_term_that_is_over_begins_nothing_any_more() -> None:
    counts = {"doubtful": MAX_DEATHS - 1}
    leader = Leader(counts).recover("doubtful")
    leader.over.set()
    assert leader.survive().loaded == []
    assert counts == {"doubtful": MAX_DEATHS - 1}


def test_a_term_that_is_about_to_end_leaves_no_mark() -> None:
    """Of jobs in recovery, of suspects that wait, and of jobs whose records are read while it stops."""
    counts = {"a": 1, "b": 1}
    leader = Leader(counts, runs=lambda _: False).recover("a", "b", "c")
    leader.line.withdraw()
    leader.line.through("a")
    leader.recover("late")
    assert leader.loaded == ["a", "c"]
    assert counts == {"a": 1, "b": 1}


def test_a_suspect_that_ends_lets_the_next_one_in() -> None:
    leader = Leader({"a": 1, "b": 1}, runs=lambda _: False).recover("a", "b")
    leader.line.through("a", has_ended=True)
    leader.recover()
    assert leader.loaded == ["a", "b"]


def test_a_mark_that_cannot_be_written_keeps_no_job_from_its_recovery() -> None:
    leader = Leader({})
    broken: Any = leader.line._workers
    whole = broken.submit

    def submit(key: str, call: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_exception(ValueError("on purpose"))
        return answer if key == "a" else whole(key, call)

    broken.submit = submit
    leader.needs_marks = False
    assert leader.recover("a").loaded == ["a"]
