"""Electors in processes of their own, on real ZooKeeper: killed, frozen, cut off from a server that comes and goes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_devtools.zookeeper.server import ZooKeeperEnsemble, ZooKeeperServer
from lockgate_ha.records import JobRecords
from lockgate_ha.session_store import SessionStore
from lockgate_ha.zookeeper import connect

pytestmark = pytest.mark.integration

WAIT_S = 120.0
SHORT_MS = 4_000  # of a session whose end is waited for
LONG_MS = 40_000
"""What comes well before the end of such a session has not come by that end, however slow the machine is."""


class Process:
    """One candidate process and what it says."""

    def __init__(self, address: str, cluster: str, name: str, session_ms: int) -> None:
        script = Path(__file__).with_name("candidate_process.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), address, cluster, name, str(session_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.messages: list[dict[str, Any]] = []
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name=f"reader-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def write(self, key: str) -> None:
        """Writes, again while ZooKeeper is away: refused at once is what a write is meant to be then."""
        for _ in range(300):
            self.tell(f"write {key}")
            if self.wait("written", "refused", key=key)["what"] == "written":
                return
            threading.Event().wait(0.1)
        raise AssertionError(f"{key} was never written: {self.messages}")

    def wait(self, *what: str, **wanted: object) -> dict[str, Any]:
        """The next line of these kinds."""
        deadline = time.monotonic() + WAIT_S
        while True:
            try:
                line = json.loads(self._lines.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no {what} {wanted} within {WAIT_S} s, but {self.messages}") from None
            self.messages.append(line)
            if line["what"] in what and all(line[name] == value for name, value in wanted.items()):
                return dict(line)

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Group:
    """The processes of one test."""

    def __init__(self) -> None:
        self.all: list[Process] = []

    def pair(self, address: str, cluster: str, session_ms: int = LONG_MS) -> tuple[Process, Process]:
        """A leader with token 1 and a standby that knows it."""
        leader = Process(address, cluster, "a", session_ms)
        self.all.append(leader)
        leader.wait("granted", token=1)
        standby = Process(address, cluster, "b", LONG_MS)
        self.all.append(standby)
        standby.wait("leader", token=1)
        return leader, standby


@pytest.fixture
def group() -> Iterator[Group]:
    made = Group()
    try:
        yield made
    finally:
        for item in made.all:
            item.end()


def test_a_killed_leader_is_replaced_on_evidence_long_before_its_session_ends(
    group: Group, zookeeper: ZooKeeperServer, cluster_name: str
) -> None:
    leader, standby = group.pair(zookeeper.address, cluster_name)
    leader.send(signal.SIGKILL)
    leader.process.wait()
    killed_us = time.time_ns() // 1_000
    standby.tell("gone 1")
    granted = standby.wait("granted", token=2)
    assert granted["detected"] >= killed_us
    assert granted["unix_us"] - killed_us < LONG_MS * 1_000 / 2, "the dead leader's session lives"
    standby.tell("write job")
    standby.wait("written")


def test_a_killed_leader_is_replaced_when_its_session_ends_without_other_evidence(
    group: Group, zookeeper: ZooKeeperServer, cluster_name: str
) -> None:
    leader, standby = group.pair(zookeeper.address, cluster_name, SHORT_MS)
    leader.send(signal.SIGKILL)
    standby.wait("granted", token=2)


def test_a_leader_frozen_past_its_session_is_fenced_when_it_wakes(
    group: Group, zookeeper: ZooKeeperServer, cluster_name: str
) -> None:
    leader, standby = group.pair(zookeeper.address, cluster_name, SHORT_MS)
    leader.send(signal.SIGSTOP)
    standby.wait("granted", token=2)
    leader.tell("write zombie-job")  # lies in its pipe: it is the first thing that the zombie does
    leader.send(signal.SIGCONT)
    refused = leader.wait("refused", key="zombie-job")
    assert refused["error"] in ("Fenced", "StoreUnavailable", "SessionLost", "OutcomeUnknown")
    if not any(messages["what"] == "revoked" for messages in leader.messages):
        leader.wait("revoked")
    standby.tell("write job")
    standby.wait("written")
    session = connect(zookeeper.address)
    try:
        jobs = JobRecords(SessionStore(cluster_name, session), cluster_name).jobs()
        assert [job.job_key for job in jobs] == ["job"]
    finally:
        session.close()


def test_a_zookeeper_outage_restarts_nothing(group: Group, own_zookeeper: ZooKeeperServer, cluster_name: str) -> None:
    leader, standby = group.pair(own_zookeeper.address, cluster_name, SHORT_MS)
    own_zookeeper.stop()
    leader.wait("suspended")
    standby.tell("gone 1")  # without ZooKeeper no evidence makes a leader
    threading.Event().wait(SHORT_MS / 1_000 + 1)  # longer than the session: the outage itself is what is tested
    own_zookeeper.start()
    leader.wait("resumed")
    leader.tell("write job")
    leader.wait("written")
    messages = [messages["what"] for messages in leader.messages + standby.messages]
    assert "revoked" not in messages
    assert messages.count("granted") == 1


def test_a_zookeeper_crash_restarts_nothing(group: Group, own_zookeeper: ZooKeeperServer, cluster_name: str) -> None:
    leader, _standby = group.pair(own_zookeeper.address, cluster_name)
    own_zookeeper.kill()
    leader.wait("suspended")
    own_zookeeper.start()
    leader.wait("resumed")
    assert "revoked" not in [messages["what"] for messages in leader.messages]


def test_a_released_leadership_is_taken_over_at_once(
    group: Group, zookeeper: ZooKeeperServer, cluster_name: str
) -> None:
    leader, standby = group.pair(zookeeper.address, cluster_name)
    leader.tell("release")
    released = leader.wait("revoked")
    granted = standby.wait("granted", token=2)
    assert granted["unix_us"] - released["unix_us"] < LONG_MS * 1_000 / 2, "no wait for the end of its session"


def test_an_ensemble_that_loses_a_member_keeps_the_leader(group: Group, tmp_path: Path, cluster_name: str) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path, 3)
    ensemble.start(60_000)
    try:
        leader, standby = group.pair(ensemble.address, cluster_name)
        for server in ensemble.servers:  # each in turn, so also the one that each session hangs on
            server.kill()
            leader.write(f"job-{server.port}")
            server.start(60_000)
        assert "revoked" not in [messages["what"] for messages in leader.messages + standby.messages]
    finally:
        ensemble.stop()
