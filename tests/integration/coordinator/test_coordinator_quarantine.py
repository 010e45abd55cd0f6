"""A job whose recovery ends the leader is held back after some of them; the others run on."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import grpc
import pytest
from lockgate_coordinator.runtime import recovery_line
from lockgate_coordinator.runtime.dispatcher import Dispatcher
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.recovery_line import MAX_DEATHS
from lockgate_coordinator.runtime.term import LeaderTerm
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.grant import LeadershipGrant
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import (
    PATIENT_MS,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    graph,
    leading,
    poll,
)

pytestmark = pytest.mark.integration

CLUSTER = "default"


class Former:
    """A leader before, of which only what it has written is left."""

    def __init__(self, server: EmbeddedZooKeeper) -> None:
        self.store, self.grant = server.lead(CLUSTER, "former")
        self.records = JobRecords(self.store, CLUSTER)

    def submit(self, key: str, deaths: int = 0, **changes: object) -> m.JobRecord:
        record = m.JobRecord(key, f"run-{key}", graph=encode(graph()), graph_checksum="x", submitted_unix_ms=1)
        record = dataclasses.replace(record, **changes)  # type: ignore[arg-type]
        self.records.submit(self.grant, record)
        if deaths:
            self.records.note_recovery(self.grant, key, deaths)
        return record


@pytest.fixture
def former(server: EmbeddedZooKeeper) -> Former:
    return Former(server)


@pytest.fixture(autouse=True)
def only_what_runs_is_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine must not let a job through by its patience."""
    monkeypatch.setattr(recovery_line, "SETTLED_MS", PATIENT_MS)


def test_a_job_that_leaders_died_of_is_held_back_and_the_others_run(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    former.submit("poison", MAX_DEATHS)
    former.submit("good")
    leader = leading(new_coordinator())
    api = caller(leader)
    task_manager = new_task_manager(slots=4).connect(leader.address)
    api.state("good", JobState.RUNNING)
    status = api.state("poison", JobState.HELD_BACK)
    assert "3 leaders in a row died" in status.message
    assert "lockgate release poison" in status.message
    assert all(isinstance(body, m.Deploy) and body.attempt.job_key == "good" for body in task_manager.bodies(m.Deploy))
    assert former.records.deaths("poison") == MAX_DEATHS
    poll(lambda: former.records.deaths("good") == 0)
    for method, request in (
        ("TriggerSavepoint", m.TriggerSavepointRequest("poison")),
        ("Stop", m.StopRequest("poison")),
        ("ListCheckpoints", m.ListCheckpointsRequest("poison")),
    ):
        error = api.fails(method, request)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert "held back" in (error.details() or "")


def test_it_can_be_cancelled_and_its_files_stay(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller, storage: Path
) -> None:
    former.submit("poison", MAX_DEATHS)
    kept = storage / CLUSTER / "poison" / "run-poison" / "chk-1" / "_metadata"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"of a checkpoint")
    api = caller(leading(new_coordinator()))
    api.state("poison", JobState.HELD_BACK)
    assert api("Cancel", m.CancelRequest("poison")).state is JobState.CANCELED
    assert "3 leaders in a row died" in api.state("poison", JobState.CANCELED).error
    poll(lambda: former.records.job("poison") is None)
    assert kept.exists()


def test_a_start_that_no_seal_vouches_for_is_held_back_and_does_not_fail(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller, storage: Path
) -> None:
    """As versions before seals left it: a record without the snapshot's checksum, and a snapshot without a seal."""
    file = storage / "savepoint" / "_metadata"
    file.parent.mkdir(parents=True)
    file.write_bytes(encode(m.CheckpointMetadata(format_version=1, job_key="old", run_id="run-old", checkpoint_id=1)))
    former.submit("old", restore_from=str(file.parent))
    api = caller(leading(new_coordinator()))
    status = api.state("old", JobState.HELD_BACK)
    assert (
        f"the snapshot that it starts from, {file.as_uri()}, lacks the seal of this cluster; so it is held back"
        in status.message
    )
    assert "`lockgate zookeeper protect`" in status.message
    assert api("Release", m.ReleaseRequest("old")).state is JobState.WAITING_FOR_SLOTS
    api.state("old", JobState.HELD_BACK)
    assert former.records.job("old") is not None
    assert api("Cancel", m.CancelRequest("old")).state is JobState.CANCELED
    assert file.exists()


def test_such_a_start_is_held_back_too_when_the_storage_was_away_at_first(
    former: Former,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The JobMaster has begun by then, so this is the answer to its second try."""
    file = storage / "savepoint" / "_metadata"
    file.parent.mkdir(parents=True)
    file.write_bytes(encode(m.CheckpointMetadata(format_version=1, job_key="old", run_id="run-old", checkpoint_id=1)))
    away, read = threading.Event(), MetadataFiles.read
    away.set()

    def read_if_there(files: MetadataFiles, pointer: str, checksum: str = "") -> m.CheckpointMetadata:
        if away.is_set():
            raise StorageError("no route to the storage", retryable=True)
        return read(files, pointer, checksum)

    monkeypatch.setattr(MetadataFiles, "read", read_if_there)
    former.submit("old", restore_from=str(file.parent))
    former.records.write_attempt(former.grant, "old", m.AttemptRecord(attempt=4))
    former.records.write_checkpoint_id(former.grant, "old", 7)
    api = caller(leading(new_coordinator()))
    api.until("old", lambda status: "no route to the storage" in status.message)
    away.clear()
    status = api.state("old", JobState.HELD_BACK)
    assert (
        f"the snapshot that it starts from, {file.as_uri()}, lacks the seal of this cluster; so it is held back"
        in status.message
    )
    assert api.fails("Stop", m.StopRequest("old")).code() is grpc.StatusCode.FAILED_PRECONDITION
    assert api("Release", m.ReleaseRequest("old")).state is JobState.WAITING_FOR_SLOTS
    api.state("old", JobState.HELD_BACK)
    assert former.records.attempt("old") == m.AttemptRecord(attempt=4)
    assert former.records.restart_point("old").checkpoint_id == 7
    assert api("Cancel", m.CancelRequest("old")).state is JobState.CANCELED
    assert file.exists()


def test_a_cancel_that_a_former_leader_has_acknowledged_ends_it(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller
) -> None:
    former.submit("poison", MAX_DEATHS, cancel_requested=True)
    caller(leading(new_coordinator())).state("poison", JobState.CANCELED)


@pytest.mark.parametrize("is_written", [True, False])
def test_a_watch_that_begins_while_a_cancel_is_written_ends_with_what_becomes_of_it(
    is_written: bool,
    former: Former,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    goes_on, write = threading.Event(), Persistence.give_up

    def slow(self: Persistence, result: m.JobResult) -> m.JobResult:
        assert goes_on.wait(PATIENT_MS / 1_000)
        if not is_written:
            raise StorageError("it cannot be written", retryable=True)
        return write(self, result)

    monkeypatch.setattr(Persistence, "give_up", slow)
    former.submit("poison", MAX_DEATHS, cancel_requested=True)
    api = caller(leading(new_coordinator()))
    poll(lambda: api.status("poison").state is JobState.CANCELING)
    seen = []

    def ends(status: m.JobStatus) -> bool:
        seen.append(status.state)
        goes_on.set()
        return status.state in (JobState.CANCELED, JobState.FAILED)

    api.until("poison", ends)
    assert seen == [JobState.CANCELING, JobState.CANCELED if is_written else JobState.FAILED]


def test_a_released_job_is_retried_and_its_count_restarts(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    former.submit("poison", MAX_DEATHS)
    leader = leading(new_coordinator())
    api = caller(leader)
    api.state("poison", JobState.HELD_BACK)
    assert api("Release", m.ReleaseRequest("poison")).state is JobState.WAITING_FOR_SLOTS
    poll(lambda: former.records.deaths("poison") == 1)  # its recovery is under way again
    assert api("Release", m.ReleaseRequest("poison")).state is JobState.WAITING_FOR_SLOTS  # twice is as good as once
    new_task_manager().connect(leader.address)
    api.state("poison", JobState.RUNNING)
    poll(lambda: former.records.deaths("poison") == 0)
    assert api("Release", m.ReleaseRequest("poison")).state is JobState.RUNNING
    assert api.fails("Release", m.ReleaseRequest("other")).code() is grpc.StatusCode.NOT_FOUND


def test_running_attempts_of_a_held_job_are_stopped(
    former: Former, new_coordinator: NewCoordinator, new_task_manager: NewTaskManager
) -> None:
    former.submit("poison", MAX_DEATHS)
    leader = leading(new_coordinator())
    task_manager = new_task_manager()
    task_manager.running = [m.AttemptId("poison", "run-poison", 4)]
    task_manager.connect(leader.address)
    cancel = task_manager.expect(m.CancelAttempt)
    assert isinstance(cancel, m.CancelAttempt)
    assert cancel.attempt == m.AttemptId("poison", "run-poison", 4)


def test_the_mark_is_durable_before_anything_of_the_job_is_looked_at(
    former: Former, new_coordinator: NewCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    former.submit("job")
    seen: list[int] = []
    whole = Persistence.start

    def start(self: Persistence, record: m.JobRecord, *, fresh: bool) -> object:
        seen.append(former.records.deaths(record.job_key))
        return whole(self, record, fresh=fresh)

    monkeypatch.setattr(Persistence, "start", start)
    leading(new_coordinator())
    poll(lambda: seen)
    assert seen == [1]


def test_suspects_are_recovered_one_at_a_time(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    """Another death then tells which it was: the others do not share the count."""
    keys = ("a", "b", "c")
    for key in keys:
        former.submit(key, 1)
    leader = leading(new_coordinator())
    poll(lambda: sorted(former.records.deaths(key) for key in keys) == [1, 1, 2])
    first = next(key for key in keys if former.records.deaths(key) == 2)
    task_manager = new_task_manager(slots=1).connect(leader.address)  # room for one of them
    api = caller(leader)
    api.state(first, JobState.RUNNING)
    poll(lambda: sorted(former.records.deaths(key) for key in keys) == [0, 1, 2])
    task_manager.connect(leader.address, slots=3)
    for key in keys:
        api.state(key, JobState.RUNNING)
    poll(lambda: [former.records.deaths(key) for key in keys] == [0, 0, 0])


def test_one_that_only_waits_for_slots_is_through(
    former: Former, new_coordinator: NewCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery_line, "SETTLED_MS", 1)
    former.submit("job", 2)
    leading(new_coordinator())
    poll(lambda: former.records.deaths("job") == 0)


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_a_stopped_leader_did_not_die_of_the_job_it_was_recovering(
    former: Former, new_coordinator: NewCoordinator, deaths: int
) -> None:
    """A restart of all coordinators, one after the other, must hold no job back."""
    former.submit("job", deaths)
    for _ in range(2):
        leader = leading(new_coordinator())
        poll(lambda: former.records.deaths("job") == deaths + 1)
        leader.stop()
        assert former.records.deaths("job") == deaths


def test_a_coordinator_that_is_elected_while_it_stops_begins_no_recovery(
    former: Former, new_coordinator: NewCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    former.submit("job")
    leader = leading(new_coordinator())
    poll(lambda: former.records.deaths("job") == 1)
    standby = new_coordinator()
    poll(lambda: standby.elector.leader is not None)
    granted, terms = Dispatcher.granted, list[LeaderTerm | None]()

    def watched(dispatcher: Dispatcher, grant: LeadershipGrant, detected_unix_us: int | None) -> None:
        granted(dispatcher, grant, detected_unix_us)
        terms.append(dispatcher.term)

    monkeypatch.setattr(Dispatcher, "granted", watched)
    standby.dispatcher.withdraw()  # as it begins to stop
    leader.stop()
    poll(lambda: bool(terms))
    standby.stop()
    assert terms == [None]
    assert former.records.deaths("job") == 0


def test_leaders_that_die_of_it_come_to_an_end(
    former: Former, new_coordinator: NewCoordinator, caller: NewCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way, without a process to lose: each term ends while it recovers the poison job."""
    monkeypatch.setattr(Dispatcher, "withdraw", lambda _: None)  # who dies takes nothing back
    former.submit("poison")
    for number in range(1, MAX_DEATHS + 1):
        leader = leading(new_coordinator())
        poll(lambda number=number: former.records.deaths("poison") == number)  # type: ignore[misc]
        leader.stop()
    api = caller(leading(new_coordinator()))
    api.state("poison", JobState.HELD_BACK)
    assert former.records.deaths("poison") == MAX_DEATHS
    assert api("Submit", m.SubmitRequest("good", graph())).created
