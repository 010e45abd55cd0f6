"""When Spark counts as lost in a JVM that lives, and when it does not. A session of the test's own stands in for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_taskmanager.spark import health as module
from lockgate_taskmanager.spark.health import TRIES, Health

WAIT_S = 60.0


class Session:
    """A classic session: what its jobs do next, and how many were asked for."""

    def __init__(self) -> None:
        self.stopped = False
        self.fails = 0  # so many jobs fail from now on
        self.active: tuple[int, ...] = ()
        self.asked = threading.Semaphore(0)
        tracker = SimpleNamespace(getActiveJobIds=lambda: self.active)
        context = SimpleNamespace(isStopped=lambda: self.stopped, statusTracker=lambda: tracker)
        nothing = dict.fromkeys(("addJobTag", "removeJobTag", "setInterruptOnCancel", "setJobDescription"))
        self.sparkContext = SimpleNamespace(
            _jsc=SimpleNamespace(sc=lambda: context), **{name: lambda *_: None for name in nothing}
        )

    def range(self, *_: int) -> Any:
        return SimpleNamespace(count=self._count)

    def _count(self) -> int:
        self.asked.release()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the block manager is gone\nat some.java.Class")
        return 1


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(module, "_PAUSE_S", 0.01)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def lost() -> SimpleQueue[str]:
    return SimpleQueue()


@pytest.fixture
def health(session: Session, lost: SimpleQueue[str]) -> Iterator[Health]:
    health = Health(session)
    health.watch(lost.put)
    yield health
    health.close()


def _settled(session: Session, health: Health, times: int) -> None:
    """Asked so often, each time after a failure."""
    for _ in range(times):
        health.suspect()
        assert session.asked.acquire(timeout=WAIT_S)


@pytest.mark.usefixtures("health")
def test_a_stopped_context_is_lost_without_a_job(session: Session, lost: SimpleQueue[str]) -> None:
    session.stopped = True
    assert lost.get(timeout=WAIT_S) == "Spark can no longer run jobs here: its SparkContext was stopped"
    assert not session.asked.acquire(blocking=False)


def test_jobs_that_fail_one_after_the_other_after_a_failure(
    session: Session, health: Health, lost: SimpleQueue[str]
) -> None:
    session.fails = TRIES
    health.suspect()
    assert lost.get(timeout=WAIT_S) == (
        "Spark can no longer run jobs here: the health check job fails: the block manager is gone"
    )


def test_a_failure_that_is_not_sparks_costs_one_small_job(
    session: Session, health: Health, lost: SimpleQueue[str]
) -> None:
    _settled(session, health, 1)
    health.close()
    assert not session.asked.acquire(blocking=False)
    assert lost.empty()


def test_any_number_of_hiccups_is_tolerated(session: Session, health: Health, lost: SimpleQueue[str]) -> None:
    for _ in range(5):
        session.fails = TRIES - 1
        health.suspect()
        for _ in range(TRIES):
            assert session.asked.acquire(timeout=WAIT_S)
    assert lost.empty()


def test_it_is_asked_while_it_has_nothing_to_do(
    session: Session, lost: SimpleQueue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    session.fails = TRIES
    health = Health(session)
    health.watch(lost.put)
    assert "the health check job fails" in lost.get(timeout=WAIT_S)


def test_jobs_that_run_are_proof_enough(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    looks = threading.Semaphore(0)
    session.active = (7,)
    tracker = SimpleNamespace(getActiveJobIds=lambda: (looks.release(), session.active)[1])
    session.sparkContext._jsc.sc().statusTracker = lambda: tracker
    health = Health(session)
    health.watch(lambda _: None)
    for _ in range(5):
        assert looks.acquire(timeout=WAIT_S)
    health.close()
    assert not session.asked.acquire(blocking=False)


def test_a_planned_end_is_not_a_loss(session: Session, health: Health, lost: SimpleQueue[str]) -> None:
    health.close()
    session.stopped = True
    for thread in threading.enumerate():
        if thread.name == "spark-health":
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert lost.empty()
