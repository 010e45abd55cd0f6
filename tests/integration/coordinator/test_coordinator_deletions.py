"""What a job waits for waits for no deletion, and what has to be deleted is tried again."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lockgate_coordinator.job import backoff
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.paths import Paths
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import NewCaller, NewCoordinator, Running, graph, leading, poll
from tests.integration.coordinator.fake_task_manager import WAIT_S

pytestmark = pytest.mark.integration

Start = Callable[..., Running]


def test_a_storage_that_hangs_on_a_delete_delays_no_restart_no_checkpoint_and_no_end(
    running: Start, server: EmbeddedZooKeeper, storage: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, hangs, gate = MetadataFiles.delete_pointed, threading.Event(), threading.Event()

    def hang(files: MetadataFiles, pointer: str) -> None:
        hangs.set()
        assert gate.wait(WAIT_S)
        whole(files, pointer)

    monkeypatch.setattr(MetadataFiles, "delete_pointed", hang)
    try:
        _, api, task_manager, _ = running()
        assert hangs.wait(WAIT_S)
        task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, error="on purpose")
        task_manager.expect(m.Deploy, 2)
        done = api.until("job", lambda status: status.attempt == 2 and status.state is JobState.RUNNING)
        api.until("job", lambda status: status.checkpoints_completed >= done.checkpoints_completed + 2)
        api("Cancel", m.CancelRequest("job"))
        api.state("job", JobState.CANCELED)
        session, paths = server.open(), Paths("default")
        assert session.get(paths.job("job")) is not None  # it is cleaned up behind what hangs
    finally:
        gate.set()
    poll(lambda: session.get(paths.job("job")) is None)
    assert not list(storage.rglob("chk-*"))


@pytest.mark.parametrize("where", ["records", "files"])
def test_a_clean_up_that_fails_is_tried_again_by_the_same_leader(
    running: Start, server: EmbeddedZooKeeper, storage: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(backoff, "FIRST_MS", 10)
    _fail_twice(monkeypatch, where)
    api = running(checkpoints=1).api
    api("Cancel", m.CancelRequest("job"))
    api.state("job", JobState.CANCELED)
    session, paths = server.open(), Paths("default")
    poll(lambda: session.get(paths.job("job")) is None)
    assert not list(storage.rglob("chk-*"))


def test_a_takeover_tries_the_clean_up_again_until_it_is_done(
    running: Start,
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    server: EmbeddedZooKeeper,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "FIRST_MS", 60_000)
    leader, api, _, _ = running(checkpoints=1)
    with monkeypatch.context() as patch:
        tried = _fail_twice(patch, "records")
        api("Cancel", m.CancelRequest("job"))
        api.state("job", JobState.CANCELED)
        assert tried.wait(WAIT_S)
    session, paths = server.open(), Paths("default")
    leader.stop()
    assert session.get(paths.job("job")) is not None
    monkeypatch.setattr(backoff, "FIRST_MS", 10)
    _fail_twice(monkeypatch, "records")
    assert caller(leading(new_coordinator())).status("job").state is JobState.CANCELED
    poll(lambda: session.get(paths.job("job")) is None)


def _fail_twice(patch: pytest.MonkeyPatch, where: str) -> threading.Event:
    """The last step of a clean-up fails two times. Returns what is set when it has failed."""
    whole: Any = JobRecords.clean if where == "records" else MetadataFiles.delete_run
    failures, failed = [0], threading.Event()

    def fail(*arguments: Any) -> None:
        failures[0] += 1
        if failures[0] > 2:
            whole(*arguments)
            return
        failed.set()
        raise StoreUnavailable("a blink of ZooKeeper") if where == "records" else StorageError("the storage is away")

    patch.setattr(JobRecords if where == "records" else MetadataFiles, whole.__name__, fail)
    return failed


def test_the_leader_keeps_no_snapshot_and_no_graph_of_an_ended_job(running: Start) -> None:
    leader, api, _, run_id = running(checkpoints=1)

    def kept() -> bool:
        gc.collect()
        found = [
            get_object
            for get_object in gc.get_objects()
            if isinstance(get_object, m.CheckpointMetadata) and get_object.run_id == run_id
        ]
        return bool(found)

    assert kept()
    api("Cancel", m.CancelRequest("job"))
    api.state("job", JobState.CANCELED)
    poll(lambda: not kept())
    records = leader.dispatcher.call(lambda term: [ended.record for ended in term.ended.values()])
    assert [(record.run_id, record.graph) for record in records] == [(run_id, b"")]
    assert not api("Submit", m.SubmitRequest("job", graph())).created  # it still answers for its key
