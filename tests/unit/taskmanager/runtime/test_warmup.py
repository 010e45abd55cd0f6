"""When an idle task manager performs what, and what makes it stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
from lockgate_proto.messages import AttemptId, PrepareJob
from lockgate_taskmanager.runtime import warmup
from lockgate_taskmanager.runtime.warmup import AT_ONCE, Warmup
from lockgate_taskmanager.runtime.warmup_budget import SHARE, Budget
from lockgate_taskmanager.runtime.warmup_jobs import RUNS

from tests.unit.taskmanager.runtime.fake_program_factory import WAIT_S, FakeProgramFactory, advice

NEVER_S = 3600.0
WHOLE = 2 * RUNS  # calls of warm-ups in a performance of advice("...")
OTHER = AttemptId("other", "run", 1)

New = Callable[..., Warmup]


@pytest.fixture
def factory() -> FakeProgramFactory:
    return FakeProgramFactory()


@pytest.fixture
def running() -> list[AttemptId]:
    """What is deployed here; a test adds and removes."""
    return []


@pytest.fixture
def new(
    factory: FakeProgramFactory, running: list[AttemptId], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[New]:
    """Starts a warm-up that knows these jobs."""
    made: list[Warmup] = []
    monkeypatch.setattr(warmup, "BUSY_PAUSE_S", 0.0)
    monkeypatch.setattr(warmup, "STOP_S", WAIT_S)

    def make(
        *jobs: PrepareJob, first_after_s: float = NEVER_S, samples: int = 0, budget: Budget | None = None
    ) -> Warmup:
        monkeypatch.setattr(warmup, "FIRST_AFTER_S", first_after_s)
        warmer = Warmup(factory, str(tmp_path), lambda: tuple(running), samples, budget)
        made.append(warmer)
        for job in jobs:
            warmer.learn(job)
        warmer.start()
        return warmer

    yield make
    for item in made:
        item.stop()
        assert not item._thread.is_alive()
    assert not list(tmp_path.iterdir()), "its folder is gone"


def warmed(factory: FakeProgramFactory, key: str) -> int:
    return sum(call.startswith("warm_up") for call in factory.calls_of(key))


def closed(factory: FakeProgramFactory, key: str) -> int:
    return sum(call.startswith("close") for call in factory.calls_of(key))


def test_a_job_is_performed_at_once_and_before_the_sample(factory: FakeProgramFactory, new: New) -> None:
    new(advice("job"), samples=2)
    factory.wait(lambda: factory.calls_of("warm-up").count("close totals-0") == 2)
    keys = [key for key, _ in factory.calls]
    assert keys == sorted(keys, key=["job", "warm-up"].index), "first the job, then the samples"
    assert warmed(factory, "job") == WHOLE


def test_the_sample_is_performed_so_many_times_while_nothing_runs(factory: FakeProgramFactory, new: New) -> None:
    warmer = new(first_after_s=0, samples=3)
    factory.wait(lambda: factory.calls_of("warm-up").count("close totals-0") == 3)
    warmer.learn(advice("job"))
    factory.wait(lambda: closed(factory, "job") == 2)
    assert factory.calls_of("warm-up").count("close totals-0") == 3
    runs = {context.subtask.attempt for context in factory.contexts}
    assert len(runs) == 3 + 1, "each sample is a run of its own, with plans of its own"


def test_a_python_worker_is_started_once_after_the_samples(factory: FakeProgramFactory, new: New) -> None:
    warmer = new(first_after_s=0, samples=2)
    factory.wait(lambda: factory.python_starts)
    assert factory.calls_of("warm-up").count("close totals-0") == 2
    warmer.learn(advice("job"))
    factory.wait(lambda: closed(factory, "job") == 2)
    warmer.stop()
    assert factory.python_starts == 1


def test_no_python_worker_is_started_once_something_was_deployed(
    factory: FakeProgramFactory, running: list[AttemptId], new: New
) -> None:
    running.append(OTHER)
    warmer = new(advice("a"))
    factory.wait(lambda: closed(factory, "a") == 2)
    running.clear()
    warmer.learn(advice("b"))
    factory.wait(lambda: closed(factory, "b") == 2)
    warmer.stop()
    assert not factory.python_starts, "its second of processor time would be taken from the job, or from its failover"


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, bool]]:
    """Each call of `rest_s`: the share and whether it is beside a job. Nothing rests."""
    calls: list[tuple[float, bool]] = []

    def rest_s(took_s: float, share: float, is_beside_a_job: bool) -> float:
        assert took_s > 0
        calls.append((share, is_beside_a_job))
        return 0.0

    monkeypatch.setattr(warmup, "rest_s", rest_s)
    return calls


@pytest.mark.usefixtures("rests")
def test_small_micro_batches_come_last_and_end_with_their_budget(factory: FakeProgramFactory, new: New) -> None:
    factory.batches = 5
    warmer = new(first_after_s=0, samples=1, budget=Budget(3))
    factory.wait(lambda: factory.calls_of("warm-up").count("close counts-0") == 1)
    warmer.learn(advice("job"))
    factory.wait(lambda: closed(factory, "job") == 2)
    calls = factory.calls_of("warm-up")
    assert calls.index("close totals-0") < calls.index("build lines-0"), "the sample first"
    assert factory.python_starts == 1
    assert calls.count("poll lines-0") == 3
    assert calls.count("build lines-0") == 1


@pytest.mark.usefixtures("rests")
def test_a_deployment_ends_the_small_micro_batches_for_good(
    factory: FakeProgramFactory, running: list[AttemptId], new: New
) -> None:
    factory.batches = 9

    def deploy(_key: str, call: str) -> None:
        if call == "poll lines-0" and factory.calls_of("warm-up").count(call) == 2:
            running.append(OTHER)

    factory.on_call = deploy
    budget = Budget(5)
    warmer = new(first_after_s=0, budget=budget)
    factory.wait(lambda: closed(factory, "warm-up") == 2)
    assert factory.calls_of("warm-up")[-3:] == ["poll lines-0", "close lines-0", "close counts-0"], "not even passed on"
    warmer.learn(advice("a"))
    factory.wait(lambda: closed(factory, "a") == 2)
    running.clear()
    warmer.learn(advice("b"))
    factory.wait(lambda: closed(factory, "b") == 2)
    assert budget.is_used_up
    assert factory.calls_of("warm-up").count("build lines-0") == 1, "the job has warmed up the JVM"


def test_small_micro_batches_rest_longer_once_there_is_a_job(
    factory: FakeProgramFactory, new: New, rests: list[tuple[float, bool]]
) -> None:
    factory.batches = 9
    made: list[Warmup] = []
    is_made = threading.Event()

    def tell(_key: str, call: str) -> None:
        assert is_made.wait(WAIT_S)
        if call == "poll lines-0" and factory.calls_of("warm-up").count(call) == 2 and not factory.calls_of("job"):
            made[0].learn(advice("job"))

    factory.on_call = tell
    made.append(new(first_after_s=0, budget=Budget(4)))
    is_made.set()
    factory.wait(lambda: closed(factory, "warm-up") == 4)
    assert [key for key, _ in groupby(key for key, _ in factory.calls)] == ["warm-up", "job", "warm-up"]
    assert rests == [(SHARE, False), *[(SHARE, True)] * 3], "the second was stopped before it was counted"


def test_beside_a_job_all_but_the_first_samples_rest(
    factory: FakeProgramFactory, new: New, rests: list[tuple[float, bool]]
) -> None:
    factory.batches = 2
    new(advice("job"), samples=AT_ONCE + 1)
    factory.wait(lambda: factory.calls_of("warm-up").count("close totals-0") == AT_ONCE + 1)
    assert rests == [(1.0, True)] * 2


def test_stopping_ends_the_rest(factory: FakeProgramFactory, new: New, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "rest_s", lambda *_: NEVER_S)
    factory.batches = 9
    warmer = new(first_after_s=0, budget=Budget(9))
    factory.wait(lambda: factory.count("poll"))
    warmer.stop()
    assert not warmer._thread.is_alive()
    assert factory.count("poll") == 1


@pytest.mark.usefixtures("rests")
def test_small_micro_batches_that_fail_are_not_tried_again(factory: FakeProgramFactory, new: New) -> None:
    factory.failing["warm-up", "open lines-0"] = ValueError("no space left")
    warmer = new(first_after_s=0, budget=Budget(5))
    factory.wait(lambda: closed(factory, "warm-up") == 1)
    warmer.learn(advice("job"))
    factory.wait(lambda: closed(factory, "job") == 2)
    assert factory.calls_of("warm-up").count("open lines-0") == 1


def test_a_job_that_comes_during_the_samples_goes_before_the_next_one(factory: FakeProgramFactory, new: New) -> None:
    made: list[Warmup] = []
    is_made = threading.Event()

    def tell(key: str, call: str) -> None:
        assert is_made.wait(WAIT_S)
        if (key, call) == ("warm-up", "open rows-0") and not factory.calls_of("job"):
            made[0].learn(advice("job"))

    factory.on_call = tell
    made.append(new(first_after_s=0, samples=2))
    is_made.set()
    factory.wait(lambda: factory.calls_of("warm-up").count("close totals-0") == 2)
    assert [key for key, _ in groupby(key for key, _ in factory.calls)] == ["warm-up", "job", "warm-up"]
    assert warmed(factory, "job") == WHOLE


def test_a_job_is_performed_beside_what_is_deployed_and_a_sample_is_not(
    factory: FakeProgramFactory, running: list[AttemptId], new: New
) -> None:
    running.append(OTHER)
    warmer = new(advice("a"), samples=3)
    factory.wait(lambda: closed(factory, "a") == 2)
    warmer.learn(advice("b"))
    factory.wait(lambda: closed(factory, "b") == 2)
    warmer.stop()
    assert warmed(factory, "a") == warmed(factory, "b") == WHOLE
    assert factory.calls_of("warm-up") == []


def test_a_deployment_has_priority_for_a_while(
    factory: FakeProgramFactory, running: list[AttemptId], new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.append(OTHER)
    monkeypatch.setattr(warmup, "BUSY_PAUSE_S", 0.2)
    started = time.monotonic()
    new(advice("job"))
    factory.wait(lambda: factory.calls)
    assert time.monotonic() - started >= 0.2


def test_stopping_ends_the_pause(
    factory: FakeProgramFactory, running: list[AttemptId], new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.append(OTHER)
    monkeypatch.setattr(warmup, "BUSY_PAUSE_S", NEVER_S)
    warmer = new(advice("job"))
    warmer.stop()
    assert not warmer._thread.is_alive()
    assert factory.calls == []


def test_a_deployment_stops_a_job_that_is_repeated_later(
    factory: FakeProgramFactory, running: list[AttemptId], new: New, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=warmup.__name__)
    at_close: list[int] = []

    def deploy(_key: str, call: str) -> None:
        if call.startswith("warm_up") and not running:
            running.append(OTHER)
        elif call.startswith("close"):
            at_close.append(factory.count("warm_up"))

    factory.on_call = deploy
    warmer = new(advice("job"))
    factory.wait(lambda: closed(factory, "job") == 4)
    assert at_close == [1, 1, 1 + WHOLE, 1 + WHOLE]
    warmer.stop()  # waits for the last message
    assert caplog.messages == [
        "warmed up job job: stopped by a deployment",
        "warmed up job job: its plans are warm",
    ]


def test_a_job_that_is_itself_deployed_is_left_to_its_attempt(
    factory: FakeProgramFactory, running: list[AttemptId], new: New
) -> None:
    job = advice("job")
    assert job.attempt is not None
    mine = AttemptId(job.attempt.job_key, job.attempt.run_id, 2)

    def deploy(key: str, call: str) -> None:
        if key == "job" and call.startswith("warm_up") and not running:
            running.append(mine)

    factory.on_call = deploy
    warmer = new(job)
    factory.wait(lambda: closed(factory, "job") == 2)
    warmer.learn(advice("later"))
    factory.wait(lambda: closed(factory, "later") == 2)
    assert warmed(factory, "job") == 1
    assert warmed(factory, "later") == WHOLE


def test_jobs_that_end_meanwhile_stop_nothing(factory: FakeProgramFactory, running: list[AttemptId], new: New) -> None:
    running.append(OTHER)
    factory.on_call = lambda _key, call: running.clear() if call.startswith("warm_up") else None
    new(advice("job"))
    factory.wait(lambda: closed(factory, "job") == 2)
    assert warmed(factory, "job") == WHOLE


def test_a_job_that_fails_is_logged_and_harmless(
    factory: FakeProgramFactory, new: New, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger=warmup.__name__)
    factory.failing["bad", "open count-0"] = ValueError("unknown column 'x'")
    new(advice("bad"), advice("good"))
    factory.wait(lambda: closed(factory, "good") == 2)
    assert closed(factory, "bad") == 2
    assert warmed(factory, "bad") == 0
    assert warmed(factory, "good") == WHOLE
    (record,) = [record for record in caplog.records if "bad" in record.message]
    assert record.message == "the warm-up of job bad failed: unknown column 'x'"
    assert record.levelname == "INFO", "the job itself will tell, should it be deployed here"


def test_a_sample_that_fails_is_harmless(factory: FakeProgramFactory, new: New) -> None:
    factory.failing["warm-up", "open rows-0"] = ValueError("no space left")
    warmer = new(first_after_s=0, samples=2)
    factory.wait(lambda: factory.calls_of("warm-up").count("open rows-0") == 2)
    warmer.learn(advice("job"))
    factory.wait(lambda: warmed(factory, "job") == WHOLE)


def test_newer_advice_for_a_run_takes_the_place_of_the_older(factory: FakeProgramFactory, new: New) -> None:
    new(advice("job", slots=1), advice("other"), advice("job", slots=0, attempt=2))
    factory.wait(lambda: closed(factory, "other") == 2)
    assert factory.calls_of("job") == []


def again(factory: FakeProgramFactory, warmer: Warmup, *jobs: PrepareJob) -> None:
    """The leader says this, and something new, which has been performed when this returns."""
    for job in (*jobs, advice("new")):
        warmer.learn(job)
    factory.wait(lambda: closed(factory, "new") == 2)
    warmer.stop()


def test_a_job_is_performed_once_however_often_the_leader_announces_it(factory: FakeProgramFactory, new: New) -> None:
    warmer = new(advice("job"), advice("next"))
    factory.wait(lambda: closed(factory, "next") == 2)
    again(factory, warmer, advice("job", attempt=2), advice("next"), advice("job", attempt=3, slots=2))
    assert warmed(factory, "job") == warmed(factory, "next") == warmed(factory, "new") == WHOLE


def test_another_run_of_the_job_is_performed(factory: FakeProgramFactory, new: New) -> None:
    warmer = new(advice("job"), advice("next"))
    factory.wait(lambda: closed(factory, "next") == 2)
    again(factory, warmer, PrepareJob(AttemptId("job", "another run", 1), advice("job").graph, 1))
    assert warmed(factory, "job") == 2 * WHOLE


def test_advice_during_a_warm_up_is_outdated_when_that_ends(factory: FakeProgramFactory, new: New) -> None:
    made: list[Warmup] = []
    is_made = threading.Event()

    def tell(key: str, call: str) -> None:
        assert is_made.wait(WAIT_S)
        if key == "job" and call.startswith("warm_up"):
            made[0].learn(advice("job", attempt=2))

    factory.on_call = tell
    made.append(new(advice("job")))
    is_made.set()
    factory.wait(lambda: closed(factory, "job") == 2)
    again(factory, made[0])
    assert warmed(factory, "job") == WHOLE


def test_a_job_left_to_its_attempt_is_performed_when_the_leader_announces_it_again(
    factory: FakeProgramFactory, running: list[AttemptId], new: New
) -> None:
    job = advice("job")
    assert job.attempt is not None
    mine = AttemptId(job.attempt.job_key, job.attempt.run_id, 2)
    factory.on_call = lambda _key, call: running.append(mine) if call.startswith("warm_up") and not running else None
    warmer = new(job, advice("next"))
    factory.wait(lambda: closed(factory, "next") == 2)
    again(factory, warmer, advice("job", attempt=2))
    assert warmed(factory, "job") == 1 + WHOLE


def test_a_job_that_failed_is_not_tried_again(factory: FakeProgramFactory, new: New) -> None:
    factory.failing["bad", "open count-0"] = ValueError("unknown column 'x'")
    warmer = new(advice("bad"), advice("next"))
    factory.wait(lambda: closed(factory, "next") == 2)
    again(factory, warmer, advice("bad", attempt=2))
    assert factory.calls_of("bad").count("open count-0") == 1


def test_beyond_the_limit_the_oldest_warmed_up_job_is_forgotten(
    factory: FakeProgramFactory, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "REMEMBERED", 2)
    warmer = new(advice("a"), advice("b"), advice("c"), advice("next"))
    factory.wait(lambda: closed(factory, "next") == 2)
    again(factory, warmer, advice("c"), advice("a"))
    assert [warmed(factory, key) for key in ("a", "c")] == [2 * WHOLE, WHOLE]


def test_beyond_the_limit_only_the_newest_jobs_are_warmed_up(
    factory: FakeProgramFactory, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warmup, "JOBS", 2)
    new(*[advice(key) for key in ("a", "b", "c")])
    factory.wait(lambda: closed(factory, "c") == 2)
    assert [closed(factory, key) for key in ("a", "b", "c")] == [0, 2, 2]


def test_advice_without_an_attempt_is_ignored(factory: FakeProgramFactory, new: New) -> None:
    new(PrepareJob(None, None, 1), advice("job"))
    factory.wait(lambda: closed(factory, "job") == 2)
    assert {key for key, _ in factory.calls} == {"job"}


def test_stopping_ends_a_performance_before_the_next_call(factory: FakeProgramFactory, new: New) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hold(_key: str, call: str) -> None:
        if call.startswith("warm_up"):
            reached.set()
            assert go_on.wait(WAIT_S)

    factory.on_call = hold
    warmer = new(advice("job"), advice("next"))
    assert reached.wait(WAIT_S)
    stopping = threading.Thread(target=warmer.stop)
    stopping.start()
    with warmer._changed:
        assert warmer._changed.wait_for(lambda: warmer._is_stopping, WAIT_S)
    go_on.set()
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    assert warmed(factory, "job") == 1
    assert closed(factory, "job") == 2
    assert factory.calls_of("next") == []


def test_an_authors_function_that_hangs_does_not_keep_the_process_from_ending(
    factory: FakeProgramFactory, new: New, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def hang(_key: str, call: str) -> None:
        if call.startswith("warm_up"):
            reached.set()
            assert go_on.wait(WAIT_S)

    factory.on_call = hang
    warmer = new(advice("job"))
    assert reached.wait(WAIT_S)
    with monkeypatch.context() as patch:
        patch.setattr(warmup, "STOP_S", 0.01)
        warmer.stop()
    assert warmer._thread.is_alive()
    assert warmer._thread.daemon
    assert "abandoned" in caplog.text
    go_on.set()


def test_stopping_before_it_was_started_is_fine(factory: FakeProgramFactory, tmp_path: Path) -> None:
    Warmup(factory, str(tmp_path), lambda: (), 1).stop()
    assert factory.calls == []
