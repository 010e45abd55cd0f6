"""Submission that takes long or fails half-way: nothing is done twice, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from lockgate_coordinator.runtime.control_service import ControlService
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, Run
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import OutcomeUnknown, RecordTooLarge, StoreUnavailable
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m

from lockgate.client import Client
from lockgate.client import client as clients
from tests.integration.coordinator.conftest import (
    SECRET,
    Caller,
    NewCoordinator,
    NewTaskManager,
    Running,
    graph,
    leading,
    poll,
)
from tests.integration.coordinator.fake_task_manager import WAIT_S

pytestmark = pytest.mark.integration


def large() -> m.JobGraph:
    """Too large for ZooKeeper."""
    source, count = graph().vertices
    code = m.Operator("code", kind=m.PythonTransform(b"x" * 1_000_000))
    return dataclasses.replace(
        graph(), vertices=(dataclasses.replace(source, operators=(*source.operators, code)), count)
    )


def test_a_slowly_read_start_is_read_once_however_often_the_client_asks(
    running: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, api, _, _ = running(checkpoints=1)
    start = api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint.pointer
    whole, reads, asked = MetadataFiles.read_start, [], threading.Semaphore(0)
    begun, gate = threading.Event(), threading.Event()

    def read(files: MetadataFiles, pointer: str, **choice: bool) -> Any:
        reads.append(pointer)
        begun.set()
        assert gate.wait(WAIT_S)
        return whole(files, pointer, **choice)

    monkeypatch.setattr(MetadataFiles, "read_start", read)
    monkeypatch.setattr(clients, "CALL_TIMEOUT_S", 0.2)
    pause = Client.pause

    def count(client: Client, seconds: float) -> None:
        asked.release()
        pause(client, seconds)

    monkeypatch.setattr(Client, "pause", count)
    with Client([leader.address], credentials=SECRET, patience_ms=60_000) as client, ThreadPoolExecutor(1) as pool:
        try:
            submitted = pool.submit(client.submit, "next", graph(), start)
            assert begun.wait(WAIT_S)
            for _ in range(4):
                assert asked.acquire(timeout=WAIT_S)
            assert reads == [start]
        finally:
            monkeypatch.setattr(clients, "CALL_TIMEOUT_S", WAIT_S)
            gate.set()
        run_id = submitted.result(WAIT_S).run_id
        assert api.status("next").run_id == run_id


def test_a_start_that_does_not_fit_is_refused_before_anything_is_written(
    running: Callable[..., Running], storage: Path
) -> None:
    api = running(checkpoints=1).api
    refused = api.fails("Submit", m.SubmitRequest("next", large(), str(storage / "nothing")))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "does not exist" in refused.details()
    assert not (storage / "default" / "next").exists()
    assert api("Submit", m.SubmitRequest("next", graph())).created


@pytest.mark.parametrize("error", [StoreUnavailable("ZooKeeper is away"), RecordTooLarge("too large")])
def test_a_large_graph_whose_submission_failed_is_not_left_behind(
    api: Caller, storage: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(JobRecords, "submit", fail)
        api.fails("Submit", m.SubmitRequest("job", large()))
    assert not list(storage.rglob("graph"))
    answer = api("Submit", m.SubmitRequest("job", large()))
    assert [path.parent.name for path in storage.rglob("graph")] == [answer.run_id]


def test_a_large_graph_whose_submission_may_have_come_through_stays(
    api: Caller, storage: Path, server: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It did: the connection breaks after the write, and then ZooKeeper is away for the first look."""
    whole, fails = JobRecords.submit, [OutcomeUnknown("the connection broke"), StoreUnavailable("still away")]

    def unknown(records: JobRecords, *arguments: Any) -> None:
        whole(records, *arguments)
        if fails:
            raise fails.pop(0)

    monkeypatch.setattr(JobRecords, "submit", unknown)
    answer = api("Submit", m.SubmitRequest("job", large()))
    assert not fails
    assert [path.parent.name for path in storage.rglob("graph")] == [answer.run_id]
    assert JobRecords(server.lead("other", "c")[0], "default").job("job").run_id == answer.run_id  # type: ignore[union-attr]


def test_graphs_never_submitted_by_a_failed_leader_are_deleted_with_the_next_submission(
    api: Caller, storage: Path
) -> None:
    files = MetadataFiles(str(storage), "default")
    files.write_graph(Run("job", "never-submitted"), b"x")
    kept = files.write(Run("job", "ended"), m.CheckpointMetadata(1, "job", "ended", 1), b"a retained savepoint")
    files.write_graph(Run("job", "ended"), b"x")
    answer = api("Submit", m.SubmitRequest("job", large()))
    poll(lambda: {path.parent.name for path in storage.rglob("graph")} == {"ended", answer.run_id})
    assert Path(kept.pointer.removeprefix("file://")).exists()


def test_a_registration_at_the_end_of_the_term_is_refused(
    new_coordinator: NewCoordinator, new_task_manager: NewTaskManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader: Coordinator = leading(new_coordinator())
    dispatcher, gate, queued = leader.dispatcher, threading.Event(), threading.Event()
    term = dispatcher.wait_leading(WAIT_S)
    whole = ControlService._register

    def register(*arguments: Any) -> str:
        name = whole(*arguments)
        queued.set()
        return name

    monkeypatch.setattr(ControlService, "_register", register)
    dispatcher.actor.tell(lambda: gate.wait(WAIT_S))  # type: ignore[arg-type,return-value]
    task_manager = new_task_manager()
    with ThreadPoolExecutor(1) as pool:
        try:
            connected = pool.submit(task_manager.connect, leader.address)
            assert queued.wait(WAIT_S)
            leader.elector.step_down("the test wants it")
            assert term.fence.over.wait(WAIT_S)
        finally:
            gate.set()
        connected.result(2 * WAIT_S)
    assert task_manager.status is grpc.StatusCode.UNAVAILABLE
    assert "no longer leads" in task_manager.details
