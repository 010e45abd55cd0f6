"""What a job no longer needs: the record first, then the files, and nothing that a record may still refer to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from lockgate_common.clock import monotonic_ms
from lockgate_coordinator.checkpoint.content import FORMAT_VERSION
from lockgate_coordinator.job.effects import DiscardCheckpoint
from lockgate_coordinator.runtime import deletions
from lockgate_coordinator.runtime.actor import Timer
from lockgate_coordinator.runtime.deletions import Deletions
from lockgate_coordinator.runtime.errors import StorageError
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, run_of
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.runner_services import RunnerServices
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.errors import StoreUnavailable
from lockgate_ha.records import JobRecords
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    CheckpointMetadata,
    CompletedCheckpoint,
    JobRecord,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
)

RECORD = JobRecord("job", "run", graph=b"x")


class Lane:
    """A worker that makes its calls on demand."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()

    def submit(self, _key: str, call: Callable[[], Any]) -> Future[Any]:
        answer: Future[Any] = Future()
        self.calls.append((call, answer))
        return answer

    def run(self) -> None:
        while self.calls:
            call, answer = self.calls.popleft()
            try:
                result = call()
            except Exception as error:
                answer.set_exception(error)
            else:
                answer.set_result(result)


class AtOnce:
    """An actor that is always idle, and whose timers fire on demand."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def tell(self, call: Callable[[], None]) -> bool:
        call()
        return True

    def at(self, due_ms: int, call: Callable[[], None]) -> Timer:
        assert due_ms > monotonic_ms() - 60_000
        self.timers.append(Timer(due_ms, call))
        return self.timers[-1]

    def fire(self) -> None:
        due, self.timers = self.timers, []
        for timer in due:
            timer.fire()


class TestingDeletions:
    """One job with real records and real files. `records` and `files` are its two workers."""

    def __init__(self, folder: Path) -> None:
        store, self.grant = EmbeddedZooKeeper().lead("default", "c")
        self.stored = JobRecords(store, "default")
        self.stored.submit(self.grant, RECORD)
        self.storage = MetadataFiles(str(folder), "default")
        self.folder = Path(self.storage.run_directory(run_of(RECORD)).removeprefix("file://"))
        (self.folder / "shared").mkdir(parents=True)
        self.removals = Removals(TermFence(self.grant, Event(), lambda _: None), store, "default", self.storage)
        self.records, self.files, self.actor = Lane(), Lane(), AtOnce()
        parts: Any = (self.actor, self.records, self.files, None, self.removals, None, None, "", None, None)
        self.deletions = Deletions("job", lambda: run_of(RECORD), RunnerServices(*parts))

    def checkpoint(self, number: int, *names: str) -> CompletedCheckpoint:
        """A completed one that is made of these shared files."""
        for name in names:
            (self.folder / "shared" / name).touch()
        handles = tuple(StateHandle(path=f"file://{self.folder}/shared/{name}", shared=True) for name in names)
        state = OperatorState("op", StateKind.KEYED_STATE, handles[0], handles[1:])
        metadata = CheckpointMetadata(
            FORMAT_VERSION, "job", "run", number, subtasks=(SubtaskState("count", 0, (state,)),)
        )
        file = self.storage.write(run_of(RECORD), metadata, encode(metadata))
        done = CompletedCheckpoint(number, pointer=file.pointer, checksum=file.checksum)
        self.stored.add_checkpoint(self.grant, "job", done)
        return done

    def discard(self, checkpoint: CompletedCheckpoint, *free: str) -> None:
        self.deletions.discard(DiscardCheckpoint(checkpoint, free))

    def known(self) -> list[int]:
        return [checkpoint.checkpoint_id for checkpoint in self.stored.checkpoints("job")]

    def shared(self) -> set[str]:
        return {path.name for path in (self.folder / "shared").iterdir()}


@pytest.fixture
def testing(tmp_path: Path) -> TestingDeletions:
    return TestingDeletions(tmp_path)


def refuse_to_forget(patch: pytest.MonkeyPatch, *numbers: int) -> None:
    whole = JobRecords.remove_checkpoint

    def remove(self: JobRecords, grant: Any, key: str, number: int) -> None:
        if number in numbers:
            raise StoreUnavailable("ZooKeeper is away for a moment")
        whole(self, grant, key, number)

    patch.setattr(JobRecords, "remove_checkpoint", remove)


def test_files_are_deleted_on_a_separate_worker_after_the_record(testing: TestingDeletions) -> None:
    subject = testing.checkpoint(1, "1-a")
    testing.discard(subject, "1-a")
    testing.files.run()
    assert testing.known() == [1]
    assert (testing.folder / "chk-1").exists()
    testing.records.run()
    assert testing.known() == []
    assert (testing.folder / "chk-1").exists()  # nothing urgent is behind it
    testing.files.run()
    assert not (testing.folder / "chk-1").exists()
    assert testing.shared() == set()


def test_shared_files_stay_while_a_record_that_may_refer_to_them_cannot_be_deleted(
    testing: TestingDeletions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And go when it is deleted: one bad moment does not end their deletion for good."""
    first, two = testing.checkpoint(1, "1-a", "1-b"), testing.checkpoint(2, "1-b", "2-a")
    testing.checkpoint(3, "3-a")
    testing.deletions.completed(3)
    testing.files.run()
    with monkeypatch.context() as patch:
        refuse_to_forget(patch, 1)
        testing.discard(first, "1-a")
        testing.discard(two, "1-b", "2-a")  # the first one is not counted any more
        testing.records.run()
        testing.files.run()
        assert testing.known() == [3, 1]
        assert (testing.folder / "chk-1").exists()
        assert {"1-a", "1-b"} <= testing.shared()
        testing.actor.fire()  # still away
        testing.records.run()
    assert testing.known() == [3, 1]
    testing.actor.fire()
    testing.records.run()
    testing.files.run()
    assert testing.known() == [3]
    assert not (testing.folder / "chk-1").exists()
    assert testing.shared() == {"3-a"}
    four, _ = testing.checkpoint(4, "4-a"), testing.checkpoint(5, "5-a")
    testing.discard(four, "4-a")
    testing.records.run()
    testing.files.run()
    assert testing.shared() == {"3-a", "5-a"}
    assert not testing.actor.timers


def test_a_storage_that_hangs_gathers_no_deletions_without_end(
    testing: TestingDeletions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "MOST_WAITING", 2)
    all_of_them = [testing.checkpoint(number, f"{number}-a") for number in range(1, 7)]
    testing.deletions.completed(6)
    for container in all_of_them[:-1]:
        testing.discard(container, f"{container.checkpoint_id}-a")
    testing.records.run()
    assert testing.known() == [6]
    assert len(testing.files.calls) == 2
    testing.files.run()
    assert [path.name for path in testing.folder.glob("chk-*")] == ["chk-6"]
    assert testing.shared() == {"6-a"}


def test_after_the_end_of_the_job_no_more_is_deleted(
    testing: TestingDeletions, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, two = testing.checkpoint(1, "1-a"), testing.checkpoint(2, "2-a")
    refuse_to_forget(monkeypatch, 1)
    testing.discard(first, "1-a")
    testing.records.run()
    testing.discard(two, "2-a")
    testing.deletions.close()
    testing.records.run()
    testing.files.run()
    testing.actor.fire()
    assert not testing.records.calls
    assert {path.name for path in testing.folder.glob("chk-*")} == {"chk-1", "chk-2"}
    assert testing.shared() == {"1-a", "2-a"}


def test_a_savepoint_is_forgotten_as_soon_as_its_record_is_deleted(testing: TestingDeletions) -> None:
    """The result of a job that ends meanwhile must not list it."""
    savepoint, forgotten = testing.checkpoint(1, "1-a"), Event()
    disposed = testing.deletions.dispose(savepoint, forgotten.set)
    testing.files.run()
    assert not forgotten.is_set()
    testing.records.run()
    assert forgotten.is_set()
    assert not disposed.done()
    testing.files.run()
    assert disposed.done()
    assert disposed.exception() is None
    assert not (testing.folder / "chk-1").exists()


@pytest.mark.parametrize("is_record", [True, False])
def test_a_savepoint_that_could_not_be_deleted_is_not_called_deleted(
    testing: TestingDeletions, monkeypatch: pytest.MonkeyPatch, is_record: bool
) -> None:
    def away(*_: object) -> None:
        raise StorageError("the storage is away", retryable=True)

    savepoint, forgotten = testing.checkpoint(1, "1-a"), Event()
    if is_record:
        refuse_to_forget(monkeypatch, 1)
    else:
        monkeypatch.setattr(MetadataFiles, "delete_pointed", away)
    disposed = testing.deletions.dispose(savepoint, forgotten.set)
    testing.records.run()
    testing.files.run()
    assert isinstance(disposed.exception(0), StoreUnavailable if is_record else StorageError)
    assert forgotten.is_set() is not is_record
