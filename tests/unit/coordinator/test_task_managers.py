"""Whose word counts, and what a task manager that comes back has to be told again."""

from __future__ import annotations

from typing import cast

import pytest
from lockgate_proto import messages as m

from coordinator.runtime.actor import Actor
from coordinator.runtime.link import Registration, TaskManagerLink
from coordinator.runtime.settings import CoordinatorSettings
from coordinator.runtime.task_managers import TaskManager, TaskManagers
from coordinator.runtime.workers import KeyedWorkers

TOKEN = 5
RUNS = m.AttemptId("job", "run", 1)


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.forgotten: list[frozenset[m.AttemptId]] = []

    def task_manager_added(self, _task_manager: TaskManager, forgotten: frozenset[m.AttemptId]) -> None:
        self.forgotten.append(forgotten)

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, blameless: bool) -> None: ...

    def task_manager_said(self, _task_manager: TaskManager, message: m.TaskManagerMessage) -> None:
        self.said.append(message.body)


class Bench:
    """One term's registry with one task manager; its actor and probes never get to anything."""

    def __init__(self) -> None:
        self.heard = Heard()
        settings = CoordinatorSettings(zookeeper="unused", storage="unused")
        actor, probes = Actor("never started"), KeyedWorkers("never used")
        self.registry = TaskManagers(TOKEN, settings, actor, probes, self.heard)

    def connect(self, *running: m.AttemptId) -> TaskManagerLink:
        """The same process each time."""
        link = TaskManagerLink("test")
        said = m.Register("host:1", 2, 1, running)
        self.registry.register(Registration("tm", TOKEN, said, link))
        return link

    def say(self, link: TaskManagerLink, body: object, token: int = TOKEN) -> None:
        self.registry.received(link, m.TaskManagerMessage(token, "tm", cast(m.Goodbye, body)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def read(link: TaskManagerLink, count: int) -> list[object]:
    """The next messages that go out."""
    messages = [link.take() for _ in range(count)]
    return [message.body for message in messages if message is not None]


@pytest.mark.parametrize(
    "body",
    [
        m.AttemptGone(RUNS),
        m.SubtaskReport(m.SubtaskId(RUNS, "count", 0), m.SubtaskPhase.SUBTASK_FAILED),
        m.AcknowledgeCheckpoint(m.SubtaskId(RUNS, "count", 0), 3),
    ],
)
def test_what_was_said_to_a_former_leader_is_a_sign_of_life_and_no_more(bench: Bench, body: object) -> None:
    link = bench.connect(RUNS)
    (one,) = bench.registry.all()
    one.last_seen_ms = 0
    bench.say(link, body, TOKEN - 1)
    assert bench.heard.said == []
    assert one.last_seen_ms > 0
    assert one.running == {RUNS}
    bench.say(link, body)
    assert bench.heard.said == [body]


def test_an_attempt_that_does_not_come_back_with_its_task_manager_is_told(bench: Bench) -> None:
    other = m.AttemptId("other", "run", 1)
    bench.connect(RUNS, other)
    bench.connect(other)
    bench.connect(other)
    assert bench.heard.forgotten == [frozenset(), frozenset({RUNS}), frozenset()]


def test_a_deploy_that_was_on_its_way_when_the_stream_broke_is_sent_again_and_not_missed(bench: Bench) -> None:
    link = bench.connect()
    bench.registry.send("tm", m.Deploy(attempt=RUNS))
    assert read(link, 2)[1] == m.Deploy(attempt=RUNS)  # handed over; whether it arrived nobody knows
    bench.registry.send("tm", m.CancelAttempt(RUNS))  # still queued
    bench.registry.broken(link, "tm")
    again = bench.connect()
    assert bench.heard.forgotten == [frozenset(), frozenset()]
    assert read(again, 3)[1:] == [m.Deploy(attempt=RUNS), m.CancelAttempt(RUNS)]


def test_a_deploy_that_is_known_to_have_arrived_is_not_sent_again(bench: Bench) -> None:
    link = bench.connect()
    bench.registry.send("tm", m.Deploy(attempt=RUNS))
    read(link, 2)
    bench.say(link, m.SubtaskReport(m.SubtaskId(RUNS, "count", 0), m.SubtaskPhase.SUBTASK_RUNNING))
    bench.registry.broken(link, "tm")
    bench.connect()
    assert bench.heard.forgotten == [frozenset(), frozenset({RUNS})]
