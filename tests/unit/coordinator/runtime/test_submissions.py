"""Submissions: what is asked twice while the first answer is still being written."""

from __future__ import annotations

import dataclasses
from concurrent.futures import Future
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from grpc import StatusCode
from lockgate_common.serving.refusals import Refused
from lockgate_coordinator.graph.destinations import Destination
from lockgate_coordinator.runtime.settings import CoordinatorSettings
from lockgate_coordinator.runtime.submissions import Submissions
from lockgate_proto.messages import JobRecord, SubmitResponse

SETTINGS = CoordinatorSettings("z:1", "/s", max_jobs=2)


def _asked(restore_from: str = "", checksum: str = "sha256:1", run_id: str = "run") -> JobRecord:
    return JobRecord("job", run_id, graph_checksum=checksum, restore_from=restore_from)


@pytest.fixture
def submissions() -> Submissions:
    """Of a term whose writes never end."""
    never: Future[Any] = Future()
    workers = SimpleNamespace(submit=lambda *_: never)
    persistence = SimpleNamespace(submit=lambda *_: None)
    services = SimpleNamespace(settings=SETTINGS)
    term: Any = SimpleNamespace(
        jobs={}, ended={}, results={}, token=1, persistence=persistence, workers=workers, services=services
    )
    return Submissions(term)


@pytest.mark.parametrize("second", [_asked("/s/chk-1", run_id="other"), _asked(run_id="other")])
def test_a_repeated_request_waits_for_the_first_answer(submissions: Submissions, second: JobRecord) -> None:
    submissions.submit(_asked("file:///s/chk-1/_metadata"), b"")
    assert not submissions.submit(second, b"").done()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (_asked("/s/chk-2"), "was submitted from /s/chk-1"),
        (_asked("/s/chk-1", "sha256:2"), "belongs to another job graph"),
    ],
)
def test_another_start_or_graph_is_refused_before_the_first_is_written(
    submissions: Submissions, second: JobRecord, reason: str
) -> None:
    submissions.submit(_asked("/s/chk-1"), b"")
    error = submissions.submit(second, b"").exception(0)
    assert isinstance(error, Refused)
    assert error.code is StatusCode.ALREADY_EXISTS
    assert reason in str(error)


def test_a_start_for_a_job_that_had_none_is_refused(submissions: Submissions) -> None:
    submissions.submit(_asked(), b"")
    error = submissions.submit(_asked("/s/chk-1"), b"").exception(0)
    assert "without a snapshot to start from" in str(error)


def test_a_second_job_for_one_place_is_refused_while_the_first_is_still_being_written(submissions: Submissions) -> None:
    place = (Destination("out", "folder /out", "the folder /out", False),)
    submissions.submit(_asked(), b"", writes=place)
    second = JobRecord("other", "run", graph_checksum="sha256:2")
    error = submissions.submit(second, b"", writes=place).exception(0)
    assert isinstance(error, Refused)
    assert "sink 'out' of job 'job', which has not ended" in str(error)
    assert not submissions.submit(second, b"", writes=(dataclasses.replace(place[0], shared=True),)).done()


def test_a_submission_is_acknowledged_when_it_is_durable_and_carries_its_leaders_token() -> None:
    written: Future[Any] = Future()
    asked: list[JobRecord] = []
    workers = SimpleNamespace(submit=lambda _key, write: (write(), written)[1])
    persistence = SimpleNamespace(submit=lambda record, _graph: asked.append(record))
    actor = SimpleNamespace(tell=lambda call: call() or True)
    term: Any = SimpleNamespace(
        jobs={},
        ended={},
        results={},
        token=7,
        persistence=persistence,
        workers=workers,
        fence=SimpleNamespace(over=Event()),
        services=SimpleNamespace(actor=actor, settings=SETTINGS),
        add=lambda *_, **__: SimpleNamespace(load=lambda **_: None),
    )
    answer = Submissions(term).submit(_asked(), b"")
    assert not answer.done()
    assert [job_record.token for job_record in asked] == [7]
    written.set_result(asked[0])
    assert answer.result(0) == SubmitResponse("job", "run", created=True)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_submission_that_becomes_durable_as_the_term_ends_is_left_to_the_next_leader(is_over: bool) -> None:
    """It counts all the same, and is answered so."""
    over, begun, durable = Event(), [], _asked()

    def add(record: JobRecord, *, recovered: bool) -> Any:
        assert not recovered
        return SimpleNamespace(load=lambda *, fresh: begun.append((record, fresh)))

    actor = SimpleNamespace(tell=lambda call: call() or True)
    written: Future[Any] = Future()
    term: Any = SimpleNamespace(
        jobs={},
        ended={},
        results={},
        token=0,
        add=add,
        fence=SimpleNamespace(over=over),
        services=SimpleNamespace(actor=actor, settings=SETTINGS),
        persistence=None,
        workers=SimpleNamespace(submit=lambda *_: written),
    )
    answer = Submissions(term).submit(durable, b"")
    if is_over:
        over.set()
    written.set_result(durable)
    assert answer.result(0) == SubmitResponse("job", "run", created=True)
    assert begun == ([] if is_over else [(durable, True)])


def test_a_job_beyond_the_limit_is_refused_and_a_known_one_is_not(submissions: Submissions) -> None:
    """Those that are being written count, too."""
    for key in ("first", "second"):
        assert not submissions.submit(JobRecord(key, "run", graph_checksum="sha256:1"), b"").done()
    error = submissions.submit(JobRecord("third", "run", graph_checksum="sha256:1"), b"").exception(0)
    assert isinstance(error, Refused)
    assert error.code is StatusCode.RESOURCE_EXHAUSTED
    assert "2 jobs have not ended, as many as coordinator.max_jobs allows" in str(error)
    assert not submissions.submit(JobRecord("first", "again", graph_checksum="sha256:1"), b"").done()
