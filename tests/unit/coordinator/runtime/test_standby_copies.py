"""The orders for local copies: to whom, and to whom no more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from lockgate_coordinator.graph.slots import SlotsRequested
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.runtime.standby_copies import StandbyCopies
from lockgate_proto.messages import KeepCopies

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import attempt, word_count

T = TypeVar("T")
EVERY = {"tm-a": 0, "tm-b": 0, "tm-c": 2, "tm-d": 1}


class Term:
    """A job on tm-a and tm-b, and what is sent about its copies."""

    key, attempt = "job", attempt()

    def __init__(self, replicas: int = 1) -> None:
        self.driver = Driver(replace(word_count(), standby_replicas=replicas)).run()
        self.free = dict(EVERY)
        self.sent: list[tuple[str, int]] = []
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
    term.copies.ended(term._runner, term.free)
    assert term.sent == [(name, 0) for name in EVERY]
    term.copies.ended(term._runner, term.free)
    assert len(term.sent) == len(EVERY), "once"


def test_a_lost_place_is_requested_from_its_heir() -> None:
    term = running()
    request = SlotsRequested("job", 1, 2, ("", "tm-b"))
    assert term.copies.preferring(request) == request, "there are no copies yet"
    term.complete()
    assert term.copies.preferring(request).preferred == ("tm-c", "tm-b")


def test_a_job_without_copies_costs_no_message() -> None:
    term = running(0)
    assert term.complete() == []
    term.copies.ended(term._runner, term.free)
    assert term.sent == []
