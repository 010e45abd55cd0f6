"""Whose word counts, and what is sent again to a task manager that comes back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import grpc
import pytest
from lockgate_common.session import Session
from lockgate_coordinator.runtime.actor import Actor
from lockgate_coordinator.runtime.link import Registration, TaskManagerLink
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.task_managers import TaskManager, TaskManagers
from lockgate_coordinator.runtime.workers import KeyedWorkers
from lockgate_proto import messages as m
from lockgate_proto.release import REVISION, own_release

TOKEN = 5
RUNS = m.AttemptId("job", "run", 1)
READ = m.SubtaskId(RUNS, "read", 0)
FAILED = m.SubtaskReport(READ, m.SubtaskPhase.SUBTASK_FAILED, m.FailureCause.STATE_UNREADABLE, "why")


class RecordingListener:
    """A listener that keeps what it is notified of."""

    def __init__(self) -> None:
        self.messages: list[object] = []
        self.lost: list[tuple[str, str, bool]] = []

    def task_manager_added(self, task_manager: TaskManager) -> None: ...

    def task_manager_lost(self, task_manager: TaskManager, reason: str, *, planned: bool) -> None:
        self.lost.append((task_manager.task_manager_id, reason, planned))

    def task_manager_reported(self, _task_manager: TaskManager, message: m.TaskManagerMessage) -> None:
        self.messages.append(message.body)


class TestingRegistry:
    """One term's registry with one task manager; its actor and probes never get to anything."""

    def __init__(self) -> None:
        self.listener = RecordingListener()
        settings = CoordinatorSettings(zookeeper="unused", storage="unused")
        actor, probes = Actor("never started"), KeyedWorkers("never used")
        self.registry = TaskManagers(TOKEN, settings, actor, probes, self.listener)

    def connect(
        self,
        *running: m.AttemptId,
        acknowledged: int = 0,
        incarnation: str = "the first",
        name: str = "tm",
        release: m.Release | None = own_release(),  # noqa: B008 - immutable
        token: int = TOKEN,
        takes_batches: bool = True,
    ) -> TaskManagerLink:
        """A process with the same address and pid each time."""
        link = TaskManagerLink("test")
        messages = m.Register("host:1", 2, 1, running, incarnation, release=release, takes_batches=takes_batches)
        self.registry.register(Registration(name, messages, link, token, acknowledged))
        return link

    def say(self, link: TaskManagerLink, body: object, token: int = TOKEN, sequence: int = 0) -> None:
        self.registry.received(link, m.TaskManagerMessage(token, "tm", cast(m.Goodbye, body), sequence))


@pytest.fixture
def testing() -> TestingRegistry:
    return TestingRegistry()


def read(link: TaskManagerLink) -> list[tuple[int, object]]:
    """Number and body of what goes out by now."""
    return [(message.sequence, message.body) for message in iter(link.take, None)]


@pytest.mark.parametrize(
    "body",
    [
        m.AttemptGone(RUNS),
        m.SubtaskReport(m.SubtaskId(RUNS, "count", 0), m.SubtaskPhase.SUBTASK_FAILED),
        m.AcknowledgeCheckpoint(m.SubtaskId(RUNS, "count", 0), 3),
    ],
)
def test_a_message_to_a_former_leader_is_only_a_sign_of_life(testing: TestingRegistry, body: object) -> None:
    link = testing.connect(RUNS)
    (task_manager,) = testing.registry.all()
    task_manager.last_seen_ms = 0
    testing.say(link, body, TOKEN - 1)
    assert testing.listener.messages == []
    assert task_manager.last_seen_ms > 0
    assert set(task_manager.running) == {RUNS}
    testing.say(link, body)
    assert testing.listener.messages == [body]


def test_unacknowledged_messages_are_resent_with_their_numbers_on_the_next_stream(testing: TestingRegistry) -> None:
    link = testing.connect()
    deploy, cancel, late = m.Deploy(attempt=RUNS), m.CancelAttempt(RUNS), m.DrainSources(RUNS)
    testing.registry.send("tm", deploy)
    assert read(link)[1:] == [(1, deploy)], "handed over; it may not have arrived"
    testing.registry.send("tm", cancel)  # still queued
    testing.registry.broken(link, "tm")
    assert testing.registry.send("tm", late)
    assert read(testing.connect(RUNS))[1:] == [(1, deploy), (2, cancel), (3, late)]
    assert read(testing.connect(RUNS, acknowledged=2))[1:] == [(3, late)]
    assert read(testing.connect(RUNS, acknowledged=3))[1:] == []


def test_messages_acknowledged_in_passing_are_not_resent(testing: TestingRegistry) -> None:
    link = testing.connect()
    testing.registry.send("tm", m.Deploy(attempt=RUNS))
    testing.registry.received(link, m.TaskManagerMessage(TOKEN, "tm", m.Heartbeat(1), acknowledged=1))
    assert read(testing.connect(RUNS))[1:] == []


def test_of_orders_for_copies_only_the_newest_of_a_run_is_kept_for_the_next_stream(testing: TestingRegistry) -> None:
    testing.connect()
    files = (m.StateHandle(path="file:///a", checksum="sha256:a"),)
    other = m.KeepCopies(m.AttemptId("other", "another", 1), 1, files)
    orders = [m.KeepCopies(RUNS, 1, files), other, m.CancelAttempt(RUNS), m.KeepCopies(RUNS, 2, files)]
    for order in orders:
        testing.registry.send("tm", order)
    assert read(testing.connect())[1:] == [(1, m.KeepCopies()), (2, other), (3, orders[2]), (4, orders[3])]


def test_only_an_order_for_copies_of_a_run_that_has_one_looks_through_what_is_kept(
    testing: TestingRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task manager that registers late may be sent hundreds of orders to drop: each would look at all the others."""
    looked: list[object] = []
    monkeypatch.setattr(Session, "replace", lambda _self, change: looked.append(change))
    testing.connect()
    other = m.AttemptId("other", "another", 1)
    files = (m.StateHandle(path="file:///a", checksum="sha256:a"),)
    for order in (m.KeepCopies(RUNS), m.KeepCopies(RUNS), m.KeepCopies(RUNS, 1, files), m.KeepCopies(other)):
        testing.registry.send("tm", order)
    assert not looked
    testing.registry.send("tm", m.KeepCopies(RUNS))
    testing.registry.send("tm", m.KeepCopies(RUNS))
    assert len(looked) == 1


def test_only_a_process_that_knows_another_leader_or_was_lost_has_missed_orders(testing: TestingRegistry) -> None:
    """The session brings the others everything, and a process that never had an order keeps nothing."""

    def missed(**how: Any) -> bool:
        testing.connect(**how)
        return testing.registry.all()[0].missed_orders

    assert not missed()
    assert missed(incarnation="the second", acknowledged=7)
    assert not missed(incarnation="the second", acknowledged=8)
    assert missed(incarnation=""), "it numbers nothing"


def test_a_task_manager_of_an_earlier_version_gets_each_order_alone(testing: TestingRegistry) -> None:
    orders = tuple(m.AssignSplits(m.SubtaskId(RUNS, "read", index)) for index in range(2))
    both = m.AssignSplitsTogether(orders, "c1-7")
    new, old = testing.connect(name="new"), testing.connect(name="old", takes_batches=False)
    assert testing.registry.send("new", both)
    assert testing.registry.send("old", both)
    assert read(new)[1:] == [(1, both)]
    assert read(old)[1:] == [(number + 1, replace(order, cause_id="c1-7")) for number, order in enumerate(orders)]


@pytest.mark.parametrize(
    ("body", "report"),
    [
        (
            m.DiscoverSplits(RUNS, "read", round=3),
            m.SplitsDiscovered(RUNS, "read", error="why", cause=m.FailureCause.STATE_UNREADABLE, round=3),
        ),
        (m.AssignSplits(READ), FAILED),
        (m.AssignSplitsTogether((m.AssignSplits(READ), m.AssignSplits())), FAILED),
        (m.KeepCopies(RUNS, 4), m.CopiesKept(RUNS, 4, problem="why")),
        (m.StateQuery(7), m.StateAnswer(7, m.QueryOutcome.NOT_ANSWERABLE, problem="why")),
        (m.PrepareJob(), None),
    ],
)
def test_the_sender_of_a_message_over_the_limit_gets_a_report(
    testing: TestingRegistry, body: Any, report: object
) -> None:
    link = testing.connect(RUNS)
    testing.registry.undeliverable(link, body, "why")
    assert testing.listener.messages == ([report] if report else [])
    testing.connect(RUNS)
    testing.registry.undeliverable(link, body, "why")  # of the stream before
    assert len(testing.listener.messages) == bool(report)


def test_repeated_messages_of_a_task_manager_are_handled_once(testing: TestingRegistry) -> None:
    ran, gone = m.SubtaskReport(m.SubtaskId(RUNS, "count", 0), m.SubtaskPhase.SUBTASK_RUNNING), m.AttemptGone(RUNS)
    link = testing.connect(RUNS)
    testing.say(link, ran, sequence=1)
    again = testing.connect(RUNS)
    testing.say(link, gone, sequence=2)  # of the stream before: it comes over the new one
    testing.say(again, ran, sequence=1)
    testing.say(again, gone, sequence=2)
    assert testing.listener.messages == [ran, gone]
    greeting = again.take()
    assert greeting is not None
    assert greeting.acknowledged == 1


def test_a_registration_that_counts_messages_of_another_leader_acknowledges_none_of_this_one(
    testing: TestingRegistry,
) -> None:
    """Its first stream has brought nothing there; meanwhile it has handled more of the other leader's."""
    testing.connect(RUNS, acknowledged=10, token=TOKEN - 1)
    for reason in "abc":
        testing.registry.send("tm", m.CancelAttempt(RUNS, reason))
    resent = read(testing.connect(RUNS, acknowledged=12, token=TOKEN - 1))[1:]
    assert [cast(m.CancelAttempt, body).reason for _, body in resent] == ["a", "b", "c"]
    assert min(number for number, _ in resent) > 12
    last = resent[-1][0]
    assert read(testing.connect(RUNS, acknowledged=last))[1:] == [], "now it has handled them"


@pytest.mark.parametrize("says", [False, True])
def test_a_registration_from_before_the_last_message_does_not_replace_its_stream(
    testing: TestingRegistry, says: bool
) -> None:
    link = testing.connect(RUNS, token=TOKEN - says)
    if says:
        testing.say(link, m.Heartbeat(1))
    testing.registry.send("tm", m.CancelAttempt(RUNS, "a"))
    late = testing.connect(RUNS, acknowledged=1, token=TOKEN - 1)
    assert late.end is not None
    assert link.end is None
    assert len(read(testing.connect(RUNS))) == 2, "nothing was taken for acknowledged"


@pytest.mark.parametrize("incarnation", ["the second", ""])
def test_a_new_process_is_known_by_its_incarnation_alone(testing: TestingRegistry, incarnation: str) -> None:
    """ "": of a version that does not number: what it has received cannot be known."""
    testing.say(testing.connect(RUNS), m.AttemptGone(RUNS), sequence=7)
    testing.registry.send("tm", m.Deploy(attempt=RUNS))
    for lost in (1, 2)[: 1 if incarnation else 2]:
        link = testing.connect(incarnation=incarnation)
        assert testing.listener.lost == [("tm", "it was restarted as process 1", False)] * lost
        assert read(link)[1:] == []
    testing.say(link, m.AttemptGone(RUNS), sequence=1)
    assert len(testing.listener.messages) == 2


def test_a_lost_process_that_returns_gets_numbers_above_those_it_has_seen(testing: TestingRegistry) -> None:
    cancel = m.CancelAttempt(RUNS)
    testing.registry.send("tm", cancel)
    link = testing.connect(RUNS, acknowledged=41)
    testing.registry.send("tm", cancel)
    assert read(link)[1:] == [(42, cancel)]


def test_a_task_manager_of_a_version_that_does_not_fit_is_refused_in_words(testing: TestingRegistry) -> None:
    link = testing.connect(release=m.Release("9.0", REVISION + 2, REVISION + 1))
    code, reason = link.end or (None, "")
    assert code is grpc.StatusCode.INVALID_ARGUMENT, "the task manager logs it, and tries again"
    assert "task manager tm runs Lockgate 9.0" in reason
    assert "upgrade this coordinator first" in reason
    assert testing.registry.all() == ()


@pytest.mark.parametrize("release", [None, m.Release("0.1.0", 1, 1)])
def test_a_task_manager_that_would_give_moved_records_to_the_wrong_subtask_is_refused(
    testing: TestingRegistry, release: m.Release | None
) -> None:
    """Revision 1 does not know ChannelState.moved, which a Deploy at another parallelism has."""
    code, reason = testing.connect(release=release).end or (None, "")
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "with revision 1 of the messages" in reason
    assert "upgrade task manager tm to" in reason


def test_task_managers_that_cannot_exchange_records_are_not_registered_together(testing: TestingRegistry) -> None:
    neighbour = m.Release("9.0", REVISION + 1, REVISION)
    assert testing.connect(name="a", release=neighbour).end is None, "a version on either side works with this one"
    assert testing.connect(name="b", release=own_release()).end is None
    stranger = testing.connect(name="c", release=m.Release("9.1", REVISION + 2, REVISION + 1))
    assert stranger.end is not None
    assert [member.task_manager_id for member in testing.registry.all()] == ["a", "b"]


def test_the_version_of_another_task_manager_counts_too(
    testing: TestingRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    middle = m.Release("8.0", 2, 1)
    monkeypatch.setattr("lockgate_coordinator.runtime.task_managers.own_release", lambda: middle)
    assert testing.connect(name="a", release=m.Release("7.0", 1, 1)).end is None
    _, reason = testing.connect(name="b", release=m.Release("9.0", 3, 2)).end or (None, "")
    assert reason.startswith("task manager b runs Lockgate 9.0")
    assert "upgrade task manager a first" in reason


def test_a_lost_task_manager_does_not_keep_others_from_another_version(testing: TestingRegistry) -> None:
    neighbour = m.Release("9.0", REVISION + 1, REVISION)
    link = testing.connect(name="a", release=own_release())
    testing.registry.received(link, m.TaskManagerMessage(TOKEN, "a", m.Goodbye()))
    testing.connect(name="b", release=neighbour)
    assert testing.connect(name="c", release=m.Release("9.1", REVISION + 2, REVISION)).end is None
    assert [member.task_manager_id for member in testing.registry.all()] == ["b", "c"]


def test_heartbeats_say_how_long_the_pauses_of_a_large_cluster_are(testing: TestingRegistry) -> None:
    first, *_ = [testing.connect(name=f"tm-{number}") for number in range(200)]
    assert read(first) == [(0, m.Registered(500, takes_batches=True))]
    testing.registry._beat()
    assert read(first) == [(0, m.Heartbeat(1, interval_ms=800))]
    for number in range(1, 200):
        testing.registry.received(
            testing.connect(name=f"tm-{number}"), m.TaskManagerMessage(TOKEN, f"tm-{number}", m.Goodbye())
        )
    testing.registry._beat()
    assert read(first) == [(0, m.Heartbeat(2, interval_ms=500))]
