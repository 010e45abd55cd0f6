"""When a lost connection is explained, by example."""

from __future__ import annotations

import queue
import threading

import pytest
from lockgate_ha.session import SessionState
from lockgate_ha.zookeeper import trouble_watch
from lockgate_ha.zookeeper.trouble_watch import TroubleWatch

WAIT_S = 60.0
REASON = "ZooKeeper at zk:1 speaks TLS only"


class Seen:
    """What each look finds, the last one again and again, and what was reported."""

    def __init__(self, *found: str) -> None:
        self._found = list(found)
        self.looks: queue.Queue[str] = queue.Queue()
        self.reported: queue.Queue[str] = queue.Queue()
        self.watch = TroubleWatch(self._look, self.reported.put)

    def _look(self) -> str:
        found = self._found.pop(0) if len(self._found) > 1 else self._found[0]
        self.looks.put(found)
        return found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble_watch, "_LOOK_EVERY_S", 0.001)


def test_each_loss_is_reported_but_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    seen = Seen(REASON)
    observe = seen.watch.session()
    for _ in range(3):
        observe(SessionState.CONNECTED)
        observe(SessionState.SUSPENDED)
        assert seen.reported.get(timeout=WAIT_S) == REASON
    observe(SessionState.CONNECTED)
    assert caplog.messages == [f"no connection to ZooKeeper: {REASON}"]


def test_a_momentary_observation_is_not_reported() -> None:
    """A server that is stopping hangs up in the middle of a handshake, as one does that speaks no TLS."""
    seen = Seen("does not speak TLS", "", "does not speak TLS", "", REASON)
    observe = seen.watch.session()
    observe(SessionState.CONNECTED)
    observe(SessionState.SUSPENDED)
    assert seen.reported.get(timeout=WAIT_S) == REASON
    observe(SessionState.LOST)


def test_the_next_session_is_explained_too_and_none_before_the_first_connection() -> None:
    seen = Seen(REASON)
    observe = seen.watch.session()
    observe(SessionState.LOST)  # it was never connected
    observe = seen.watch.session()
    assert seen.looks.empty()
    observe(SessionState.CONNECTED)
    observe(SessionState.LOST)
    observe = seen.watch.session()
    assert seen.reported.get(timeout=WAIT_S) == REASON
    observe(SessionState.LOST)


def test_no_one_looks_after_the_end() -> None:
    seen = Seen("")
    observe = seen.watch.session()
    observe(SessionState.CONNECTED)
    observe(SessionState.SUSPENDED)
    seen.looks.get(timeout=WAIT_S)
    looking = [thread for thread in threading.enumerate() if thread.name == trouble_watch.THREAD]
    assert len(looking) == 1
    observe(SessionState.LOST)
    looking[0].join(WAIT_S)
    assert not looking[0].is_alive()
