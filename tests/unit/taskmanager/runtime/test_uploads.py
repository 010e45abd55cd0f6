"""SnapshotUploads: what is given up while it is being stored leaves nothing behind."""

from __future__ import annotations

import threading
from concurrent import futures
from pathlib import Path

import pytest
from lockgate_proto.messages import SubtaskState
from lockgate_taskmanager.runtime.uploads import SnapshotUploads
from lockgate_taskmanager.state.backend import remove_checkpoint
from lockgate_taskmanager.task.events import UploadFailed
from lockgate_taskmanager.task.program import (
    DataError,
    SnapshotTooLarge,
    StateRefused,
    StorageUnavailable,
    Unavailable,
    UserError,
)


class _Slow:
    """A snapshot that writes a file when it is allowed to."""

    def __init__(self, folder: Path, number: int) -> None:
        self.file = folder / f"chk-{number}" / "a.state"
        self.shared = folder / "shared" / f"{number}-a.state"
        self.begun, self.may_write = threading.Event(), threading.Event()

    def persist(self) -> SubtaskState:
        self.begun.set()
        assert self.may_write.wait(60)
        for file in (self.file, self.shared):
            file.parent.mkdir(exist_ok=True)
            file.write_text("state")
        return SubtaskState()

    def release(self) -> None: ...


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_an_upload_that_ends_after_its_checkpoint_was_given_up_leaves_no_file(
    tmp_path: Path, is_acknowledged: bool
) -> None:
    reported: list[object] = []
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, reported.append, lambda n: remove_checkpoint(str(tmp_path), n))
        first, other = _Slow(tmp_path, 1), _Slow(tmp_path, 2)
        for number, snapshot in ((1, first), (2, other)):
            uploads.keep(number, snapshot)
            uploads.start(number)
        assert first.begun.wait(60)
        if is_acknowledged:  # from then on only the leader removes it
            uploads.acknowledged(1)
        uploads.drop(1)
        first.may_write.set()
        other.may_write.set()
        assert uploads.close(60) or other.begun.is_set()
    assert first.file.exists() is is_acknowledged
    assert first.shared.exists() is is_acknowledged


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_an_upload_that_outlives_its_subtask_leaves_no_file(tmp_path: Path, is_acknowledged: bool) -> None:
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, lambda _: None, lambda n: remove_checkpoint(str(tmp_path), n))
        late, older = _Slow(tmp_path, 5), tmp_path / "shared" / "55-a.state"
        uploads.keep(5, late)
        uploads.start(5)
        assert late.begun.wait(60)
        if is_acknowledged:
            uploads.acknowledged(5)
        assert not uploads.close(0)
        older.parent.mkdir()
        older.write_text("of another checkpoint")
        late.may_write.set()
    assert late.file.exists() is is_acknowledged
    assert late.shared.exists() is is_acknowledged
    assert older.exists()


def test_an_upload_that_has_failed_is_not_cleaned_up_on_the_thread_that_ends_the_subtask() -> None:
    threads: list[str] = []
    reported: list[object] = []

    class Failing:
        def persist(self) -> SubtaskState:
            raise OSError("away")

        def release(self) -> None:
            pass

    with futures.ThreadPoolExecutor(1, "upload") as pool:
        uploads = SnapshotUploads(pool, reported.append, lambda _: threads.append(threading.current_thread().name))
        uploads.keep(7, Failing())
        uploads.start(7)
        pool.submit(int).result(60)  # behind the upload
        assert reported
        assert uploads.close(60)
    assert threads == ["upload_0"], "the storage may hang, and the subtask has to end"


def test_an_upload_that_is_acknowledged_just_when_it_is_given_up_stays() -> None:
    discarded: list[int] = []

    class Racing:
        def persist(self) -> SubtaskState:
            begun.set()
            assert given_up.wait(60)
            return SubtaskState()

        def release(self) -> None:
            pass

    begun, given_up = threading.Event(), threading.Event()
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, lambda done: uploads.acknowledged(done.checkpoint_id), discarded.append)
        uploads.keep(7, Racing())
        uploads.start(7)
        assert begun.wait(60)
        assert not uploads.close(0)
        given_up.set()
    assert discarded == []


class _Failing:
    """A snapshot that cannot be stored."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def persist(self) -> SubtaskState:
        raise self._error

    def release(self) -> None: ...


def stored(error: Exception) -> tuple[SnapshotUploads, list[object]]:
    """What became of a snapshot that cannot be stored: the uploads, and what they reported."""
    reported: list[object] = []
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, reported.append)
        uploads.keep(1, _Failing(error))
        uploads.start(1)
    return uploads, reported


@pytest.mark.parametrize(
    "error", [StateRefused("it cannot be pickled"), UserError("no topic t"), DataError("a record is too large")]
)
def test_what_can_never_be_stored_is_not_declined_but_ends_the_attempt(error: Exception) -> None:
    uploads, reported = stored(error)
    assert reported == []
    assert uploads.refused is error


@pytest.mark.parametrize(
    "error",
    [Unavailable("brokers are down"), StorageUnavailable("no answer"), SnapshotTooLarge("too large"), OSError("full")],
)
def test_what_cannot_be_stored_for_now_is_declined(error: Exception) -> None:
    uploads, reported = stored(error)
    (failed,) = reported
    assert failed == UploadFailed(1, f"the snapshot could not be stored: {error}", isinstance(error, OSError))
    assert uploads.refused is None


class _Broken:
    """A snapshot that cannot be stored because of a mistake in the code."""

    def persist(self) -> SubtaskState:
        raise KeyError("a mistake")

    def release(self) -> None: ...


def test_a_storage_that_fails_at_each_checkpoint_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    reported: list[object] = []
    with futures.ThreadPoolExecutor(1) as pool:
        uploads = SnapshotUploads(pool, reported.append)
        for number in (1, 2, 3):
            uploads.keep(number, _Broken())
            uploads.start(number)
    assert len(reported) == 3
    (line,) = caplog.records
    assert (line.getMessage(), bool(line.exc_info)) == ("checkpoint 1: storing the state failed unexpectedly", True)
