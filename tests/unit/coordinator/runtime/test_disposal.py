"""Deleting snapshots: what is not known is not called deleted, and what is shared stays as long as it is needed."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_common.serving.refusals import Refused
from lockgate_coordinator.checkpoint.content import FORMAT_VERSION
from lockgate_coordinator.runtime.disposal import dispose
from lockgate_coordinator.runtime.errors import Busy, StorageError
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.metadata_files import MetadataFiles, run_of
from lockgate_coordinator.runtime.removals import Removals
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.stage import Stage
from lockgate_coordinator.runtime.submissions import Submissions
from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    CheckpointMetadata,
    CompletedCheckpoint,
    JobRecord,
    JobResult,
    OperatorState,
    StateHandle,
    StateKind,
    SubtaskState,
)

RESULT = JobResult(job_key="job", run_id="run")


def test_checkpoints_that_are_not_read_yet_are_not_listed() -> None:
    tools: Any = SimpleNamespace(actor=None, traces=None)
    runner = JobRunner(JobRecord(job_key="job"), tools)
    term: Any = SimpleNamespace(jobs={"job": runner}, suspended=False, recovering=False)
    with pytest.raises(Busy, match="the records of job job are being read"):
        runner.checkpoints()
    with pytest.raises(Busy):
        dispose(Submissions(term), "job", 3, None)
    runner.stage = Stage.BROKEN
    with pytest.raises(Refused, match="cannot be read"):
        dispose(Submissions(term), "job", 3, None)


def test_a_savepoint_request_that_meets_the_end_of_its_job_is_repeated() -> None:
    term: Any = SimpleNamespace(jobs={}, suspended=False, recovering=False)
    with pytest.raises(Busy, match="has just ended"):
        dispose(Submissions(term), "job", 3, None)
    assert dispose(Submissions(term), "job", 3, ()) is None, "it has ended without that one"


def test_a_savepoint_stays_while_a_job_that_starts_from_it_is_being_submitted() -> None:
    writing, deleting = Future[Any](), Future[Any]()
    services = SimpleNamespace(
        settings=CoordinatorSettings("z:1", "/s"), actor=SimpleNamespace(tell=lambda call: call() or True)
    )
    term: Any = SimpleNamespace(
        jobs={},
        ended={},
        results={},
        token=1,
        suspended=False,
        recovering=False,
        services=services,
        workers=SimpleNamespace(submit=lambda *_: writing),
        deletions=SimpleNamespace(submit=lambda *_: deleting),
        persistence=SimpleNamespace(submit=lambda *_: None),
        removals=SimpleNamespace(dispose_retained=lambda *_: None),
    )
    submissions, savepoint = Submissions(term), CompletedCheckpoint(3, pointer="file:///s/job/run/chk-3/_metadata")
    submissions.submit(JobRecord("next", "run", restore_from="/s/job/run/chk-3"), b"")
    with pytest.raises(Busy, match="job next, which is being submitted, starts from this savepoint"):
        dispose(submissions, "job", 3, (savepoint,))
    writing.set_exception(StorageError("full"))
    done = dispose(submissions, "job", 3, (savepoint,))
    assert done is not None
    late = JobRecord("late", "run", restore_from="/s/job/run/chk-3/")
    assert "is being deleted" in str(submissions.submit(late, b"").exception(0))
    deleting.set_exception(StorageError("away"))
    assert isinstance(done.exception(0), StorageError)
    term.workers.submit = lambda *_: Future()
    assert not submissions.submit(late, b"").done(), "it is still there"


class _Records:
    """The one result that there is."""

    def __init__(self, result: JobResult) -> None:
        self.stored = result

    def result(self, _key: str) -> JobResult:
        return self.stored

    def write_result(self, _grant: object, result: JobResult) -> None:
        self.stored = result


@pytest.mark.parametrize("is_all_listed", [True, False])
def test_a_retained_checkpoint_of_an_ended_job_is_deleted_with_its_unshared_files(
    tmp_path: Path, is_all_listed: bool
) -> None:
    files = MetadataFiles(str(tmp_path), "default")
    run = run_of(RESULT)
    folder = Path(files.run_directory(run).removeprefix("file://"))
    (folder / "shared").mkdir(parents=True)
    for name in ("1-a", "2-a", "3-a"):
        (folder / "shared" / name).touch()

    def retained(number: int, *names: str) -> CompletedCheckpoint:
        handles = tuple(StateHandle(path=f"file://{folder}/shared/{name}", shared=True) for name in names)
        state = OperatorState("op", StateKind.KEYED_STATE, handles[0], handles[1:])
        subtasks = (SubtaskState("count", 0, (state,)),)
        metadata = CheckpointMetadata(FORMAT_VERSION, "job", "run", number, subtasks=subtasks)
        stored = files.write(run, metadata, encode(metadata))
        return CompletedCheckpoint(number, pointer=stored.pointer, checksum=stored.checksum)

    if not is_all_listed:
        (folder / "chk-1").mkdir()  # its record could not be read when the job ended
    two, three = retained(2, "1-a", "2-a"), retained(3, "1-a", "3-a")
    records = _Records(replace(RESULT, retained=(three, two)))
    nothing: Any = None
    removals = Removals(TermFence(nothing, Event(), nothing), nothing, "default", files)
    removals._records = records  # type: ignore[assignment]
    assert removals.dispose_retained("job", three).retained == (two,)
    assert records.stored.retained == (two,)
    assert not (folder / "chk-3").exists()
    assert (folder / "chk-2").exists()
    left = {path.name for path in (folder / "shared").iterdir()}
    assert left == ({"1-a", "2-a"} if is_all_listed else {"1-a", "2-a", "3-a"})
    removals.dispose_retained("job", two)
    assert folder.exists() is not is_all_listed
    if folder.exists():
        assert list((folder / "shared").iterdir()), "the checkpoint that is not listed may need them"
