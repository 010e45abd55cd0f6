"""When the session in a Spark Connect server counts as lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_taskmanager.spark import connect as module
from lockgate_taskmanager.spark.connect import ServerWatch, end_session
from lockgate_taskmanager.spark.master import masked
from pyspark.errors import PySparkException

WHERE = "sc://c:15002"


class Client:
    """A Connect client whose server answers, or raises what is set here."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.hangs = False
        self.is_closed = False
        self.closed = threading.Event()
        self.asked = threading.Semaphore(0)

    def get_configs(self, *_names: str) -> None:
        self.asked.release()
        if self.hangs:
            self.closed.wait(60)
            raise ValueError("Cannot invoke RPC on closed channel!")
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()

    def await_questions(self, count: int) -> None:
        for _ in range(count):
            assert self.asked.acquire(timeout=60)


class Unavailable(PySparkException):
    def getGrpcStatusCode(self) -> Any:
        return SimpleNamespace(name="UNAVAILABLE")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.002)
    monkeypatch.setattr(module, "_KEEP_EVERY_S", 0.002)


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def watch(client: Client) -> Iterator[ServerWatch]:
    server_watch = ServerWatch(client, WHERE)
    yield server_watch
    server_watch.close()


def test_a_session_that_the_server_has_forgotten_is_lost_at_once(client: Client, watch: ServerWatch) -> None:
    lost: SimpleQueue[str] = SimpleQueue()
    watch.start(lost.put)
    client.await_questions(2)
    client.error = PySparkException("[INVALID_HANDLE.SESSION_CHANGED] The handle 1 is invalid. SQLSTATE: HY000")
    assert lost.get(timeout=60) == (
        f"the Spark Connect server {WHERE} has lost the session (it was restarted, or has ended it)"
    )


def test_a_silent_server_is_waited_for_and_then_lost(
    client: Client, watch: ServerWatch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: SimpleQueue[str] = SimpleQueue()
    monkeypatch.setattr(module, "SILENCE_S", 0.1)
    client.error = Unavailable("no")
    watch.start(lost.put)
    assert lost.get(timeout=60) == f"the Spark Connect server {WHERE} has not answered for 0.1 s"
    assert caplog.text.count(f"{WHERE} does not answer; waiting") == 1


def test_any_number_of_hiccups_is_tolerated(
    client: Client, watch: ServerWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is counted from its first failure: not from the last answer, nor over an answer in between."""
    clock = iter(range(0, 10_000, 9))  # seconds from one failure to the next
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    lost: SimpleQueue[str] = SimpleQueue()
    answers = iter([Unavailable("no"), None] * 10)

    def get_configs(*_names: str) -> None:
        client.asked.release()
        error = next(answers, None)
        if error is not None:
            raise error

    monkeypatch.setattr(client, "get_configs", get_configs)
    watch.start(lost.put)
    client.await_questions(20)
    watch.close()
    assert lost.empty()


def test_a_planned_end_is_not_a_loss(client: Client, watch: ServerWatch) -> None:
    lost: SimpleQueue[str] = SimpleQueue()
    client.hangs = True  # and is closed in the middle of a question
    watch.start(lost.put)
    client.await_questions(1)
    watch.close()
    for thread in threading.enumerate():
        if thread.name.startswith("spark-connect-"):
            thread.join(60)
            assert not thread.is_alive()
    assert lost.empty()


def test_sessions_are_kept_while_they_are_in_use(watch: ServerWatch) -> None:
    kept, broken, dropped = Client(), Client(), Client()
    broken.error = Unavailable("no")
    sessions: list[Any] = [Session(kept), Session(broken), Session(dropped)]
    for session in sessions:
        assert watch.keep(session) is session
    del sessions[2], session
    watch.start(lambda _why: None)
    kept.await_questions(3)
    broken.await_questions(3)
    watch.close()
    assert not dropped.asked.acquire(blocking=False)


class Session:
    def __init__(self, client: Any) -> None:
        self.client = client
        self.is_stopped = False

    def stop(self) -> None:
        assert self.client.policies == [], "it would try for ten minutes to release a server that is gone"
        self.is_stopped = True


def test_no_process_waits_for_a_goodbye() -> None:
    client = SimpleNamespace(policies=["patient"])
    client.set_retry_policies = lambda policies: setattr(client, "policies", policies)
    session = Session(client)
    end_session(session)
    assert session.is_stopped


def test_a_token_is_not_shown() -> None:
    assert masked("sc://c:15002/;use_ssl=true;token=secret") == WHERE
