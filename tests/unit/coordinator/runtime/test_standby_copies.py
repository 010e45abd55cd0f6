"""The orders for local copies: to whom, and to whom no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from lockgate_coordinator.graph.slots import RequestSlots
from lockgate_coordinator.job import local_copies
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.runtime.standby_copies import StandbyCopies
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_proto.messages import CopiesKept, CopyStatus, KeepCopies, StandbyStatus

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import attempt, word_count

T = TypeVar("T")
EVERY = {"tm-a": 0, "tm-b": 0, "tm-c": 2, "tm-d": 1}


class Term:
    """A job on tm-a and tm-b, and what is sent about its copies."""

    key, attempt = attempt().job_key, attempt()

    def __init__(self, replicas: int = 1) -> None:
        self.driver = Driver(replace(word_count(), standby_replicas=replicas)).run()
        self.free = dict(EVERY)
        self.sent: list[tuple[str, int]] = []
        self.files: dict[str, int] = {}
        self.copies = StandbyCopies(self._send, lambda: self.free)

    def query(self, query: Callable[[JobMaster], T]) -> T:
        return query(self.driver.master)

    def complete(self) -> list[tuple[str, int]]:
        """The receivers of orders for the next checkpoint, and its id."""
        self.sent.clear()
        self.driver.complete()
        self.copies.completed(self._runner)
        return sorted(self.sent)

    @property
    def _runner(self) -> Any:
        return self

    def _send(self, name: str, order: KeepCopies) -> None:
        self.sent.append((name, order.checkpoint_id))
        self.files[name] = len(order.files)

    def end(self) -> None:
        self.copies.ended(self.key, self.attempt.run_id, self.free)

    def done(self, name: str, checkpoint_id: int, files: int | None = None, problem: str = "") -> None:
        """A keeper says what it has of an order; None: every file."""
        count = self.files[name] if files is None else files
        self.copies.reported(name, CopiesKept(attempt(), checkpoint_id, count, problem))

    @property
    def status(self) -> StandbyStatus:
        found = self.copies.status(self.key)
        assert found is not None
        return found

    def keeper(self, name: str) -> CopyStatus:
        (found,) = (keeper for keeper in self.status.keepers if keeper.task_manager_id == name)
        return found


def running(replicas: int = 1) -> Term:
    term = Term(replicas)
    term.copies.runs(term._runner)
    return term


def test_the_first_order_of_a_leader_reaches_the_keepers_of_earlier_ones_too() -> None:
    term = running()
    assert term.complete() == [(name, 1) for name in sorted(EVERY)]
    assert term.complete() == [("tm-a", 2), ("tm-b", 2), ("tm-c", 2)]


def test_a_former_keeper_drops_what_it_has() -> None:
    term = running()
    term.complete()
    term.free["tm-c"] = 0
    assert term.complete() == [("tm-a", 2), ("tm-b", 2), ("tm-c", 2), ("tm-d", 2)]
    assert term.complete() == [("tm-a", 3), ("tm-b", 3), ("tm-d", 3)]


def test_at_the_end_all_drop_it_also_where_this_leader_has_ordered_nothing() -> None:
    term = running()
    term.end()
    assert term.sent == [(name, 0) for name in EVERY]


def test_a_job_that_has_not_run_under_this_leader_may_have_copies_of_an_earlier_one() -> None:
    """It was held back, or cancelled while it was taken over, or its result was there."""
    term = Term()
    term.end()
    assert term.sent == [(name, 0) for name in EVERY]
    term.copies.added("tm-late")
    assert term.sent[len(EVERY) :] == [("tm-late", 0)]


@pytest.mark.parametrize("missed_orders", [True, False])
def test_only_a_task_manager_that_missed_orders_hears_of_runs_that_ended_before(missed_orders: bool) -> None:
    added: list[str] = []
    term: Any = SimpleNamespace(
        _settle_running=lambda _: None,
        _claims=lambda _: (),
        slots=lambda _: None,
        _copies=SimpleNamespace(added=added.append),
        jobs={},
    )
    task_manager: Any = SimpleNamespace(
        task_manager_id="tm", exchange_address="tm:1", slots=1, incarnation="a", missed_orders=missed_orders
    )
    LeaderTerm.task_manager_added(term, task_manager)
    assert added == ["tm"] * missed_orders


def test_a_lost_place_is_requested_from_its_heir() -> None:
    term = running()
    request = RequestSlots(Term.key, 1, 2, ("", "tm-b"))
    assert term.copies.preferring(request) == request, "there are no copies yet"
    term.complete()
    assert term.copies.preferring(request).preferred == ("tm-c", "tm-b")


def test_a_job_without_copies_costs_no_message() -> None:
    term = running(0)
    assert term.complete() == []
    term.end()
    assert term.sent == []


def test_a_standby_is_complete_once_it_says_so_of_the_newest_snapshot() -> None:
    term = running()
    assert term.copies.status(Term.key) is None
    term.complete()
    assert (term.status.wanted, term.status.complete) == (2, 0), "tm-c for tm-a and for tm-b"
    assert term.keeper("tm-c").stands_by_for == ("tm-a", "tm-b")
    assert term.keeper("tm-a").stands_by_for == ()
    term.done("tm-c", 1)
    assert term.status.complete == 2
    term.complete()
    assert (term.status.complete, term.keeper("tm-c").complete_id, term.keeper("tm-c").files_kept) == (0, 1, None)
    term.done("tm-c", 1)
    assert term.status.complete == 0, "late, and of the snapshot before"
    term.done("tm-c", 2)
    assert (term.status.complete, term.keeper("tm-c").complete_id) == (2, 2)


def test_a_standby_that_lacks_files_says_why_and_is_not_complete() -> None:
    term = running()
    term.complete()
    term.done("tm-c", 1, term.files["tm-c"] + 1, "the disk is full")
    assert term.status.complete == 0
    assert term.keeper("tm-c").problem == "the disk is full"


def test_the_copies_of_a_lost_task_manager_are_gone() -> None:
    term = running()
    term.complete()
    term.done("tm-c", 1)
    term.copies.lost("tm-c")
    assert (term.status.complete, term.keeper("tm-c").complete_id) == (0, 0)


def test_without_enough_free_slots_more_is_wanted_than_there_is() -> None:
    term = running(3)
    term.complete()
    for name in term.status.keepers:
        term.done(name.task_manager_id, 1)
    assert (term.status.wanted, term.status.complete) == (6, 4)


def test_of_too_many_files_no_standby_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copies, "MOST_FILES", -1)
    term = running()
    term.complete()
    term.done("tm-c", 1)
    assert term.status.complete == 0
    assert "no copies are kept" in term.keeper("tm-c").problem


def test_a_report_that_the_leader_has_not_asked_for_changes_nothing() -> None:
    term = running()
    term.copies.reported("tm-c", CopiesKept(attempt(), 1))
    term.copies.reported("tm-c", CopiesKept())
    assert term.copies.status(Term.key) is None
    term.complete()
    term.copies.reported("tm-d", CopiesKept(attempt(), 1))
    term.copies.reported("tm-c", CopiesKept(replace(attempt(), run_id="another"), 1))
    assert term.status.complete == 0
    term.end()
    assert term.copies.status(Term.key) is None
