"""A coordinator with its dashboard, and a job on a fake task manager."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from lockgate_common.json_input import parse_json
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m
from lockgate_web.dashboard import Dashboard

from tests.chromium import browser
from tests.http_client import PATIENCE_S, Answer, ask
from tests.integration.coordinator.conftest import (
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    caller,
    fleet,
    graph,
    leading,
    new_coordinator,
    new_task_manager,
    no_thread_is_left,
    server,
    storage,
)
from tests.integration.coordinator.fake_task_manager import FakeTaskManager

__all__ = [
    "browser",
    "caller",
    "fleet",
    "new_coordinator",
    "new_task_manager",
    "no_thread_is_left",
    "server",
    "storage",
]

KEY = "job"


def address_of(coordinator: Coordinator) -> str:
    """`host:port` of its dashboard."""
    return coordinator.dashboard.partition("//")[2]


@dataclass
class Site:
    """A dashboard, and the cluster behind it."""

    leader: Coordinator
    api: Caller
    new_coordinator: NewCoordinator
    task_manager: FakeTaskManager | None = None

    @property
    def address(self) -> str:
        return address_of(self.leader)

    def get(self, path: str, **headers: str) -> Answer:
        return ask(self.address, path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        sent = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
        return ask(self.address, path, "POST", sent, json.dumps({} if body is None else body).encode())


class Events:
    """An open stream of server-sent events."""

    def __init__(self, address: str, path: str, headers: dict[str, str] | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._connection = HTTPConnection(host, int(port), timeout=PATIENCE_S)
        self._connection.request("GET", path, headers=headers or {})
        self.answer: HTTPResponse = self._connection.getresponse()

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Kind and value of each."""
        kind = ""
        while line := self.answer.readline().decode():
            if line.startswith("event: "):
                kind = line[7:].strip()
            elif line.startswith("data: "):
                yield kind, parse_json(line[6:])

    def until(self, kind: str, fits: Callable[[Any], object] = lambda _value: True) -> Any:
        """The value of the next event of a kind that fits."""
        for found, value in self:
            if found == kind and fits(value):
                return value
        raise AssertionError(f"the stream has ended before {kind}")

    def close(self) -> None:
        self.answer.close()
        self._connection.close()


@pytest.fixture
def site(new_coordinator: NewCoordinator, caller: NewCaller) -> Site:
    leader = leading(new_coordinator(web=Dashboard, dashboard="127.0.0.1:0"))
    return Site(leader, caller(leader), new_coordinator)


@pytest.fixture
def busy(site: Site, new_task_manager: NewTaskManager) -> Site:
    """With a job that has a checkpoint."""
    site.task_manager = new_task_manager().connect(site.leader.address)
    site.api("Submit", m.SubmitRequest(KEY, graph()))
    site.api.until(KEY, lambda status: status.state is m.JobState.RUNNING and status.checkpoints_completed > 0)
    return site


@pytest.fixture
def open_events() -> Iterator[Callable[..., Events]]:
    made: list[Events] = []

    def open_(*arguments: Any, **options: Any) -> Events:
        made.append(Events(*arguments, **options))
        return made[-1]

    yield open_
    for events in made:
        events.close()
