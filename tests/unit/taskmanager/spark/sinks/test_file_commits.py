"""Commits of the sink that writes files: each file is shown once, whatever dies, wakes up or is lost meanwhile."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lockgate_common import storage as filesystem
from lockgate_common.storage import Location
from lockgate_proto.messages import FileFormat, FileSink, SinkTransaction
from lockgate_taskmanager.spark.sinks import staged
from lockgate_taskmanager.spark.sinks.files import FileSink as FileWriter
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.task.program import StateUnreadable, UserError

from tests.unit.taskmanager.spark.object_store import ObjectStore
from tests.unit.taskmanager.spark.sink_rows import persisted, rows, writer

pytestmark = pytest.mark.usefixtures("processes_apart")


def test_a_committed_file_removed_by_a_consumer_is_no_error(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    sink.commit(7)
    (tmp_path / "part-run-7-op-0-0.parquet").unlink()
    writer(tmp_path, attempt=2).restore(stored)
    assert not list(tmp_path.glob("part-*"))
    later = SinkTransaction(8, 0, ("_staging/run/a1-op-0-1.parquet",), None, ("part-run-8-op-0-0.parquet",))
    with pytest.raises(UserError, match="is missing"):
        writer(tmp_path, attempt=3).restore([later])


def test_a_late_commit_of_a_replaced_attempt_does_not_lower_the_marker(tmp_path: Path) -> None:
    zombie, fresh = writer(tmp_path), writer(tmp_path, attempt=2)
    for sink, checkpoint in ((zombie, 1), (fresh, 2)):
        sink.write(rows(("a", checkpoint)))
        persisted(sink, checkpoint)
    fresh.commit(2)
    zombie.commit(1)
    assert (tmp_path / "_staging/run/committed-op-0").read_text() == "2"


def test_a_replaced_attempt_that_was_frozen_inside_a_commit_does_not_lower_the_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, fresh = writer(tmp_path), writer(tmp_path, attempt=2)
    zombie.write(rows(("a", 10)))
    stored = persisted(zombie, 10)
    exists, slept = filesystem.exists, []

    def after_a_long_sleep(location: Location) -> bool:  # the marker has been read by now
        if not slept:
            slept.append(location)
            fresh.restore(stored)
            fresh.write(rows(("a", 11)))
            persisted(fresh, 11)
            fresh.commit(11)
        return exists(location)

    monkeypatch.setattr(filesystem, "exists", after_a_long_sleep)
    zombie.commit(10)
    assert slept
    assert (tmp_path / "_staging/run/committed-op-0").read_text() == "11"
    assert len(list(tmp_path.glob("part-*"))) == 2


class Crash(BaseException):
    """The end of the process."""


def crash(*_: object) -> None:
    raise Crash


def two_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[FileWriter, tuple[SinkTransaction, ...]]:
    """An attempt that has staged two files for checkpoint 7."""
    monkeypatch.setattr(staged, "_SPILL_BYTES", 10)
    sink = writer(path)
    for number in range(2):
        sink.write(rows(("abcdef", number)))
    return sink, persisted(sink, 7)


def take(path: Path) -> set[str]:
    """A consumer moves all that it can see away."""
    found = set(path.glob("part-*"))
    for file in found:
        file.unlink()
    return {file.name for file in found}


BOTH = {"part-run-7-op-0-0.parquet", "part-run-7-op-0-1.parquet"}


@pytest.fixture(params=["disk", "store"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "store":
        monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)


@pytest.mark.usefixtures("storage")
@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_crash_after_the_marker_and_some_files_while_a_consumer_takes_them_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moved: int
) -> None:
    sink, stored = two_files(tmp_path, monkeypatch)
    publish, done = sink._publish, []

    def publish_some(*names: Location) -> None:
        if len(done) < moved:
            done.append(publish(*names))
        if len(done) == moved:
            raise Crash

    monkeypatch.setattr(sink, "_publish", publish_some)
    with pytest.raises(Crash):
        sink.commit(7)
    before = take(tmp_path)
    assert len(before) == moved
    writer(tmp_path, attempt=2).restore(stored)
    after = take(tmp_path)
    assert (before | after, before & after) == (BOTH, set())
    writer(tmp_path, attempt=3).restore(stored)
    assert take(tmp_path) == set(), "each was shown once"


@pytest.mark.usefixtures("storage")
def test_a_crash_before_the_marker_has_shown_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink, stored = two_files(tmp_path, monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(filesystem, "write_durably", crash)
        with pytest.raises(Crash):
            sink.commit(7)
    assert take(tmp_path) == set()
    writer(tmp_path, attempt=2).restore(stored)
    assert take(tmp_path) == BOTH


def test_a_crash_of_an_object_store_between_copy_and_delete_shows_the_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)
    sink, stored = two_files(tmp_path, monkeypatch)
    monkeypatch.setattr(sink, "_publish", lambda source, target: (shutil.copyfile(source.path, target.path), crash()))
    with pytest.raises(Crash):
        sink.commit(7)
    writer(tmp_path, attempt=2).restore(stored)
    assert take(tmp_path) == BOTH
    assert not list(tmp_path.glob("_staging/run/a*")), "nothing is left to be shown again"


@pytest.mark.usefixtures("storage")
def test_a_staged_file_that_is_lost_is_reported_by_every_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, stored = two_files(tmp_path, monkeypatch)
    (tmp_path / stored[0].files[1]).unlink()
    for attempt in (sink, writer(tmp_path, attempt=2), writer(tmp_path, attempt=3)):
        with pytest.raises(UserError, match=r"a1-op-0-1\.parquet is missing"):
            attempt.restore(stored)
    assert take(tmp_path) == set(), "a checkpoint is shown as a whole"


def test_a_replaced_attempt_whose_files_were_committed_and_taken_while_it_looked_at_them_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zombie, stored = two_files(tmp_path, monkeypatch)
    exists, slept = filesystem.exists, []

    def after_a_long_sleep(location: Location) -> bool:  # the marker was not there yet
        if not slept:
            slept.append(location)
            writer(tmp_path, attempt=2).restore(stored)
            assert take(tmp_path) == BOTH
        return exists(location)

    monkeypatch.setattr(filesystem, "exists", after_a_long_sleep)
    zombie.commit(7)
    assert slept
    assert take(tmp_path) == set()


def test_an_object_store_that_fails_has_committed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ObjectStore()
    monkeypatch.setattr(filesystem, "locate", store.locate)
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    store.trouble = OSError("AWS Error SLOW_DOWN")
    with pytest.raises(OSError, match="SLOW_DOWN"):
        sink.commit(7)
    assert not list(tmp_path.glob("part-*"))
    writer(tmp_path, attempt=2).restore(stored)
    (committed,) = tmp_path.glob("part-*")
    writer(tmp_path, attempt=3).restore(stored)
    assert list(tmp_path.glob("part-*")) == [committed]


def test_output_lost_by_an_object_store_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filesystem, "locate", ObjectStore().locate)
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    (stored,) = persisted(sink, 7)
    (tmp_path / stored.files[0]).unlink()
    with pytest.raises(UserError, match="committed output has been removed"):
        sink.commit(7)


def other_run(path: Path) -> FileWriter:
    where = SinkContext("job", "other", 1, "v", 0, "op", "operator 'op'")
    return FileWriter(where, FileSink(str(path), FileFormat.PARQUET))


def test_another_run_commits_the_savepoints_staged_output_and_accepts_removed_files(tmp_path: Path) -> None:
    sink = writer(tmp_path)
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    other_run(tmp_path).restore(stored)
    (tmp_path / "part-run-7-op-0-0.parquet").unlink()
    other_run(tmp_path).restore(stored)
    assert not list(tmp_path.glob("part-*"))


def test_another_run_with_another_path_is_refused_with_the_path_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = writer(tmp_path / "old")
    sink.write(rows(("a", 1)))
    stored = persisted(sink, 7)
    moved = other_run(tmp_path / "new")
    with pytest.raises(UserError, match=r"start with the path file://.*/old$"):
        moved.restore(stored)
    with monkeypatch.context() as patched:
        patched.setattr(sink, "_publish", crash)
        with pytest.raises(Crash):
            sink.commit(7)
    with pytest.raises(UserError, match=r"start with the path file://.*/old$"):
        moved.restore(stored)  # its commit has begun there, and shown nothing
    sink.commit(7)
    moved.restore(stored)  # all of it is visible where it was staged
    (tmp_path / "old" / "part-run-7-op-0-0.parquet").unlink()
    moved.restore(stored)


@pytest.mark.parametrize(
    ("staged", "target"),
    [
        ("_staging/run/../../a1-op-0-0.parquet", "part-run-1-op-0-0.parquet"),
        ("_staging/../a1-op-0-0.parquet", "part-run-1-op-0-0.parquet"),
        ("/etc/passwd", "part-run-1-op-0-0.parquet"),
        ("_staging/run/a1-op-0-0.parquet", "../part-run-1-op-0-0.parquet"),
        ("_staging/run/a1-op-0-0.parquet", "/tmp/part-run-1-op-0-0.parquet"),
        ("_staging/run/a1-op-0-0.parquet", ""),
    ],
)
def test_a_forged_snapshot_moves_no_file(tmp_path: Path, staged: str, target: str) -> None:
    forged = SinkTransaction(1, 0, (staged,), None, (target,))
    with pytest.raises(StateUnreadable, match="names files that no file sink has staged"):
        writer(tmp_path).restore([forged])
    with pytest.raises(StateUnreadable):
        writer(tmp_path).restore([SinkTransaction(1, 0, ("_staging/run/a1-op-0-0.parquet",))])
