"""What a job no longer needs: the record first, then the files, and nothing that a record may still refer to."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from threading import Event
from typing import Any

import pytest
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

from coordinator.checkpoint.coordinator import FORMAT_VERSION
from coordinator.recovery.effects import DiscardCheckpoint
from coordinator.runtime import deletions
from coordinator.runtime.actor import Timer, monotonic_ms
from coordinator.runtime.deletions import Deletions
from coordinator.runtime.errors import StorageError
from coordinator.runtime.metadata_files import MetadataFiles, run_of
from coordinator.runtime.persistence import Persistence, Tenure
from coordinator.runtime.surroundings import Tools
from ha.embedded import EmbeddedZooKeeper
from ha.errors import StoreUnavailable
from ha.records import JobRecords

RECORD = JobRecord("job", "run", graph=b"x")


class Lane:
    """A worker that does its calls when it is told to."""

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
    """An actor that is always idle, and whose timers fire when they are told to."""

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
        for one in due:
            one.fire()


class Bench:
    """One job with real records and real files. `records` and `files` are its two workers."""

    def __init__(self, folder: Path) -> None:
        store, self.grant = EmbeddedZooKeeper().lead("default", "c")
        self.stored = JobRecords(store, "default")
        self.stored.submit(self.grant, RECORD)
        self.storage = MetadataFiles(str(folder), "default")
        self.folder = Path(self.storage.run_directory(run_of(RECORD)).removeprefix("file://"))
        (self.folder / "shared").mkdir(parents=True)
        self.persistence = Persistence(Tenure(self.grant, Event(), lambda _: None), store, "default", self.storage)
        self.records, self.files, self.actor = Lane(), Lane(), AtOnce()
        parts: Any = (self.actor, self.records, self.files, self.persistence, None, "", None)
        self.deletions = Deletions("job", lambda: run_of(RECORD), Tools(*parts))

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
        return [one.checkpoint_id for one in self.stored.checkpoints("job")]

    def shared(self) -> set[str]:
        return {one.name for one in (self.folder / "shared").iterdir()}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def refuse_to_forget(patch: pytest.MonkeyPatch, *numbers: int) -> None:
    whole = JobRecords.remove_checkpoint

    def remove(self: JobRecords, grant: Any, key: str, number: int) -> None:
        if number in numbers:
            raise StoreUnavailable("ZooKeeper is away for a moment")
        whole(self, grant, key, number)

    patch.setattr(JobRecords, "remove_checkpoint", remove)


def test_files_go_on_a_worker_of_their_own_when_the_record_is_gone(bench: Bench) -> None:
    one = bench.checkpoint(1, "1-a")
    bench.discard(one, "1-a")
    bench.files.run()
    assert bench.known() == [1]
    assert (bench.folder / "chk-1").exists()
    bench.records.run()
    assert bench.known() == []
    assert (bench.folder / "chk-1").exists()  # nothing urgent is behind it
    bench.files.run()
    assert not (bench.folder / "chk-1").exists()
    assert bench.shared() == set()


def test_shared_files_stay_while_a_record_that_may_refer_to_them_cannot_be_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And go when it is deleted: one bad moment does not end their deletion for good."""
    one, two = bench.checkpoint(1, "1-a", "1-b"), bench.checkpoint(2, "1-b", "2-a")
    bench.checkpoint(3, "3-a")
    bench.deletions.completed(3)
    bench.files.run()
    with monkeypatch.context() as patch:
        refuse_to_forget(patch, 1)
        bench.discard(one, "1-a")
        bench.discard(two, "1-b", "2-a")  # nobody counts the first one any more
        bench.records.run()
        bench.files.run()
        assert bench.known() == [3, 1]
        assert (bench.folder / "chk-1").exists()
        assert {"1-a", "1-b"} <= bench.shared()
        bench.actor.fire()  # still away
        bench.records.run()
    assert bench.known() == [3, 1]
    bench.actor.fire()
    bench.records.run()
    bench.files.run()
    assert bench.known() == [3]
    assert not (bench.folder / "chk-1").exists()
    assert bench.shared() == {"3-a"}
    four, _ = bench.checkpoint(4, "4-a"), bench.checkpoint(5, "5-a")
    bench.discard(four, "4-a")
    bench.records.run()
    bench.files.run()
    assert bench.shared() == {"3-a", "5-a"}
    assert not bench.actor.timers


def test_a_storage_that_hangs_gathers_no_deletions_without_end(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletions, "MOST_WAITING", 2)
    all_of_them = [bench.checkpoint(number, f"{number}-a") for number in range(1, 7)]
    bench.deletions.completed(6)
    for one in all_of_them[:-1]:
        bench.discard(one, f"{one.checkpoint_id}-a")
    bench.records.run()
    assert bench.known() == [6]
    assert len(bench.files.calls) == 2
    bench.files.run()
    assert [one.name for one in bench.folder.glob("chk-*")] == ["chk-6"]
    assert bench.shared() == {"6-a"}


def test_after_the_end_of_the_job_nothing_is_deleted_any_more(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = bench.checkpoint(1, "1-a"), bench.checkpoint(2, "2-a")
    refuse_to_forget(monkeypatch, 1)
    bench.discard(one, "1-a")
    bench.records.run()
    bench.discard(two, "2-a")
    bench.deletions.close()
    bench.records.run()
    bench.files.run()
    bench.actor.fire()
    assert not bench.records.calls
    assert {one.name for one in bench.folder.glob("chk-*")} == {"chk-1", "chk-2"}
    assert bench.shared() == {"1-a", "2-a"}


def test_a_savepoint_is_forgotten_as_soon_as_its_record_is_gone(bench: Bench) -> None:
    """The result of a job that ends meanwhile must not list it."""
    savepoint, forgotten = bench.checkpoint(1, "1-a"), Event()
    disposed = bench.deletions.dispose(savepoint, forgotten.set)
    bench.files.run()
    assert not forgotten.is_set()
    bench.records.run()
    assert forgotten.is_set()
    assert not disposed.done()
    bench.files.run()
    assert disposed.done()
    assert disposed.exception() is None
    assert not (bench.folder / "chk-1").exists()


@pytest.mark.parametrize("is_record", [True, False])
def test_a_savepoint_that_could_not_be_deleted_is_not_called_deleted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_record: bool
) -> None:
    def away(*_: object) -> None:
        raise StorageError("the storage is away", retryable=True)

    savepoint, forgotten = bench.checkpoint(1, "1-a"), Event()
    if is_record:
        refuse_to_forget(monkeypatch, 1)
    else:
        monkeypatch.setattr(MetadataFiles, "delete_pointed", away)
    disposed = bench.deletions.dispose(savepoint, forgotten.set)
    bench.records.run()
    bench.files.run()
    assert isinstance(disposed.exception(0), StoreUnavailable if is_record else StorageError)
    assert forgotten.is_set() is not is_record
