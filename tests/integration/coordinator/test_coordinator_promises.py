"""What a leader has promised or does not know: later leaders keep to it, and no file is deleted on a guess."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from lockgate_common.story import IllegalTransition
from lockgate_coordinator.job import effects as do
from lockgate_coordinator.job import events as ev
from lockgate_coordinator.job.job_master import JobMaster
from lockgate_coordinator.runtime import deletions
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_coordinator.runtime.persistence import Persistence
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_ha.store import Delete, Put
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import (
    Caller,
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    Running,
    graph,
    leading,
    metadata_files,
    poll,
    recorded,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S

pytestmark = pytest.mark.integration

Start = Callable[..., Running]


def _no_master(_self: JobMaster, event: ev.Event, _now_ms: int) -> list[do.Effect]:
    raise IllegalTransition(f"a mistake at {type(event).__name__}")


def test_giving_a_broken_job_up_deletes_no_file_now_or_under_a_later_leader(
    running: Start,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, _, task_manager, run_id = running(checkpoints=2)
    leader.stop()
    kept = recorded(server)
    assert kept
    monkeypatch.setattr(JobMaster, "handle", _no_master)
    second = leading(new_coordinator())
    task_manager.connect(second.address)
    after = caller(second)
    after.state("job", JobState.FAILED)
    cancel = task_manager.expect(m.CancelAttempt)  # what it said that it still runs
    assert isinstance(cancel, m.CancelAttempt)
    assert cancel.attempt == m.AttemptId("job", run_id, 1)
    monkeypatch.setattr(Removals, "clean_up", lambda *_: None)  # the leader dies before it comes to that
    after("Cancel", m.CancelRequest("job"))
    assert after.state("job", JobState.CANCELED).run_id == run_id
    listed = after("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    assert {Path(checkpoint.pointer.removeprefix("file://")) for checkpoint in listed} == set(kept)
    second.stop()
    monkeypatch.undo()
    third = leading(new_coordinator())
    session, done = server.open(), threading.Event()
    while session.get(Paths("default").job("job")) is not None:
        assert not done.wait(0.02)
    assert caller(third).status("job").state is JobState.CANCELED
    assert set(kept) <= set(metadata_files(storage))


def test_a_result_without_a_run_deletes_nothing(server: EmbeddedZooKeeper, storage: Path) -> None:
    """Of a job whose record could not be read the run is not known; "" would be the folder of all its runs."""
    store, grant = server.lead("default", "c")
    records, files = JobRecords(store, "default"), MetadataFiles(str(storage), "default")
    files.write(Run("job", "run"), m.CheckpointMetadata(1, "job", "run", 1), b"precious")
    records.submit(grant, m.JobRecord("job"))
    records.write_result(grant, m.JobResult("job", dirty=True))
    Removals(TermFence(grant, threading.Event(), lambda _: None), store, "default", files).clean_up("job", "")
    assert records.job("job") is None
    assert len(metadata_files(storage)) == 1
    with pytest.raises(StorageError, match="nothing was deleted"):
        files.delete_run(Run("job", ""))


def test_a_result_that_keeps_files_keeps_unnamed_ones(server: EmbeddedZooKeeper, storage: Path) -> None:
    """Which checkpoints there are could not be read when the result was written."""
    store, grant = server.lead("default", "c")
    records, files = JobRecords(store, "default"), MetadataFiles(str(storage), "default")
    stored = files.write(Run("job", "run"), m.CheckpointMetadata(1, "job", "run", 1), b"precious")
    records.submit(grant, m.JobRecord("job", "run"))
    records.add_checkpoint(grant, "job", m.CompletedCheckpoint(1, stored.pointer, stored.checksum))
    records.write_result(grant, m.JobResult("job", "run", dirty=True, keep_files=True))
    Removals(TermFence(grant, threading.Event(), lambda _: None), store, "default", files).clean_up("job", "run")
    assert records.job("job") is None
    assert len(metadata_files(storage)) == 1


@pytest.mark.parametrize("record", ["attempt", "checkpoint_id"])
def test_a_corrupt_record_fails_the_job_names_its_snapshots_and_deletes_nothing(
    running: Start,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    storage: Path,
    record: str,
) -> None:
    leader = running(checkpoints=1).leader
    leader.stop()
    kept = recorded(server)
    server.open().transact([Put(getattr(Paths("default"), record)("job"), b"\xff")])
    successor = leading(new_coordinator())
    api = caller(successor)
    assert "corrupt" in api.state("job", JobState.FAILED).error
    listed = api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints
    assert sorted(Path(checkpoint.pointer.removeprefix("file://")) for checkpoint in listed) == kept
    successor.stop()  # joins the worker that cleans up
    assert kept
    assert set(kept) <= set(metadata_files(storage))


@pytest.mark.parametrize("lost", ["attempt", "checkpoint_id", "checkpoints"])
def test_a_record_that_is_missing_fails_the_job_and_deletes_nothing(
    running: Start,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    storage: Path,
    lost: str,
) -> None:
    leader = running(checkpoints=1).leader
    leader.stop()
    kept = recorded(server)
    session, path = server.open(), getattr(Paths("default"), lost)("job")
    session.transact([*(Delete(f"{path}/{name}") for name in session.children(path)), Delete(path)])
    successor = leading(new_coordinator())
    assert f"{path} cannot be read: it is missing" in caller(successor).state("job", JobState.FAILED).error
    successor.stop()  # joins the worker that cleans up
    assert kept
    assert set(kept) <= set(metadata_files(storage))


@pytest.mark.parametrize("lost", ["attempt", "checkpoint_id"])
def test_a_record_lost_while_the_job_runs_is_reported_and_not_retried_forever(
    running: Start, new_task_manager: NewTaskManager, server: EmbeddedZooKeeper, storage: Path, lost: str
) -> None:
    leader, api, task_manager, _ = running(checkpoints=1)
    path = getattr(Paths("default"), lost)("job")
    server.open().transact([Delete(path)])
    if lost == "attempt":  # it is written again for the next one
        new_task_manager().connect(leader.address)
        task_manager.die()
    assert f"{path} cannot be read: it is missing" in api.state("job", JobState.FAILED).error
    api("Cancel", m.CancelRequest("job"))
    _until_given_up(api, server)
    assert metadata_files(storage)


def test_a_fenced_write_of_an_earlier_term_does_not_end_the_present_one(
    new_coordinator: NewCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    leader = leading(new_coordinator())
    dispatcher, elector = leader.dispatcher, leader.elector
    first = dispatcher.wait_leading(WAIT_S)
    elector.step_down("the test wants it")
    assert first.fence.over.wait(WAIT_S)
    second = dispatcher.wait_leading(WAIT_S)
    assert second.token > first.token
    first.fence.step_down("this write of the first term was fenced")
    second.fence.step_down("and this one of the second")  # behind it: what ends the term is this
    assert second.fence.over.wait(WAIT_S)
    assert "no longer leads: and this one" in caplog.text
    assert "no longer leads: this write of the first" not in caplog.text


def test_a_hanging_write_of_an_earlier_term_blocks_no_job_of_the_next(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = leading(new_coordinator())
    task_manager = new_task_manager().connect(leader.address)
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", graph()))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    write, hangs, gate = MetadataFiles.write, threading.Event(), threading.Event()
    later: list[int] = []

    def hang_once(files: MetadataFiles, run: Run, metadata: m.CheckpointMetadata, data: bytes) -> object:
        if not hangs.is_set():
            hangs.set()
            gate.wait()
        else:
            later.append(metadata.checkpoint_id)
        return write(files, run, metadata, data)

    monkeypatch.setattr(MetadataFiles, "write", hang_once)
    try:
        assert hangs.wait(WAIT_S)
        term = leader.dispatcher.wait_leading(WAIT_S)
        leader.elector.step_down("the test wants it")
        assert term.fence.over.wait(WAIT_S)
        leading(leader)
        task_manager.connect(leader.address)
        api.until("job", lambda status: status.attempt == 2 and status.state is JobState.RUNNING)
        task_manager.wait(lambda: bool(later))
    finally:
        gate.set()


def test_an_acknowledged_cancel_survives_the_leader(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = leading(new_coordinator())
    task_manager = new_task_manager().connect(leader.address)
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", graph()))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    never = m.JobResult("job")
    monkeypatch.setattr(Persistence, "write_result", lambda *_: ev.PersistFailed(ev.PersistKind.RESULT, str(never)))
    assert api("Cancel", m.CancelRequest("job")).state is JobState.CANCELING
    leader.stop()
    monkeypatch.undo()
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    after.state("job", JobState.CANCELED)
    assert len(task_manager.bodies(m.Deploy)) == 1


def _until_given_up(api: Caller, server: EmbeddedZooKeeper) -> None:
    """Waits until the job is CANCELED and its records are gone."""
    session = server.open()
    poll(lambda: session.get(Paths("default").job("job")) is None and api.status("job").state is JobState.CANCELED)


@pytest.mark.parametrize("durable_first", [True, False])
def test_a_cancel_during_a_load_that_fails_permanently_ends_the_job(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    server: EmbeddedZooKeeper,
    storage: Path,
    monkeypatch: pytest.MonkeyPatch,
    durable_first: bool,
) -> None:
    leader = leading(new_coordinator())
    new_task_manager().connect(leader.address)
    api = caller(leader)
    api("Submit", m.SubmitRequest("job", _large()))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    leader.stop()
    kept = recorded(server)
    asked, may_fail, may_write = threading.Event(), threading.Event(), threading.Event()
    whole = Persistence.request_cancel

    def missing(*_: object) -> bytes:
        assert may_fail.wait(WAIT_S)
        raise StorageError("the graph does not exist")

    def slowly(self: Persistence, record: m.JobRecord) -> None:
        asked.set()
        assert may_write.wait(WAIT_S)
        whole(self, record)

    monkeypatch.setattr(MetadataFiles, "read_graph", missing)
    monkeypatch.setattr(Persistence, "request_cancel", slowly)
    after = caller(leading(new_coordinator()))
    with ThreadPoolExecutor(1) as pool:
        cancelled = pool.submit(after, "Cancel", m.CancelRequest("job"))
        assert asked.wait(WAIT_S)
        if durable_first:
            may_write.set()
            assert cancelled.result(WAIT_S).state is JobState.CANCELING
            may_fail.set()
        else:
            may_fail.set()
            after.state("job", JobState.FAILED)
            may_write.set()
            assert cancelled.result(WAIT_S).state is JobState.CANCELING
    _until_given_up(after, server)
    assert "the graph does not exist" in after.status("job").error
    assert kept
    assert set(kept) <= set(metadata_files(storage))


@pytest.mark.parametrize("at_once", [True, False])
def test_a_cancel_holds_through_a_fault_of_the_coordinator(
    running: Start, server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    api = running(checkpoints=1).api
    whole, faulty = JobMaster.handle, threading.Event()

    def mistaken(self: JobMaster, event: ev.Event, now_ms: int) -> list[do.Effect]:
        if faulty.is_set() or (at_once and isinstance(event, ev.CancelRequested)):
            raise IllegalTransition("on purpose")
        return [] if isinstance(event, ev.CancelRequested) else whole(self, event, now_ms)

    monkeypatch.setattr(JobMaster, "handle", mistaken)
    api("Cancel", m.CancelRequest("job"))
    faulty.set()
    _until_given_up(api, server)


def test_a_mistake_in_the_making_of_a_job_breaks_it_off_and_it_can_be_cancelled(
    running: Start,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, api, task_manager, _ = running(checkpoints=1, slots=2)
    api("Submit", m.SubmitRequest("good", graph()))
    api.state("good", JobState.RUNNING)
    leader.stop()
    whole = JobMaster.__init__

    def mistaken(self: JobMaster, record: m.JobRecord, *args: Any, **options: Any) -> None:
        if record.job_key == "job":
            raise KeyError("an operator of another version")
        whole(self, record, *args, **options)

    monkeypatch.setattr(JobMaster, "__init__", mistaken)
    successor = leading(new_coordinator())
    after = caller(successor)
    assert "an operator of another version" in after.state("job", JobState.FAILED).error
    task_manager.connect(successor.address)
    after.state("good", JobState.RUNNING)
    assert after("Cancel", m.CancelRequest("job")).state is JobState.CANCELED
    _until_given_up(after, server)


def test_a_job_whose_status_fails_interrupts_no_other_and_runs_on(
    leader: Coordinator,
    api: Caller,
    new_task_manager: NewTaskManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = new_task_manager(slots=2).connect(leader.address)
    for key in ("bad", "good"):  # in the order in which they hear of things
        api("Submit", m.SubmitRequest(key, graph()))
        api.state(key, JobState.RUNNING)
    watch = api("Watch", m.WatchRequest("bad"))
    next(watch)
    whole, is_mistaken = JobMaster.status, threading.Event()

    def mistaken(self: JobMaster, *, with_subtasks: bool = True) -> m.JobStatus:
        status = whole(self, with_subtasks=with_subtasks)
        if is_mistaken.is_set() and status.job_key == "bad":
            raise KeyError("a counter")
        return status

    monkeypatch.setattr(JobMaster, "status", mistaken)
    is_mistaken.set()
    new_task_manager(slots=2).connect(leader.address)
    first.die()
    assert api.until("good", lambda status: status.state is JobState.RUNNING and status.attempt == 2).error
    listed = {job.job_key: job for job in api("List", m.ListRequest()).jobs}
    assert "internal error while creating its status" in listed["bad"].message
    is_mistaken.clear()
    assert api.until("bad", lambda status: status.state is JobState.RUNNING and status.attempt == 2).error
    watch.cancel()


def test_a_late_cancel_takes_no_result_back_when_the_coordinator_fails(
    running: Start, new_coordinator: NewCoordinator, caller: NewCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, api, task_manager, _ = running(checkpoints=1)
    whole, result, written, gate = JobMaster.handle, Persistence.write_result, threading.Event(), threading.Event()

    def slowly(self: Persistence, finished: m.JobResult) -> ev.ResultPersisted | ev.PersistFailed:
        answer = result(self, finished)
        written.set()
        assert gate.wait(WAIT_S)
        return answer

    def mistaken(self: JobMaster, event: ev.Event, now_ms: int) -> list[do.Effect]:
        if isinstance(event, ev.ResultPersisted):
            raise IllegalTransition("on purpose")
        return whole(self, event, now_ms)

    monkeypatch.setattr(Persistence, "write_result", slowly)
    monkeypatch.setattr(JobMaster, "handle", mistaken)
    task_manager.report(m.SubtaskPhase.SUBTASK_EXHAUSTED)
    assert written.wait(WAIT_S)
    api("Cancel", m.CancelRequest("job"))
    gate.set()
    api.state("job", JobState.FAILED)
    leader.stop()  # joins the worker
    assert caller(leading(new_coordinator())).status("job").state is JobState.FINISHED


def test_a_job_that_has_ended_is_not_broken_off_by_a_fault_of_its_clean_up(
    running: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader, api, _, _ = running(checkpoints=1)

    def mistaken(*_: object) -> None:
        raise ValueError("a mistake in the clean-up")

    monkeypatch.setattr(Removals, "clean_up", mistaken)
    api("Cancel", m.CancelRequest("job"))
    assert api.state("job", JobState.CANCELED).error == ""
    poll(lambda: "a mistake in the clean-up" in caplog.text)
    leader.dispatcher.call(lambda _: None)  # behind what the fault has led to
    assert api.status("job").state is JobState.CANCELED
    assert "quarantined" not in caplog.text


def test_a_cancel_that_cannot_be_written_is_not_acknowledged(
    new_coordinator: NewCoordinator, caller: NewCaller, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = caller(leading(new_coordinator()))
    api("Submit", m.SubmitRequest("job", graph()))

    def away(*_: object) -> None:
        raise StoreUnavailable("ZooKeeper is away")

    monkeypatch.setattr(JobRecords, "request_cancel", away)
    assert api.fails("Cancel", m.CancelRequest("job")).code() is grpc.StatusCode.UNAVAILABLE


def _large() -> m.JobGraph:
    """Too large for ZooKeeper."""
    source, count = graph().vertices
    code = m.Operator("code", kind=m.PythonTransform(b"x" * 1_000_000))
    large = dataclasses.replace(source, operators=(*source.operators, code))
    return dataclasses.replace(graph(), vertices=(large, count))


def test_a_graph_that_cannot_be_read_for_a_while_is_read_again(
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader = leading(new_coordinator())
    task_manager = new_task_manager().connect(leader.address)
    api = caller(leader)
    for key in ("job", "unwanted"):
        api("Submit", m.SubmitRequest(key, _large()))
        api.until(key, lambda status: status.checkpoints_completed >= 1)
    leader.stop()
    kept = task_manager.bodies(m.Deploy)
    whole, watched = MetadataFiles.read_graph, threading.Event()

    def away(*_: object) -> bytes:
        watched.wait(WAIT_S)
        raise StorageError("the storage is away", retryable=True)

    def has_next_try(status: m.JobStatus) -> bool:
        watched.set()  # so an open watch must report it, not only a new one
        return "next try" in status.message

    monkeypatch.setattr(MetadataFiles, "read_graph", away)
    successor = leading(new_coordinator())
    task_manager.connect(successor.address)
    after = caller(successor)
    status = after.until("job", has_next_try)
    assert "the storage is away" in status.message
    after.until("unwanted", lambda status: "next try" in status.message)
    assert after("Cancel", m.CancelRequest("unwanted")).state is JobState.CANCELED  # no caller has to wait for it
    monkeypatch.setattr(MetadataFiles, "read_graph", whole)
    after.until("job", lambda status: status.state is JobState.RUNNING and status.attempt == 2)
    assert {body.attempt.job_key for body in task_manager.bodies(m.Deploy)[len(kept) :]} == {"job"}  # type: ignore[attr-defined]


def test_late_uploads_of_aborted_checkpoints_are_deleted_now_and_then(
    running: Start, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "ORPHANS_EVERY", 3)
    _, api, _, run_id = running(checkpoints=2)
    late = storage / "default" / "job" / run_id / "chk-1"
    poll(lambda: not late.exists())  # its own, of a checkpoint that is subsumed
    late.mkdir()
    (late / "late.state").write_bytes(b"x")
    done = api.status("job").checkpoints_completed
    api.until("job", lambda status: status.checkpoints_completed >= done + 5)
    poll(lambda: not late.exists())
