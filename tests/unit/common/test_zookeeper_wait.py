"""How long a process waits for ZooKeeper at its start."""

from __future__ import annotations

import pytest
from lockgate_common.zookeeper_wait import NoZooKeeper, wait_for_zookeeper


def test_it_continues_as_soon_as_there_is_an_answer() -> None:
    answers = iter([False, False, True])
    assert wait_for_zookeeper(lambda _: next(answers), "zk:1", 60_000, lambda: False)


def test_a_process_asked_to_stop_waits_no_longer() -> None:
    assert not wait_for_zookeeper(lambda _: False, "zk:1", 60_000, lambda: True)


def test_silence_ends_with_a_sentence_that_names_the_remedy() -> None:
    with pytest.raises(NoZooKeeper, match="no ZooKeeper answered at zk:1 for 0 s; start it"):
        wait_for_zookeeper(lambda _: False, "zk:1", 0, lambda: False)


def test_silence_with_a_known_reason_ends_with_that() -> None:
    with pytest.raises(NoZooKeeper, match=r"^ZooKeeper at zk:1 speaks TLS only$"):
        wait_for_zookeeper(
            lambda _: False, "zk:1", 0, lambda: False, trouble=lambda: "ZooKeeper at zk:1 speaks TLS only"
        )
