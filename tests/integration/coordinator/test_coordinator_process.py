"""Coordinators as real processes over a real ZooKeeper: start, SIGKILL, SIGTERM, and mistakes of the user."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from lockgate_coordinator.runtime.faults import POINTS, SUBMISSION_POINTS
from lockgate_devtools.zookeeper.server import ZooKeeperServer
from lockgate_ha import steps
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.leader_failure_detector import Grounds
from lockgate_ha.paths import Paths
from lockgate_ha.protection import Protection
from lockgate_ha.records import JobRecords
from lockgate_ha.retrieval import LeaderRetrieval
from lockgate_ha.session import Session
from lockgate_ha.session_store import SessionStore
from lockgate_ha.zookeeper import connect, connector
from lockgate_proto import messages as m
from lockgate_proto.messages import JobEventKind, JobState, LeaderRecord

from tests import mutated
from tests.integration.coordinator.conftest import SECRET, Caller, graph, poll
from tests.integration.coordinator.fake_task_manager import FakeTaskManager
from tests.integration.coordinator.test_coordinator_submission import large

pytestmark = pytest.mark.integration

WAIT_MS = 150_000
LONG_SESSION_MS = 60_000
"""What comes well before the end of such a session has not come by that end, however slow the machine is."""
READY = re.compile(r"lockgate coordinator ready: id=(\S+) address=(\S+) pid=(\d+)(?: dashboard=\S+)?\n")
STUCK = """
import threading
from lockgate_coordinator.runtime import watchdog
from lockgate_coordinator.runtime.dispatcher import Dispatcher
watchdog.LIMIT_S = 1.0
def stuck_here():
    threading.Event().wait()
granted = Dispatcher.granted
def grant(dispatcher, *arguments):
    granted(dispatcher, *arguments)
    dispatcher.actor.tell(stuck_here)
Dispatcher.granted = grant
"""
MUTE = """
import threading
from lockgate_coordinator.runtime import watchdog
from lockgate_coordinator.runtime.process import Coordinator
watchdog.LIMIT_S = 1.0
def stuck_here():
    threading.Event().wait()
start = Coordinator.start
def mute(coordinator, *arguments):
    coordinator._server.thread.post(stuck_here)
    start(coordinator, *arguments)
Coordinator.start = mute
"""
BROKEN = """
from lockgate_coordinator.runtime.dispatcher import Dispatcher
def broken(dispatcher, *arguments):
    raise RuntimeError("a mistake made for this test")
Dispatcher.granted = Dispatcher.revoked = broken
"""
PROGRAM = """
import logging, sys
logging.basicConfig(level="INFO", stream=sys.stderr)
from lockgate_common.security import Credentials
from lockgate_coordinator.runtime.process import run
from lockgate_coordinator.runtime.settings import CoordinatorSettings
sys.exit(run(CoordinatorSettings(credentials=Credentials(secret={secret!r}), **{values!r})))
"""


class Process:
    """One coordinator process."""

    def __init__(self, log: Path, environment: dict[str, str], before: str, **values: Any) -> None:
        program = mutated.program() + before + PROGRAM.format(secret=SECRET.secret, values=values)
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

    def end_freeze(self) -> None:
        self.popen.send_signal(signal.SIGCONT)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.popen.send_signal(number)
        return self.popen.wait(WAIT_MS / 1000)


@pytest.fixture
def new_process(zookeeper: ZooKeeperServer, cluster_name: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    made: list[Process] = []

    def make(fault: str = "", before: str = "", **values: Any) -> Process:
        known: dict[str, Any] = {
            "zookeeper": zookeeper.address,
            "cluster": cluster_name,
            "storage": str(tmp_path / "storage"),
            "bind": "127.0.0.1:0",
            "heartbeat_ms": 100,
            "heartbeat_timeout_ms": WAIT_MS,  # a busy machine's pause is no loss
        }
        environment = dict(os.environ) | ({"LOCKGATE_FAULT": fault} if fault else {})
        made.append(Process(tmp_path / f"c{len(made)}.log", environment, before, **(known | values)))
        return made[-1]

    yield make
    for process in made:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.wait()
        if process.popen.stdout is not None:
            process.popen.stdout.close()


@pytest.fixture
def retrieval(zookeeper: ZooKeeperServer, cluster_name: str) -> Iterator[LeaderRetrieval]:
    leader_retrieval = LeaderRetrieval(
        connector(zookeeper.address, protection=Protection(cluster_name, SECRET.secret)), cluster_name
    )
    leader_retrieval.start()
    yield leader_retrieval
    leader_retrieval.stop()


def test_a_killed_leader_is_followed_within_a_moment_and_the_job_continues(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    new_task_manager: Callable[..., FakeTaskManager],
) -> None:
    first = new_process(coordinator_id="first", session_timeout_ms=LONG_SESSION_MS).ready()
    assert retrieval.wait(WAIT_MS) is not None
    second = new_process(coordinator_id="second").ready()
    task_manager = _connect(new_task_manager(), first)
    api = Caller(first.address)
    run_id = api("Submit", m.SubmitRequest("job", graph())).run_id
    api.until("job", lambda status: status.checkpoints_completed >= 2)
    api.close()
    killed = time.time_ns() // 1_000
    assert first.end(signal.SIGKILL) == -signal.SIGKILL
    leader = retrieval.wait(WAIT_MS, newer_than=1)
    assert leader is not None
    assert leader.address == second.address
    _connect(task_manager, second)
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
    assert f"token 2 was granted: {Grounds.REFUSED.value}" in second.log.read_text(), "not for the end of its session"
    assert second.end() == 0


def test_a_frozen_leader_is_replaced_before_its_session_ends_and_steps_down_when_it_goes_on(
    new_process: Callable[..., Process], retrieval: LeaderRetrieval
) -> None:
    first = new_process(session_timeout_ms=LONG_SESSION_MS).ready()
    assert retrieval.wait(WAIT_MS) is not None
    second = new_process().ready()
    poll(lambda: "follows this leader" in first.log.read_text())
    first.popen.send_signal(signal.SIGSTOP)
    leader = retrieval.wait(LONG_SESSION_MS // 2, newer_than=1)
    assert leader is not None
    assert leader.address == second.address
    poll(lambda: "token 2 was granted" in second.log.read_text())
    # The second: on a busy machine not even its port answers in time.
    grounds = (Grounds.MUTE, Grounds.UNANSWERED)
    assert any(f"token 2 was granted: {ground.value}" in second.log.read_text() for ground in grounds)
    first.end_freeze()
    poll(lambda: "election: Revoked" in first.log.read_text())
    assert first.popen.poll() is None, "it lives on as a standby"
    assert retrieval.current() == leader
    assert second.end() == 0
    assert retrieval.wait(WAIT_MS, newer_than=2) is not None
    assert first.end() == 0


def test_a_terminated_leader_hands_over_at_once(
    new_process: Callable[..., Process], retrieval: LeaderRetrieval
) -> None:
    first = new_process(session_timeout_ms=LONG_SESSION_MS).ready()
    assert retrieval.wait(WAIT_MS) is not None
    second = new_process().ready()
    began = time.monotonic()
    assert first.end() == 0
    leader = retrieval.wait(WAIT_MS, newer_than=1)
    assert leader is not None
    assert leader.address == second.address
    assert time.monotonic() - began < LONG_SESSION_MS / 2_000
    assert "Traceback" not in first.log.read_text()
    assert second.end(signal.SIGINT) == 0


def _connect(task_manager: FakeTaskManager, process: Process) -> FakeTaskManager:
    """On a busy machine a connection may fail once, after which a real task manager tries again."""
    poll(lambda: task_manager.connect(process.address).status is None or process.popen.poll() is not None)
    return task_manager


def test_a_leader_killed_at_any_fault_point_loses_no_completed_checkpoint(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    new_task_manager: Callable[..., FakeTaskManager],
) -> None:
    """Kills one leader after the other, each at another point of the protocol, under one job."""
    task_manager, token = new_task_manager(), 0
    process: Process | None = None
    for point in [*(name for name in POINTS if name != "before-result"), ""]:
        successor = new_process(point).ready()
        if process is not None:
            assert process.popen.wait(WAIT_MS / 1000) == -signal.SIGKILL, process.log.read_text()
        leader = retrieval.wait(WAIT_MS, newer_than=token)
        assert leader is not None
        assert leader.address == successor.address
        process, token = successor, leader.token
        if token == 1:  # answered before there are slots: nothing can kill this leader until then
            api = Caller(process.address)
            api("Submit", m.SubmitRequest("job", graph()))
            api.close()
        _connect(task_manager, process)
    assert process is not None
    last = Caller(process.address)
    status = last.until("job", lambda status: status.checkpoints_completed >= 2)
    last.close()
    seen = [deploy.restored_checkpoint_id for deploy in task_manager.bodies(m.Deploy) if isinstance(deploy, m.Deploy)]
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
    assert retrieval.wait(WAIT_MS) is not None
    second = new_process().ready()
    task_manager = new_task_manager()
    task_manager.exhausted = True
    api = Caller(first.address)
    api(
        "Submit", m.SubmitRequest("job", graph(rows=10, interval_ms=60_000))
    )  # an attempt's last checkpoint is its only
    api.close()
    _connect(task_manager, first)
    assert first.popen.wait(WAIT_MS / 1000) == -signal.SIGKILL
    assert retrieval.wait(WAIT_MS, newer_than=1) is not None
    _connect(task_manager, second)
    after = Caller(second.address)
    status = after.state("job", JobState.FINISHED)
    after.close()
    assert status.attempt == 2
    committed = {body.checkpoint_id for body in task_manager.bodies(m.NotifyCheckpointComplete)}  # type: ignore[attr-defined]
    assert len(committed) == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"zookeeper": "127.0.0.1:1", "connect_timeout_ms": 500}, "no ZooKeeper answered at 127.0.0.1:1"),
        ({"bind": "nonsense"}, "bind"),
        ({"bind": "0.0.0.0:0"}, "set advertise to the host:port"),
        ({"bind": "0.0.0.0:0", "advertise": "host.example:7070"}, "tls"),
        ({"storage": "nosuch://place"}, "nosuch://place"),
        ({"storage": "/proc/nothing/here"}, "/proc/nothing/here"),
    ],
)
def test_user_errors_are_one_line_and_exit_2(
    new_process: Callable[..., Process], values: dict[str, Any], message: str
) -> None:
    process = new_process(**values)
    assert process.popen.wait(WAIT_MS / 1000) == 2
    lines = [line for line in process.log.read_text().splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, process.log.read_text()
    assert message in lines[0]


def test_a_port_in_use_is_reported(new_process: Callable[..., Process]) -> None:
    first = new_process().ready()
    second = new_process(bind=first.address)
    assert second.popen.wait(WAIT_MS / 1000) == 2
    assert f"cannot listen on {first.address}" in second.log.read_text()


@pytest.mark.parametrize("before", [STUCK, MUTE], ids=["it decides nothing", "it answers nothing, from the start"])
def test_a_leader_that_is_stuck_ends_and_another_takes_over(
    new_process: Callable[..., Process], retrieval: LeaderRetrieval, before: str
) -> None:
    stuck = new_process(before=before)
    assert retrieval.wait(WAIT_MS) is not None
    other = new_process().ready()
    assert stuck.popen.wait(WAIT_MS / 1000) == 1, (
        "its heartbeats and its session alone would have kept its place for ever"
    )
    said = stuck.log.read_text()
    assert "has been stuck for 1 s" in said
    assert "in stuck_here" in said, "where it is"
    leader = retrieval.wait(WAIT_MS, newer_than=1)
    assert leader is not None
    assert leader.address == other.address


def test_a_write_that_a_frozen_leader_had_on_its_lips_is_refused(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    new_task_manager: Callable[..., FakeTaskManager],
    zookeeper: ZooKeeperServer,
    cluster_name: str,
) -> None:
    """It stands still between its last look at its grant and the transaction; its session lives all the time."""
    leader = new_process(fault="stop:before-zookeeper-commit:2", session_timeout_ms=20_000).ready()
    task_manager = _connect(new_task_manager(), leader)
    api = Caller(leader.address)
    run_id = api("Submit", m.SubmitRequest("job", graph())).run_id
    os.waitid(os.P_PID, leader.popen.pid, os.WSTOPPED)
    session = connect(zookeeper.address, 20_000, protection=Protection(cluster_name, SECRET.secret))
    usurper = _usurp(session, cluster_name)
    leader.end_freeze()
    pause, deadline = threading.Event(), time.monotonic() + WAIT_MS / 1000
    while "ZooKeeper refuses a write" not in leader.log.read_text():
        assert time.monotonic() < deadline, leader.log.read_text()
        pause.wait(0.02)
    assert "the write under token 1 was refused: the cluster is at token 2" in leader.log.read_text()
    store = SessionStore(cluster_name, session)
    records = JobRecords(store, cluster_name)
    assert [checkpoint.checkpoint_id for checkpoint in records.checkpoints("job")] == [1], (
        "the zombie has completed nothing"
    )
    records.write_checkpoint_id(usurper, "job", 7)  # who leads now may write
    session.close()
    assert retrieval.wait(WAIT_MS, newer_than=2) is not None
    _connect(task_manager, leader)
    status = api.until("job", lambda status: status.checkpoints_completed >= 1)
    api.close()
    assert (status.run_id, status.attempt, status.token) == (run_id, 2, 3)
    assert status.last_checkpoint is not None
    assert status.last_checkpoint.checkpoint_id >= 8


def test_a_submission_that_a_frozen_leader_had_on_its_lips_is_refused(
    new_process: Callable[..., Process], retrieval: LeaderRetrieval, zookeeper: ZooKeeperServer, cluster_name: str
) -> None:
    """It creates nothing, and does not claim to; the next leader creates the job under its own token."""
    leader = new_process(fault=f"stop:{SUBMISSION_POINTS[0]}", session_timeout_ms=20_000).ready()
    assert retrieval.wait(WAIT_MS) is not None
    api = Caller(leader.address)
    request = m.SubmitRequest("job", graph())
    with (
        ThreadPoolExecutor(1) as pool,
        contextlib.closing(
            connect(zookeeper.address, 20_000, protection=Protection(cluster_name, SECRET.secret))
        ) as session,
    ):
        answer = pool.submit(api, "Submit", request)
        os.waitid(os.P_PID, leader.popen.pid, os.WSTOPPED)
        records = JobRecords(SessionStore(cluster_name, session), cluster_name)
        assert records.job("job") is None
        _usurp(session, cluster_name)
        leader.end_freeze()
        error = answer.exception(WAIT_MS / 1000)
        assert isinstance(error, grpc.RpcError), f"it was acknowledged: {answer}"
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert records.job("job") is None, "the zombie has created a job"
    assert retrieval.wait(WAIT_MS, newer_than=2) is not None
    created = api("Submit", request)
    api.close()
    with contextlib.closing(connect(zookeeper.address, protection=Protection(cluster_name, SECRET.secret))) as session:
        found = JobRecords(SessionStore(cluster_name, session), cluster_name).job("job")
    assert created.created
    assert found is not None
    assert (found.run_id, found.token) == (created.run_id, 3)


def test_a_leader_killed_between_a_large_graph_and_its_record_leaves_one_job_and_one_graph(
    new_process: Callable[..., Process],
    retrieval: LeaderRetrieval,
    zookeeper: ZooKeeperServer,
    cluster_name: str,
    tmp_path: Path,
) -> None:
    """The client asks again; the graph that the dead leader has stored goes with that."""
    folder, request = tmp_path / "storage" / cluster_name / "job", m.SubmitRequest("job", large())
    first = new_process(SUBMISSION_POINTS[0]).ready()
    assert retrieval.wait(WAIT_MS) is not None
    api = Caller(first.address)
    with pytest.raises(grpc.RpcError):
        api("Submit", request)
    api.close()
    assert first.popen.wait(WAIT_MS / 1000) == -signal.SIGKILL
    (left,) = (path for path in folder.rglob("*") if path.is_file())
    second = new_process().ready()
    assert retrieval.wait(WAIT_MS, newer_than=1) is not None
    with contextlib.closing(connect(zookeeper.address, protection=Protection(cluster_name, SECRET.secret))) as session:
        records = JobRecords(SessionStore(cluster_name, session), cluster_name)
        assert records.jobs() == ()
        assert left.exists(), "no leader knows whether it is needed"
        after = Caller(second.address)
        answers = [after("Submit", request) for _ in range(2)]
        after.close()
        assert [answer.created for answer in answers] == [True, False]
        found = records.job("job")
    assert found is not None
    assert {answer.run_id for answer in answers} == {found.run_id}
    graph_file = Path(found.graph_pointer.removeprefix("file://"))
    assert graph_file != left
    poll(lambda: [path for path in folder.rglob("*") if path.is_file()] == [graph_file])


def _usurp(session: Session, cluster: str) -> LeadershipGrant:
    """Takes the grant by the elector's own steps, whatever the leader is about."""
    paths = Paths(cluster)
    steps.join(session, paths, "usurper", LeaderRecord(address="nobody:1"), rejoin=False)
    view = steps.read_view(session, paths, {}, lambda: None)
    record = LeaderRecord(token=view.epoch + 1, address="nobody:1", session=session.id, coordinator_id="usurper")
    contender = next(contender.name for contender in view.contenders if contender.record.address == "nobody:1")
    steps.claim(session, paths, contender, record, view.epoch_version, view.leader is not None)
    return LeadershipGrant(record.token, "usurper", session.id)


def test_a_coordinator_without_an_elector_ends(new_process: Callable[..., Process], retrieval: LeaderRetrieval) -> None:
    broken = new_process(before=BROKEN)
    assert broken.popen.wait(WAIT_MS / 1000) == 1, "it would have stayed, deciding nothing"
    assert "the elector cannot continue" in broken.log.read_text()
    other = new_process().ready()
    leader = retrieval.wait(WAIT_MS, newer_than=1)
    assert leader is not None
    assert leader.address == other.address
