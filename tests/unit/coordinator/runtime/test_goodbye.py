"""A task manager that ends by intention has said so: what that costs a job, and when its word counts."""

from __future__ import annotations

from typing import cast

import grpc
import pytest
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job import effects, events
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.link import Registration, TaskManagerLink
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.task_managers import TaskManager, TaskManagers
from lockgate_coordinator.runtime.workers import KeyedWorkers
from lockgate_proto.messages import (
    CancelAttempt,
    FixedDelayRestart,
    Goodbye,
    Heartbeat,
    JobEventKind,
    JobState,
    NoRestart,
    Register,
    RestartStrategy,
    TaskManagerMessage,
)
from lockgate_proto.release import own_release

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import word_count

ELSEWHERE = (SlotOffer("tm-a", "a:1"), SlotOffer("tm-c", "c:1"))
TOKEN = 7


def left(name: str = "tm-b") -> events.TaskManagerLost:
    return events.TaskManagerLost(name, "it left as planned", planned=True)


def job(strategy: NoRestart | FixedDelayRestart) -> Driver:
    return Driver(word_count(restart=RestartStrategy(strategy=strategy))).run()


# -- the job ----------------------------------------------------------------------------------------------------------


def test_a_job_that_is_never_restarted_continues_elsewhere_at_once() -> None:
    driver = job(NoRestart())
    driver.give(left())
    assert driver.state is JobState.WAITING_FOR_SLOTS
    assert driver.one(effects.RequestSlots).preferred == ("tm-a", "")
    assert [name for name, _ in driver.sent(CancelAttempt)] == ["tm-a"]
    driver.deploy(driver.one(effects.RequestSlots).request, ELSEWHERE)
    status = driver.master.status()
    assert (status.attempt, status.restarts, status.error) == (2, 1, "")


def test_a_planned_leave_is_reported_as_such() -> None:
    driver = job(NoRestart())
    driver.give(left())
    assert driver.emitted(JobEventKind.TASK_MANAGER_LEFT) == ["task manager tm-b has left: it left as planned"]
    assert not driver.emitted(JobEventKind.TASK_MANAGER_LOST)
    assert not driver.emitted(JobEventKind.ATTEMPT_FAILED)


def test_however_many_of_them_use_no_restart_up() -> None:
    driver = job(FixedDelayRestart(attempts=1, delay_ms=100))
    for _ in range(3):
        driver.give(left())
        driver.deploy(driver.one(effects.RequestSlots).request)
    driver.fail()
    assert driver.state is JobState.RESTARTING
    driver.tick(100)
    driver.deploy(driver.one(effects.RequestSlots).request)
    driver.fail()
    assert "none is left" in driver.result().error


def test_a_crash_is_still_a_failure_of_the_job() -> None:
    driver = job(NoRestart())
    driver.give(events.TaskManagerLost("tm-b", "its process has ended"))
    assert driver.result().outcome == "FAILED"


def test_repeated_or_from_a_task_manager_without_subtasks_it_changes_nothing() -> None:
    driver = job(NoRestart())
    driver.give(left("tm-z"))
    assert driver.state is JobState.RUNNING
    driver.give(left())
    request = driver.one(effects.RequestSlots).request
    driver.give(left())
    assert not driver.of(effects.RequestSlots)
    driver.deploy(request, ELSEWHERE)
    driver.give(left())
    assert driver.state is JobState.DEPLOYING


def test_a_goodbye_while_the_attempt_is_being_written_prevents_its_deployment() -> None:
    driver = Driver(word_count(restart=RestartStrategy(strategy=NoRestart())))
    driver.offer(driver.recover().request)
    driver.give(left())
    assert driver.state is JobState.WAITING_FOR_SLOTS
    assert driver.give(events.AttemptPersisted(1)) == []


def test_a_job_that_is_being_cancelled_does_not_wait_for_it() -> None:
    driver = job(NoRestart())
    driver.give(events.CancelRequested())
    driver.gone("tm-a")
    assert not driver.of(effects.PersistResult)
    driver.give(left())
    assert driver.one(effects.PersistResult).result.outcome == "CANCELED"


# -- whose word counts ------------------------------------------------------------------------------------------------


class RecordingListener:
    """A listener that keeps who went, and how."""

    def __init__(self) -> None:
        self.gone: list[tuple[str, int, bool]] = []
        self.messages: list[tuple[str, object]] = []

    def task_manager_added(self, task_manager: TaskManager) -> None: ...

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, planned: bool) -> None:
        assert reason
        self.gone.append((task_manager.task_manager_id, task_manager.pid, planned))

    def task_manager_reported(self, task_manager: TaskManager, message: TaskManagerMessage) -> None:
        self.messages.append((task_manager.task_manager_id, message.body))


class Registry:
    """One term's registry, whose actor and probes never get to anything: only what is said counts."""

    def __init__(self) -> None:
        self.listener = RecordingListener()
        self.registry = TaskManagers(
            TOKEN,
            CoordinatorSettings(zookeeper="unused", storage="unused"),
            Actor("never started"),
            KeyedWorkers("never used"),
            self.listener,
        )

    def connect(self, pid: int = 1) -> TaskManagerLink:
        link = TaskManagerLink("test")
        messages = Register(f"host:{pid}", 2, pid, incarnation=f"process {pid}", release=own_release())
        self.registry.register(Registration("tm-a", messages, link, TOKEN))
        return link

    def say(self, link: TaskManagerLink, body: object, token: int = TOKEN) -> None:
        self.registry.received(link, TaskManagerMessage(token, "tm-a", cast(Goodbye, body)))


@pytest.fixture
def term() -> Registry:
    return Registry()


def test_a_task_manager_that_says_goodbye_is_removed_at_once_and_its_stream_ends_with_ok(term: Registry) -> None:
    link = term.connect()
    term.say(link, Goodbye())
    assert term.listener.gone == [("tm-a", 1, True)]
    assert not term.registry.all()
    assert link.end is not None
    assert link.end[0] is grpc.StatusCode.OK


def test_messages_after_it_are_ignored(term: Registry) -> None:
    link = term.connect()
    term.say(link, Goodbye())
    term.say(link, Heartbeat(1))
    term.say(link, Goodbye())
    term.registry.broken(link, "tm-a")
    assert (term.listener.messages, len(term.listener.gone)) == ([], 1)


def test_late_when_the_stream_has_ended_it_still_counts(term: Registry) -> None:
    link = term.connect()
    link.close(grpc.StatusCode.CANCELLED, "the stream has ended")
    term.say(link, Goodbye())
    assert term.listener.gone == [("tm-a", 1, True)]


def test_a_goodbye_of_an_earlier_stream_or_process_is_ignored(term: Registry) -> None:
    earlier = term.connect()
    term.connect()  # the same process again
    term.say(earlier, Goodbye())
    assert [member.task_manager_id for member in term.registry.all()] == ["tm-a"]
    term.say(term.connect(), Goodbye())
    former = term.connect()
    former.close(grpc.StatusCode.CANCELLED, "the stream has ended")
    later = term.connect(pid=2)
    term.listener.gone.clear()
    term.say(former, Goodbye())
    assert (term.listener.gone, later.end) == ([], None)


def test_under_the_token_of_a_former_leader_it_is_a_sign_of_life_and_no_more(term: Registry) -> None:
    link = term.connect()
    term.say(link, Goodbye(), TOKEN - 1)
    assert (term.listener.gone, link.end) == ([], None)
