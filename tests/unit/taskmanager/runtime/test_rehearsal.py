"""When an idle task manager performs what, and what makes it stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from lockgate_proto.messages import AttemptId, PrepareJob

from taskmanager.runtime import rehearsal
from taskmanager.runtime.performances import RUNS
from taskmanager.runtime.rehearsal import Rehearsal
from tests.unit.taskmanager.runtime.theatre import WAIT_S, Theatre, advice

NEVER_S = 3600.0
WHOLE = 2 * RUNS  # calls of rehearse() in a performance of advice("...")
OTHER = AttemptId("other", "run", 1)

New = Callable[..., Rehearsal]


@pytest.fixture
def theatre() -> Theatre:
    return Theatre()


@pytest.fixture
def running() -> list[AttemptId]:
    """What is deployed here; a test adds and removes."""
    return []


@pytest.fixture
def new(theatre: Theatre, running: list[AttemptId], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[New]:
    """Starts a rehearsal that knows these jobs."""
    made: list[Rehearsal] = []
    monkeypatch.setattr(rehearsal, "BUSY_PAUSE_S", 0.0)
    monkeypatch.setattr(rehearsal, "STOP_S", WAIT_S)

    def make(*jobs: PrepareJob, first_after_s: float = NEVER_S, samples: int = 0) -> Rehearsal:
        monkeypatch.setattr(rehearsal, "FIRST_AFTER_S", first_after_s)
        monkeypatch.setattr(rehearsal, "SAMPLES", samples)
        one = Rehearsal(theatre, str(tmp_path), lambda: tuple(running))
        made.append(one)
        for job in jobs:
            one.learn(job)
        one.start()
        return one

    yield make
    for one in made:
        one.stop()
        assert not one._thread.is_alive()
    assert not list(tmp_path.iterdir()), "its folder is gone"


def rehearsed(theatre: Theatre, key: str) -> int:
    return sum(call.startswith("rehearse") for call in theatre.calls_of(key))


def closed(theatre: Theatre, key: str) -> int:
    return sum(call.startswith("close") for call in theatre.calls_of(key))


def test_a_job_is_performed_at_once_and_before_the_sample(theatre: Theatre, new: New) -> None:
    new(advice("job"), samples=2)
    theatre.wait(lambda: theatre.calls_of("rehearsal").count("close totals-0") == 2)
    keys = [key for key, _ in theatre.calls]
    assert keys == sorted(keys, key=["job", "rehearsal"].index), "first the job, then the samples"
    assert rehearsed(theatre, "job") == WHOLE


def test_the_sample_is_performed_so_many_times_while_nothing_runs(theatre: Theatre, new: New) -> None:
    one = new(first_after_s=0, samples=3)
    theatre.wait(lambda: theatre.calls_of("rehearsal").count("close totals-0") == 3)
    one.learn(advice("job"))
    theatre.wait(lambda: closed(theatre, "job") == 2)
    assert theatre.calls_of("rehearsal").count("close totals-0") == 3
    runs = {one.subtask.attempt for one in theatre.contexts}
    assert len(runs) == 3 + 1, "each sample is a run of its own, with plans of its own"


def test_a_python_worker_is_started_once_after_the_samples(theatre: Theatre, new: New) -> None:
    one = new(first_after_s=0, samples=2)
    theatre.wait(lambda: theatre.python_starts)
    assert theatre.calls_of("rehearsal").count("close totals-0") == 2
    one.learn(advice("job"))
    theatre.wait(lambda: closed(theatre, "job") == 2)
    one.stop()
    assert theatre.python_starts == 1


def test_no_python_worker_is_started_once_something_was_deployed(
    theatre: Theatre, running: list[AttemptId], new: New
) -> None:
    running.append(OTHER)
    one = new(advice("a"))
    theatre.wait(lambda: closed(theatre, "a") == 2)
    running.clear()
    one.learn(advice("b"))
    theatre.wait(lambda: closed(theatre, "b") == 2)
    one.stop()
    assert not theatre.python_starts, "its second of processor time would be taken from the job, or from its failover"


def test_a_job_that_comes_during_the_samples_goes_before_the_next_one(theatre: Theatre, new: New) -> None:
    made: list[Rehearsal] = []
    is_made = threading.Event()

    def tell(key: str, call: str) -> None:
        assert is_made.wait(WAIT_S)
        if (key, call) == ("rehearsal", "open rows-0") and not theatre.calls_of("job"):
            made[0].learn(advice("job"))

    theatre.on_call = tell
    made.append(new(first_after_s=0, samples=2))
    is_made.set()
    theatre.wait(lambda: theatre.calls_of("rehearsal").count("close totals-0") == 2)
    assert [key for key, _ in groupby(key for key, _ in theatre.calls)] == ["rehearsal", "job", "rehearsal"]
    assert rehearsed(theatre, "job") == WHOLE


def test_a_job_is_performed_beside_what_is_deployed_and_a_sample_is_not(
    theatre: Theatre, running: list[AttemptId], new: New
) -> None:
    running.append(OTHER)
    one = new(advice("a"), samples=3)
    theatre.wait(lambda: closed(theatre, "a") == 2)
    one.learn(advice("b"))
    theatre.wait(lambda: closed(theatre, "b") == 2)
    one.stop()
    assert rehearsed(theatre, "a") == rehearsed(theatre, "b") == WHOLE
    assert theatre.calls_of("rehearsal") == []


def test_a_deployment_goes_first_for_a_while(
    theatre: Theatre, running: list[AttemptId], new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.append(OTHER)
    monkeypatch.setattr(rehearsal, "BUSY_PAUSE_S", 0.2)
    started = time.monotonic()
    new(advice("job"))
    theatre.wait(lambda: theatre.calls)
    assert time.monotonic() - started >= 0.2


def test_stopping_ends_the_pause(
    theatre: Theatre, running: list[AttemptId], new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.append(OTHER)
    monkeypatch.setattr(rehearsal, "BUSY_PAUSE_S", NEVER_S)
    one = new(advice("job"))
    one.stop()
    assert not one._thread.is_alive()
    assert theatre.calls == []


def test_a_deployment_stops_a_job_whose_turn_comes_again(
    theatre: Theatre, running: list[AttemptId], new: New, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=rehearsal.__name__)
    at_close: list[int] = []

    def deploy(_key: str, call: str) -> None:
        if call.startswith("rehearse") and not running:
            running.append(OTHER)
        elif call.startswith("close"):
            at_close.append(theatre.count("rehearse"))

    theatre.on_call = deploy
    one = new(advice("job"))
    theatre.wait(lambda: closed(theatre, "job") == 4)
    assert at_close == [1, 1, 1 + WHOLE, 1 + WHOLE]
    one.stop()  # waits for the last message
    assert caplog.messages == [
        "rehearsed job job: stopped by a deployment",
        "rehearsed job job: its plans are warm",
    ]


def test_a_job_that_is_itself_deployed_is_left_to_its_attempt(
    theatre: Theatre, running: list[AttemptId], new: New
) -> None:
    job = advice("job")
    assert job.attempt is not None
    mine = AttemptId(job.attempt.job_key, job.attempt.run_id, 2)

    def deploy(key: str, call: str) -> None:
        if key == "job" and call.startswith("rehearse") and not running:
            running.append(mine)

    theatre.on_call = deploy
    one = new(job)
    theatre.wait(lambda: closed(theatre, "job") == 2)
    one.learn(advice("later"))
    theatre.wait(lambda: closed(theatre, "later") == 2)
    assert rehearsed(theatre, "job") == 1
    assert rehearsed(theatre, "later") == WHOLE


def test_what_ends_meanwhile_stops_nothing(theatre: Theatre, running: list[AttemptId], new: New) -> None:
    running.append(OTHER)
    theatre.on_call = lambda _key, call: running.clear() if call.startswith("rehearse") else None
    new(advice("job"))
    theatre.wait(lambda: closed(theatre, "job") == 2)
    assert rehearsed(theatre, "job") == WHOLE


def test_a_job_that_fails_is_logged_and_does_no_harm(
    theatre: Theatre, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=rehearsal.__name__)
    theatre.failing["bad", "open count-0"] = ValueError("unknown column 'x'")
    new(advice("bad"), advice("good"))
    theatre.wait(lambda: closed(theatre, "good") == 2)
    assert closed(theatre, "bad") == 2
    assert rehearsed(theatre, "bad") == 0
    assert rehearsed(theatre, "good") == WHOLE
    (record,) = [one for one in caplog.records if "bad" in one.message]
    assert record.message == "the rehearsal of job bad failed: unknown column 'x'"
    assert record.levelname == "INFO", "the job itself will tell, should it be deployed here"


def test_a_sample_that_fails_does_no_harm(theatre: Theatre, new: New) -> None:
    theatre.failing["rehearsal", "open rows-0"] = ValueError("no space left")
    one = new(first_after_s=0, samples=2)
    theatre.wait(lambda: theatre.calls_of("rehearsal").count("open rows-0") == 2)
    one.learn(advice("job"))
    theatre.wait(lambda: rehearsed(theatre, "job") == WHOLE)


def test_newer_advice_for_a_run_takes_the_place_of_the_older(theatre: Theatre, new: New) -> None:
    new(advice("job", slots=1), advice("other"), advice("job", slots=0, attempt=2))
    theatre.wait(lambda: closed(theatre, "other") == 2)
    assert theatre.calls_of("job") == []


def again(theatre: Theatre, one: Rehearsal, *jobs: PrepareJob) -> None:
    """The leader says this, and something new, which has been performed when this returns."""
    for job in (*jobs, advice("new")):
        one.learn(job)
    theatre.wait(lambda: closed(theatre, "new") == 2)
    one.stop()


def test_a_job_is_performed_once_however_often_the_leader_tells_of_it(theatre: Theatre, new: New) -> None:
    one = new(advice("job"), advice("next"))
    theatre.wait(lambda: closed(theatre, "next") == 2)
    again(theatre, one, advice("job", attempt=2), advice("next"), advice("job", attempt=3, slots=2))
    assert rehearsed(theatre, "job") == rehearsed(theatre, "next") == rehearsed(theatre, "new") == WHOLE


def test_another_run_of_the_job_is_performed(theatre: Theatre, new: New) -> None:
    one = new(advice("job"), advice("next"))
    theatre.wait(lambda: closed(theatre, "next") == 2)
    again(theatre, one, PrepareJob(AttemptId("job", "another run", 1), advice("job").graph, 1))
    assert rehearsed(theatre, "job") == 2 * WHOLE


def test_what_the_leader_says_of_a_job_while_it_is_performed_is_old_when_it_is_done(theatre: Theatre, new: New) -> None:
    made: list[Rehearsal] = []
    is_made = threading.Event()

    def tell(key: str, call: str) -> None:
        assert is_made.wait(WAIT_S)
        if key == "job" and call.startswith("rehearse"):
            made[0].learn(advice("job", attempt=2))

    theatre.on_call = tell
    made.append(new(advice("job")))
    is_made.set()
    theatre.wait(lambda: closed(theatre, "job") == 2)
    again(theatre, made[0])
    assert rehearsed(theatre, "job") == WHOLE


def test_a_job_that_was_left_to_its_attempt_is_performed_when_the_leader_tells_of_it_again(
    theatre: Theatre, running: list[AttemptId], new: New
) -> None:
    job = advice("job")
    assert job.attempt is not None
    mine = AttemptId(job.attempt.job_key, job.attempt.run_id, 2)
    theatre.on_call = lambda _key, call: running.append(mine) if call.startswith("rehearse") and not running else None
    one = new(job, advice("next"))
    theatre.wait(lambda: closed(theatre, "next") == 2)
    again(theatre, one, advice("job", attempt=2))
    assert rehearsed(theatre, "job") == 1 + WHOLE


def test_a_job_that_failed_is_not_tried_again(theatre: Theatre, new: New) -> None:
    theatre.failing["bad", "open count-0"] = ValueError("unknown column 'x'")
    one = new(advice("bad"), advice("next"))
    theatre.wait(lambda: closed(theatre, "next") == 2)
    again(theatre, one, advice("bad", attempt=2))
    assert theatre.calls_of("bad").count("open count-0") == 1


def test_of_very_many_performed_jobs_the_oldest_is_forgotten(
    theatre: Theatre, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "REMEMBERED", 2)
    one = new(advice("a"), advice("b"), advice("c"), advice("next"))
    theatre.wait(lambda: closed(theatre, "next") == 2)
    again(theatre, one, advice("c"), advice("a"))
    assert [rehearsed(theatre, key) for key in ("a", "c")] == [2 * WHOLE, WHOLE]


def test_of_very_many_jobs_the_newest_are_performed(
    theatre: Theatre, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "JOBS", 2)
    new(*[advice(key) for key in ("a", "b", "c")])
    theatre.wait(lambda: closed(theatre, "c") == 2)
    assert [closed(theatre, key) for key in ("a", "b", "c")] == [0, 2, 2]


def test_advice_without_an_attempt_is_ignored(theatre: Theatre, new: New) -> None:
    new(PrepareJob(None, None, 1), advice("job"))
    theatre.wait(lambda: closed(theatre, "job") == 2)
    assert {key for key, _ in theatre.calls} == {"job"}


def test_stopping_ends_a_performance_before_the_next_call(theatre: Theatre, new: New) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(_key: str, call: str) -> None:
        if call.startswith("rehearse"):
            reached.set()
            assert go_on.wait(WAIT_S)

    theatre.on_call = hold
    one = new(advice("job"), advice("next"))
    assert reached.wait(WAIT_S)
    stopping = threading.Thread(target=one.stop)
    stopping.start()
    with one._changed:
        assert one._changed.wait_for(lambda: one._is_stopping, WAIT_S)
    go_on.set()
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    assert rehearsed(theatre, "job") == 1
    assert closed(theatre, "job") == 2
    assert theatre.calls_of("next") == []


def test_an_authors_function_that_hangs_does_not_keep_the_process_from_ending(
    theatre: Theatre, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hang(_key: str, call: str) -> None:
        if call.startswith("rehearse"):
            reached.set()
            assert go_on.wait(WAIT_S)

    theatre.on_call = hang
    one = new(advice("job"))
    assert reached.wait(WAIT_S)
    with monkeypatch.context() as patch:
        patch.setattr(rehearsal, "STOP_S", 0.01)
        one.stop()
    assert one._thread.is_alive()
    assert one._thread.daemon
    assert "left behind" in caplog.text
    go_on.set()


def test_stopping_before_it_was_started_is_fine(theatre: Theatre, tmp_path: Path) -> None:
    Rehearsal(theatre, str(tmp_path), lambda: ()).stop()
    assert theatre.calls == []
