"""A new leader that cannot read one job: that one waits and says why, the others do not notice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from lockgate_coordinator.runtime import job_reading, rpc_server
from lockgate_coordinator.runtime.checkpoint_reads import CheckpointReads
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import (
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S, FakeTaskManager

pytestmark = pytest.mark.integration


@pytest.fixture
def fake_task_manager(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> FakeTaskManager:
    """A task manager that runs the jobs "good" and "bad" of a leader that has gone."""
    leader = leading(new_coordinator())
    task_manager, api = new_task_manager(slots=4).connect(leader.address), caller(leader)
    for key in ("good", "bad"):
        api("Submit", m.SubmitRequest(key, graph()))
        api.until(key, lambda status: status.checkpoints_completed >= 1)
    leader.stop()
    return task_manager


def unreadable(patch: pytest.MonkeyPatch, error: Exception) -> threading.Event:
    """The job "bad" cannot be read until the event is set."""
    whole, healed = JobRecords.found, threading.Event()

    def found(self: JobRecords, key: str) -> Any:
        if key == "bad" and not healed.is_set():
            raise error
        return whole(self, key)

    patch.setattr(JobRecords, "found", found)
    return healed


@pytest.mark.parametrize("error", [StoreUnavailable("not just now"), RuntimeError("can't start new thread")])
def test_a_job_that_cannot_be_read_waits_alone_and_is_read_later(
    fake_task_manager: FakeTaskManager,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    healed = unreadable(monkeypatch, error)
    successor = leading(new_coordinator())
    fake_task_manager.connect(successor.address)
    api = caller(successor)
    api.until("good", lambda status: status.state is JobState.RUNNING and status.checkpoints_completed >= 2)
    api("Submit", m.SubmitRequest("new", graph()))
    api.until("new", lambda status: status.checkpoints_completed >= 1)
    status = api.until("bad", lambda status: "next try" in status.message)
    assert str(error) in status.message
    assert status.state is JobState.WAITING_FOR_SLOTS
    assert {status.job_key for status in api("List", m.ListRequest()).jobs} == {"good", "bad", "new"}
    for method, request in (
        ("Submit", m.SubmitRequest("bad", graph())),
        ("Cancel", m.CancelRequest("bad")),
        ("TriggerSavepoint", m.TriggerSavepointRequest("bad")),
        ("ListCheckpoints", m.ListCheckpointsRequest("bad")),
    ):
        failed = api.fails(method, request)
        assert failed.code() is grpc.StatusCode.UNAVAILABLE, method  # a client tries again
    assert not [body for body in fake_task_manager.bodies(m.CancelAttempt) if body.attempt.job_key == "bad"]  # type: ignore[attr-defined]
    healed.set()
    after = api.until("bad", lambda status: status.state is JobState.RUNNING and status.checkpoints_completed >= 2)
    assert after.message == ""
    assert not api("Submit", m.SubmitRequest("bad", graph())).created


def test_reports_on_a_job_that_is_not_read_yet_are_kept(
    fake_task_manager: FakeTaskManager,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    healed = unreadable(monkeypatch, StoreUnavailable("not just now"))
    successor = leading(new_coordinator())
    stray = m.AttemptId("bad", "another-run", 1)
    fake_task_manager.running.append(stray)
    fake_task_manager.connect(successor.address)
    api = caller(successor)
    api.until("bad", lambda status: "next try" in status.message)
    assert stray in fake_task_manager.running  # whether it is wanted cannot be known yet
    healed.set()
    api.until("bad", lambda status: status.state is JobState.RUNNING and status.checkpoints_completed >= 2)
    fake_task_manager.wait(lambda: any(body.attempt == stray for body in fake_task_manager.bodies_now(m.CancelAttempt)))  # type: ignore[attr-defined]


def test_a_job_that_had_ended_before_it_could_be_read_is_cleaned_up_and_its_watch_ends(
    fake_task_manager: FakeTaskManager,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_id = next(body.attempt.run_id for body in fake_task_manager.bodies(m.Deploy) if body.attempt.job_key == "bad")  # type: ignore[attr-defined]
    store, grant = server.lead("default", "between")
    JobRecords(store, "default").write_result(grant, m.JobResult("bad", run_id, outcome="FINISHED", dirty=True))
    server.expire(grant.session)
    healed = unreadable(monkeypatch, StoreUnavailable("not just now"))
    successor = leading(new_coordinator())
    fake_task_manager.connect(successor.address)
    api = caller(successor)
    api.until("bad", lambda status: "next try" in status.message)
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(api.state, "bad", JobState.FINISHED)
        healed.set()
        assert watched.result(WAIT_S).run_id == run_id
    session = server.open()
    poll(lambda: session.get(Paths("default").job("bad")) is None)
    fake_task_manager.wait(
        lambda: any(body.attempt.job_key == "bad" for body in fake_task_manager.bodies_now(m.CancelAttempt))
    )  # type: ignore[attr-defined]
    assert api.status("good").job_key == "good"


def test_a_read_that_hangs_blocks_no_other_job(
    fake_task_manager: FakeTaskManager,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_reading, "PATIENCE_MS", 50)
    whole, gate = Persistence.load, threading.Event()

    def load(self: Persistence, key: str) -> Any:
        if key == "bad":
            assert gate.wait(WAIT_S)
        return whole(self, key)

    monkeypatch.setattr(Persistence, "load", load)
    try:
        successor = leading(new_coordinator())
        fake_task_manager.connect(successor.address)
        api = caller(successor)
        api.until("good", lambda status: status.state is JobState.RUNNING)
        api.until("bad", lambda status: "being read" in status.message)
    finally:
        gate.set()
    api.until("bad", lambda status: status.state is JobState.RUNNING)


def test_storage_that_hangs_keeps_no_question_about_leader_and_jobs_waiting(
    leader: Coordinator, api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, gate = threading.Semaphore(0), threading.Event()

    def hang(_reads: CheckpointReads, _key: str) -> tuple[m.CheckpointOffsets, ...]:
        asked.release()
        assert gate.wait(WAIT_S)
        return ()

    monkeypatch.setattr(CheckpointReads, "offsets", hang)
    api("Submit", m.SubmitRequest("job", graph()))
    at_a_time = rpc_server._THREADS
    with ThreadPoolExecutor(at_a_time + 8) as pool:
        try:
            request = m.ListCheckpointsRequest("job", offsets=True)
            answers = [pool.submit(api, "ListCheckpoints", request) for _ in range(at_a_time + 8)]
            for _ in range(at_a_time):
                assert asked.acquire(timeout=WAIT_S)
            assert api("GetLeader", m.GetLeaderRequest()).address == leader.address
            assert api.status("job").job_key == "job"
        finally:
            gate.set()
    assert all(answer.result().offsets == () for answer in answers)


@pytest.mark.usefixtures("fake_task_manager")
@pytest.mark.parametrize("method", ["job_keys", "results"])
def test_the_lists_that_a_term_begins_with_are_read_again_when_that_fails(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
) -> None:
    whole: Callable[[Persistence], Any] = getattr(Persistence, method)
    failures: list[str] = []

    def fail_once(self: Persistence) -> Any:
        if not failures:
            failures.append(method)
            raise RuntimeError("can't start new thread")
        return whole(self)

    monkeypatch.setattr(Persistence, method, fail_once)
    api: Caller = caller(leading(new_coordinator()))
    assert {status.job_key for status in api("List", m.ListRequest()).jobs} == {"good", "bad"}
    assert failures
