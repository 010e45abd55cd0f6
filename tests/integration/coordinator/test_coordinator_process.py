"""Coordinators as real processes over a real ZooKeeper: start, SIGKILL, SIGTERM, and mistakes of the user."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lockgate_proto import messages as m
from lockgate_proto.messages import JobEventKind, JobState

from coordinator.runtime.faults import POINTS
from ha.retrieval import LeaderRetrieval
from ha.zookeeper import connector
from ha.zookeeper.server import ZooKeeperServer
from tests.integration.coordinator.conftest import SECRET, Caller, graph
from tests.integration.coordinator.fake_task_manager import FakeTaskManager

pytestmark = pytest.mark.integration

READY = re.compile(r"lockgate coordinator ready: id=(\S+) address=(\S+) pid=(\d+)\n")
PROGRAM = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stderr)
from lockgate_proto.security import Credentials
from coordinator.runtime.process import run
from coordinator.runtime.settings import CoordinatorSettings
sys.exit(run(CoordinatorSettings(credentials=Credentials(secret={secret!r}), **{values!r})))
"""


class Process:
    """One coordinator process."""

    def __init__(self, log: Path, environment: dict[str, str], **values: Any) -> None:
        program = PROGRAM.format(secret=SECRET.secret, values=values)
        with log.open("w") as file:
            self.popen = subprocess.Popen(
                [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=file, text=True, env=environment
            )
        self.log = log
        self.address = ""

    def ready(self) -> Process:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        found = READY.fullmatch(line)
        assert found, (line, self.log.read_text())
        assert int(found[3]) == self.popen.pid
        self.address = found[2]
        return self

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(30)


@pytest.fixture
def new_process(zookeeper: ZooKeeperServer, cluster_name: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def make(fault: str = "", **values: Any) -> Process:
        known: dict[str, Any] = {
            "zookeeper": zookeeper.address,
            "cluster": cluster_name,
            "storage": str(tmp_path / "storage"),
            "bind": "127.0.0.1:0",
            "heartbeat_ms": 100,
        }
        environment = dict(os.environ) | ({"LOCKGATE_FAULT": fault} if fault else {})
        made.append(Process(tmp_path / f"c{len(made)}.log", environment, **(known | values)))
        return made[-1]

    yield make
    for one in made:
        if one.popen.poll() is None:
            one.popen.kill()
        one.popen.wait()
        if one.popen.stdout is not None:
            one.popen.stdout.close()


@pytest.fixture
def retrieval(zookeeper: ZooKeeperServer, cluster_name: str) -> Iterator[LeaderRetrieval]:
    one = LeaderRetrieval(connector(zookeeper.address), cluster_name)
    one.start()
    yield one
    one.stop()


def test_a_killed_leader_is_followed_within_a_moment_and_the_job_goes_on(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    new_task_manager: Callable[..., FakeTaskManager],
) -> None:
    first = new_process(coordinator_id="first").ready()
    assert retrieval.wait(10_000) is not None
    second = new_process(coordinator_id="second").ready()
    one = new_task_manager().connect(first.address)
    api = Caller(first.address)
    run_id = api("Submit", m.SubmitRequest("job", graph())).run_id
    api.until("job", lambda status: status.checkpoints_completed >= 2)
    api.close()
    killed = time.time_ns() // 1_000
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    leader = retrieval.wait(10_000, newer_than=1)
    assert leader is not None
    assert leader.address == second.address
    one.connect(second.address)
    after = Caller(second.address)
    status = after.until("job", lambda status: status.checkpoints_completed >= 1)
    assert (status.run_id, status.attempt, status.state) == (run_id, 2, JobState.RUNNING)
    stream = after("Watch", m.WatchRequest("job"))
    times: dict[JobEventKind, float] = {}
    for update in stream:
        if isinstance(update.update, m.JobEvent):
            times.setdefault(update.update.kind, (update.update.unix_us - killed) / 1_000)
            if update.update.kind is JobEventKind.CHECKPOINT_COMPLETED:
                break
    stream.cancel()
    after.close()
    print({kind.name: at for kind, at in times.items()})
    order = [JobEventKind.LEADER_LOSS_DETECTED, JobEventKind.LEADER_GRANTED, JobEventKind.JOB_RECOVERED]
    assert [times[kind] for kind in order] == sorted(times[kind] for kind in order)
    # the session of the dead leader lasts 4 s more: what came before that came by evidence
    assert times[JobEventKind.LEADER_GRANTED] < 3_000
    assert second.end() == 0


def test_a_terminated_leader_hands_over_at_once(
    new_process: Callable[..., Process], retrieval: LeaderRetrieval
) -> None:
    first = new_process().ready()
    assert retrieval.wait(10_000) is not None
    second = new_process().ready()
    began = time.monotonic()
    assert first.end() == 0
    leader = retrieval.wait(10_000, newer_than=1)
    assert leader is not None
    assert leader.address == second.address
    assert time.monotonic() - began < 3
    assert "Traceback" not in first.log.read_text()
    assert second.end(signal.SIGINT) == 0


def test_a_leader_killed_at_any_fault_point_loses_no_completed_checkpoint(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    new_task_manager: Callable[..., FakeTaskManager],
) -> None:
    """Kills one leader after the other, each at another point of the protocol, under one job."""
    one, token = new_task_manager(), 0
    process: Process | None = None
    for point in [*(name for name in POINTS if name != "before-result"), ""]:
        successor = new_process(point).ready()
        if process is not None:
            assert process.popen.wait(30) == -signal.SIGKILL, process.log.read_text()
        leader = retrieval.wait(15_000, newer_than=token)
        assert leader is not None
        assert leader.address == successor.address
        process, token = successor, leader.token
        one.connect(process.address)
        if token == 1:
            api = Caller(process.address)
            api("Submit", m.SubmitRequest("job", graph()))
            api.close()
    assert process is not None
    last = Caller(process.address)
    status = last.until("job", lambda status: status.checkpoints_completed >= 2)
    last.close()
    seen = [deploy.restored_checkpoint_id for deploy in one.bodies(m.Deploy) if isinstance(deploy, m.Deploy)]
    assert seen == sorted(seen), "a later leader went back behind a completed checkpoint"
    assert token == len(POINTS)
    assert status.last_checkpoint is not None
    assert status.last_checkpoint.checkpoint_id > max(seen) > 0


def test_a_leader_killed_before_it_writes_the_result_is_finished_by_the_next(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    new_task_manager: Callable[..., FakeTaskManager],
) -> None:
    first = new_process("before-result").ready()
    assert retrieval.wait(10_000) is not None
    second = new_process().ready()
    one = new_task_manager()
    one.exhausted = True
    one.connect(first.address)
    api = Caller(first.address)
    api("Submit", m.SubmitRequest("job", graph(rows=10)))
    api.close()
    assert first.popen.wait(30) == -signal.SIGKILL
    assert retrieval.wait(10_000, newer_than=1) is not None
    one.connect(second.address)
    after = Caller(second.address)
    status = after.state("job", JobState.FINISHED)
    after.close()
    assert status.attempt == 2
    committed = {body.checkpoint_id for body in one.bodies(m.NotifyCheckpointComplete)}  # type: ignore[attr-defined]
    assert len(committed) == 2


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"zookeeper": "127.0.0.1:1", "connect_timeout_ms": 500}, "no ZooKeeper answered at 127.0.0.1:1"),
        ({"bind": "nonsense"}, "bind"),
        ({"bind": "0.0.0.0:0"}, "set advertise to the host:port"),
        ({"bind": "0.0.0.0:0", "advertise": "host.example:7070"}, "tls"),
        ({"storage": "nosuch://place"}, "nosuch://place"),
        ({"storage": "/proc/nothing/here"}, "/proc/nothing/here"),
    ],
)
def test_what_the_user_can_put_right_is_one_line_and_exit_2(
    new_process: Callable[..., Process], values: dict[str, Any], told: str
) -> None:
    one = new_process(**values)
    assert one.popen.wait(60) == 2
    lines = [line for line in one.log.read_text().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, one.log.read_text()
    assert told in lines[0]


def test_a_taken_port_is_told(new_process: Callable[..., Process]) -> None:
    first = new_process().ready()
    second = new_process(bind=first.address)
    assert second.popen.wait(60) == 2
    assert f"cannot listen on {first.address}" in second.log.read_text()
