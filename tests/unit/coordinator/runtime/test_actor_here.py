"""A call on the caller's own thread: only while the actor has nothing else to do, and still one call at a time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from lockgate_coordinator.runtime.actor import Actor

WAIT_S = 120.0


@pytest.fixture
def actor() -> Iterator[Actor]:
    actor = Actor("test-actor")
    actor.start()
    yield actor
    actor.stop()


def thread() -> threading.Thread:
    return threading.current_thread()


def idle(actor: Actor) -> None:
    """Waits until the actor has nothing to do: then it runs a call here."""
    deadline = time.monotonic() + WAIT_S
    while actor.ask(thread, here=True).result(WAIT_S) is not thread():
        assert time.monotonic() < deadline, "no call was made here"


def test_an_idle_actor_makes_a_call_here(actor: Actor) -> None:
    idle(actor)
    seen: list[bool] = []
    assert actor.tell(lambda: seen.append(actor.is_current()), here=True)
    assert seen == [True]
    assert not actor.is_current()
    assert actor.ask(thread).result(WAIT_S) is not thread(), "without `here` it is the actor's"


def test_behind_another_call_it_waits_for_its_turn(actor: Actor) -> None:
    began, gate, seen = threading.Event(), threading.Event(), []

    def first() -> None:
        began.set()
        gate.wait(WAIT_S)
        seen.append("first")

    actor.tell(first)
    assert began.wait(WAIT_S)
    last = actor.ask(lambda: seen.append("last"), here=True)
    assert not seen
    gate.set()
    last.result(WAIT_S)
    assert seen == ["first", "last"]


def test_what_comes_during_a_call_here_follows_it(actor: Actor) -> None:
    idle(actor)
    seen = []

    def first() -> None:
        actor.tell(lambda: seen.append("queued"))
        actor.at(0, lambda: seen.append("due"))
        nested = actor.ask(lambda: seen.append("nested"), here=True)
        assert not nested.done(), "one call at a time"
        seen.append("first")

    actor.tell(first, here=True)
    actor.ask(lambda: None).result(WAIT_S)
    actor.ask(lambda: None).result(WAIT_S)
    assert seen[0] == "first"
    assert sorted(seen[1:]) == ["due", "nested", "queued"]
    assert seen.index("queued") < seen.index("nested")


def test_other_threads_wait_for_a_call_here(actor: Actor) -> None:
    idle(actor)
    inside, gate, seen = threading.Event(), threading.Event(), []

    def slow() -> None:
        inside.set()
        gate.wait(WAIT_S)
        seen.append("slow")

    caller = threading.Thread(target=lambda: actor.tell(slow, here=True))
    caller.start()
    assert inside.wait(WAIT_S)
    assert actor.ident == caller.ident, "the one whose stack says where it is stuck"
    after = actor.ask(lambda: seen.append("after"), here=True)
    assert not after.done()
    gate.set()
    after.result(WAIT_S)
    caller.join(WAIT_S)
    assert seen == ["slow", "after"]


def test_an_error_here_ends_no_more_than_its_call(actor: Actor, caplog: pytest.LogCaptureFixture) -> None:
    idle(actor)

    def fail() -> None:
        raise ValueError("on purpose")

    assert actor.tell(fail, here=True)
    assert "on purpose" in caplog.text
    with pytest.raises(ValueError, match="on purpose"):
        actor.ask(fail, here=True).result(WAIT_S)
    assert actor.ask(lambda: 7).result(WAIT_S) == 7


def test_before_its_start_and_after_its_end_nothing_runs_here() -> None:
    actor, seen = Actor("test-actor"), []
    assert actor.tell(lambda: seen.append("early"), here=True)
    assert not seen
    actor.start()
    actor.stop()
    assert seen == ["early"]
    assert not actor.tell(lambda: seen.append("late"), here=True)
    assert seen == ["early"]


def test_an_actor_can_be_stopped_by_a_call_here(actor: Actor) -> None:
    idle(actor)
    assert actor.tell(actor.stop, here=True)
    actor.stop()
    assert not actor.tell(lambda: None)
