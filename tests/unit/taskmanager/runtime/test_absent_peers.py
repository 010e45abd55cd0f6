"""AbsentPeers: a broken channel ends the subtask, unless the leader starts its peer again."""

from __future__ import annotations

import queue
import threading

import pytest
from lockgate_coordinator.runtime.task_managers import GRACE_MS
from lockgate_taskmanager.runtime import absent_peers
from lockgate_taskmanager.runtime.absent_peers import AbsentPeers

WAIT_S = 60.0
SOON_S = 0.05
LATER_S = 3_600.0


def never() -> bool:
    return False


def test_without_the_leaders_word_a_lost_peer_ends_the_subtask() -> None:
    lost: queue.Queue[str] = queue.Queue()
    AbsentPeers(lost.put, grace_s=SOON_S).lost(1, 1, "the channel broke", never)
    assert lost.get(timeout=WAIT_S) == "the channel broke"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_peer_that_starts_again_is_awaited_whether_its_loss_or_the_word_comes_first(is_first: bool) -> None:
    lost: queue.Queue[str] = queue.Queue()
    peers = AbsentPeers(lost.put, grace_s=SOON_S)
    if is_first:
        peers.await_part([1], 0)
    peers.lost(1, 1, "awaited", never)
    peers.await_part([1], 0)
    peers.lost(2, 1, "not awaited", never)  # its time is up after that of the first
    assert lost.get(timeout=WAIT_S) == "not awaited"
    assert lost.empty()


def test_a_peer_that_has_come_back_is_not_missed() -> None:
    lost: queue.Queue[str] = queue.Queue()
    asked = threading.Event()

    def is_back() -> bool:
        asked.set()
        return True

    AbsentPeers(lost.put, grace_s=SOON_S).lost(1, 1, "the channel broke", is_back)
    assert asked.wait(WAIT_S)
    assert lost.empty()


def test_the_loss_of_a_peer_that_has_started_again_is_a_new_one() -> None:
    """A late sign of the former one is not."""
    lost: queue.Queue[str] = queue.Queue()
    peers = AbsentPeers(lost.put, grace_s=SOON_S)
    peers.await_part([1], 0)
    peers.starts([1], 0, 2)
    peers.lost(1, 1, "late", never)
    peers.lost(1, 2, "again", never)
    assert lost.get(timeout=WAIT_S) == "again"
    assert lost.empty()


def test_the_word_of_an_earlier_leader_does_not_count() -> None:
    lost: queue.Queue[str] = queue.Queue()
    peers = AbsentPeers(lost.put, lambda: 8, SOON_S)
    peers.await_part([1], 7)
    peers.lost(1, 1, "the channel broke", never)
    assert lost.get(timeout=WAIT_S) == "the channel broke"


def test_a_subtask_that_ends_misses_no_peer() -> None:
    lost: queue.Queue[str] = queue.Queue()
    before = threading.active_count()
    peers = AbsentPeers(lost.put, grace_s=LATER_S)
    peers.lost(1, 1, "the channel broke", never)
    assert threading.active_count() == before + 1
    peers.close()
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join(WAIT_S)
    assert threading.active_count() == before
    peers.lost(1, 1, "the channel broke", never)
    assert threading.active_count() == before
    assert lost.empty()


def test_the_leaders_own_moment_is_over_before_that_of_a_peer() -> None:
    """Its word takes some time, too; else the whole job would restart."""
    assert absent_peers.GRACE_S * 1_000 >= GRACE_MS + 1_000
