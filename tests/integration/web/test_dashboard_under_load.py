"""What the dashboard does while calls of the cluster take long or fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lockgate_common.http import callers
from lockgate_web import app, clients
from lockgate_web.endpoints import API

from lockgate.client import Client
from tests.http_client import PATIENCE_S
from tests.integration.coordinator.conftest import poll
from tests.integration.web.conftest import KEY, Events, Site

pytestmark = [pytest.mark.integration, pytest.mark.rotating]

OpenEvents = Callable[..., Events]


class Held:
    """A method of the client that does not return before it may."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        method = getattr(Client, name)
        self.begun, self.go_on = threading.Event(), threading.Event()

        def waiting(*arguments: Any, **options: Any) -> Any:
            self.begun.set()
            assert self.go_on.wait(PATIENCE_S)
            return method(*arguments, **options)

        monkeypatch.setattr(Client, name, waiting)


@pytest.fixture
def hold(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Held]]:
    made: list[Held] = []

    def hold_(name: str) -> Held:
        made.append(Held(monkeypatch, name))
        return made[-1]

    yield hold_
    for held in made:
        held.go_on.set()


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """For requests that take long."""
    with ThreadPoolExecutor() as pool:
        yield pool


def _audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "from=http:" in record.message]


def test_an_order_that_fails_is_logged_as_failed(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def faulty(*_arguments: object) -> None:
        raise RuntimeError("a mistake in the code")

    monkeypatch.setattr(Client, "cancel", faulty)
    answer = site.post(f"{API}/jobs/{KEY}/cancel")
    assert (answer.status, answer.headers["content-type"]) == (500, "application/json")
    assert answer.error == "internal error; see the log of this process"
    asked, ended = _audited(caplog)
    assert (asked.rpartition(": ")[2], ended.rpartition(": ")[2]) == ("asked", "INTERNAL_SERVER_ERROR")
    poll(lambda: "a mistake in the code" in caplog.text)


def test_an_order_that_is_cut_off_is_logged_as_cancelled(
    site: Site, hold: Callable[[str], Held], aside: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lockgate.audit")
    held = hold("cancel")
    answer = aside.submit(site.post, f"{API}/jobs/{KEY}/cancel")
    assert held.begun.wait(PATIENCE_S)
    assert [line.rpartition(": ")[2] for line in _audited(caplog)] == ["asked"]
    site.leader._web.stop()  # type: ignore[union-attr]
    assert [line.rpartition(": ")[2] for line in _audited(caplog)] == ["asked", "CANCELLED"]
    assert answer.result(PATIENCE_S).status == 503


def test_the_overview_beats_while_it_waits_for_the_cluster(
    site: Site, hold: Callable[[str], Held], open_events: OpenEvents
) -> None:
    held = hold("jobs")
    events = open_events(site.address, f"{API}/events")
    assert [events.answer.readline() for _ in range(4)] == [b": beat\n", b"\n"] * 2
    held.go_on.set()
    assert events.until("overview")["jobs"] == []


def test_calls_that_wait_for_the_cluster_block_nothing_else(
    site: Site, hold: Callable[[str], Held], aside: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_CALLS", 1)
    held = hold("jobs")
    answer = aside.submit(site.get, f"{API}/jobs")
    assert held.begun.wait(PATIENCE_S)
    assert site.get("/metrics").status == 200
    assert site.get(f"{API}/session").status == 200
    assert site.get(f"{API}/session", Authorization="Bearer wrong").status == 401
    held.go_on.set()
    assert answer.result(PATIENCE_S).status == 200


def test_a_stream_has_its_place_before_it_is_begun(
    busy: Site, hold: Callable[[str], Held], aside: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_STREAMS", 1)
    held = hold("job")
    path = f"{API}/jobs/{KEY}/events"
    first = aside.submit(Events, busy.address, path)
    assert held.begun.wait(PATIENCE_S)
    refused = busy.get(path)
    assert (refused.status, "too many pages" in refused.error) == (503, True)
    held.go_on.set()
    events = first.result(PATIENCE_S)
    assert events.until("status")["key"] == KEY
    events.close()

    def is_free() -> bool:
        again = Events(busy.address, f"{API}/events")
        again.close()
        return again.answer.status == 200

    poll(is_free)


def test_a_stream_that_cannot_be_had_is_refused_before_it_begins(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_KEPT", 0)
    answer = site.get(f"{API}/events")
    assert (answer.status, "too many users" in answer.error) == (503, True)


def test_the_user_of_a_socket_is_looked_up_off_the_loop(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []

    def noting(*_ends: object) -> bool:
        threads.append(threading.current_thread().name)
        return True

    monkeypatch.setattr(callers, "is_own_user", noting)
    assert site.get(f"{API}/session").json["owner"]
    assert [name.partition("_")[0] for name in threads] == ["dashboard-look-up"]
