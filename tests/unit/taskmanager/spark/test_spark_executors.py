"""What is said when a Spark cluster gives no executor, or ends the application."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from lockgate_taskmanager.spark import executors as module
from lockgate_taskmanager.spark.errors import EngineError
from lockgate_taskmanager.spark.executors import Executors

OUTSIDE = "spark://m:7077"


class Conf:
    """What the session was started with."""

    def __init__(self, wait_ms: int, is_dynamic: bool) -> None:
        self._wait_ms, self._is_dynamic = wait_ms, is_dynamic

    def getTimeAsMs(self, _name: str, _default: str) -> int:
        return self._wait_ms

    def get(self, _name: str, default: str) -> str:
        return default

    def getBoolean(self, _name: str, _default: bool) -> bool:
        return self._is_dynamic


class Cluster:
    """A session and its SparkContext on both sides of the gateway, as far as they are asked here."""

    def __init__(self, wait_ms: int = 50, is_dynamic: bool = False) -> None:
        self.sparkContext = self._jsc = self
        self.master = OUTSIDE
        self.executors = 0
        self.jobs: list[int] = []
        self.is_stopped = False
        self._conf = Conf(wait_ms, is_dynamic)

    def sc(self) -> Cluster:
        return self

    def getConf(self) -> Conf:
        return self._conf

    def getExecutorMemoryStatus(self) -> Cluster:
        return self

    def size(self) -> int:
        return self.executors + 1

    def statusTracker(self) -> Cluster:
        return self

    def getActiveJobIds(self) -> list[int]:
        return self.jobs

    def isStopped(self) -> bool:
        return self.is_stopped


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.005)
    monkeypatch.setattr(module, "_FIRST_WORD_S", 0.0)


def test_waiting_for_the_first_executor_has_an_end_and_a_sentence(caplog: pytest.LogCaptureFixture) -> None:
    session: Any = Cluster()
    with pytest.raises(EngineError, match=r"given no executor \(no worker has a free core and 1g,.* for 0.05 s; start"):
        Executors(session).await_first()
    assert "given no executor" in caplog.text, "and it says so while it waits"


def test_a_refused_application_is_not_waited_for() -> None:
    session: Any = Cluster(wait_ms=60_000)
    session.is_stopped = True
    with pytest.raises(EngineError, match=f"{OUTSIDE} has refused the application"):
        Executors(session).await_first()


@pytest.mark.parametrize("session", [Cluster(60_000, is_dynamic=True), Cluster(60_000)])
def test_nothing_is_waited_for_where_there_is_one_or_they_come_with_jobs(session: Any) -> None:
    session.executors = 0 if session._conf._is_dynamic else 1
    Executors(session).await_first()


@pytest.mark.parametrize(
    ("is_dynamic", "jobs", "is_stopped", "words"),
    [
        (False, [7], False, "for 0.05 s; 1 jobs are waiting"),
        (True, [7], False, "for 0.05 s; 1 jobs are waiting"),
        (False, [], False, "for 0.05 s; 0 jobs are waiting"),  # an idle one shall not offer slots, either
        (False, [], True, "was ended from outside, by spark://m:7077"),
    ],
)
def test_a_process_that_can_no_longer_run_anything_is_lost(
    is_dynamic: bool, jobs: list[int], is_stopped: bool, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    session: Any = Cluster(is_dynamic=is_dynamic)
    session.jobs, session.is_stopped = jobs, is_stopped
    lost = threading.Event()
    Executors(session).watch(lost.set)
    assert lost.wait(60)
    assert words in caplog.text


def test_jobs_that_wait_and_continue_are_reported_and_nothing_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    session: Any = Cluster(wait_ms=600_000)
    session.jobs = [7]
    lost, turn = threading.Event(), threading.Event()
    executors = Executors(session)
    executors.watch(lost.set)
    for words, change in (("1 jobs are waiting", 1), ("an executor is available again", 1)):
        for _ in range(2000):
            if words in caplog.text:
                break
            turn.wait(0.005)
        assert words in caplog.text
        session.executors = change
    executors.close()
    assert not lost.is_set()


def test_with_dynamic_allocation_no_executor_is_missed_while_no_job_runs() -> None:
    session: Any = Cluster(wait_ms=5, is_dynamic=True)
    looks, lost = threading.Semaphore(0), threading.Event()
    session.getActiveJobIds = lambda: looks.release() or []
    executors = Executors(session)
    executors.watch(lost.set)
    for _ in range(10):  # each after 5 ms
        assert looks.acquire(timeout=60)
    executors.close()
    assert not lost.is_set()
