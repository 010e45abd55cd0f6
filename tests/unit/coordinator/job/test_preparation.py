"""What a job's master would have spare task managers prepare for: the job while it runs, nothing before or after."""

from __future__ import annotations

from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.job import effects, events
from lockgate_proto.layout import layout_of
from lockgate_proto.messages import Deploy, FailureCause, JobState, PrepareJob, SubtaskPhase

from tests.unit.coordinator.driver import Driver
from tests.unit.coordinator.jobs import SUBTASKS, attempt, word_count

RUNNING, EXHAUSTED = SubtaskPhase.SUBTASK_RUNNING, SubtaskPhase.SUBTASK_EXHAUSTED


def test_nothing_is_to_be_prepared_before_every_subtask_runs() -> None:
    driver = Driver()
    assert driver.master.preparation() is None
    request = driver.recover().request
    assert driver.state is JobState.WAITING_FOR_SLOTS
    assert driver.master.preparation() is None
    driver.offer(request)
    assert driver.master.preparation() is None
    driver.give(events.AttemptPersisted(1))
    for key in SUBTASKS[:-1]:
        driver.report(RUNNING, key)
        assert driver.state is JobState.DEPLOYING
        assert driver.master.preparation() is None


def test_a_running_job_is_prepared_with_its_normalized_graph_and_attempt() -> None:
    graph = word_count()
    assert normalize(graph) != graph  # else this proves nothing
    assert Driver(graph).run().master.preparation() == PrepareJob(attempt(1), normalize(graph), slots=0)


def test_it_is_the_graph_that_is_deployed_so_that_the_plans_fit() -> None:
    driver = Driver()
    driver.deploy(driver.recover().request)
    deploys = driver.sent(Deploy)
    driver.all_report(RUNNING)
    advice = driver.master.preparation()
    assert advice is not None
    assert [layout_of(item).graph for _, item in deploys] == [advice.graph] * 2


def test_nothing_between_two_attempts_and_then_the_new_one() -> None:
    driver = Driver().run()
    driver.fail(FailureCause.FAULT)
    assert driver.state is JobState.RESTARTING
    assert driver.master.preparation() is None
    driver.tick(60_000)
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert driver.state is JobState.DEPLOYING
    assert driver.master.preparation() is None
    driver.all_report(RUNNING)
    advice = driver.master.preparation()
    assert advice is not None
    assert advice.attempt == attempt(2)


def test_nothing_for_a_job_that_has_read_everything() -> None:
    driver = Driver().run()
    driver.all_report(EXHAUSTED)
    assert driver.state is JobState.FINISHING
    assert driver.master.preparation() is None


def test_nothing_for_a_job_that_is_cancelled_or_has_failed() -> None:
    cancelled = Driver().run()
    cancelled.give(events.CancelRequested())
    assert cancelled.state is JobState.CANCELING
    assert cancelled.master.preparation() is None
    failed = Driver().run()
    failed.fail(FailureCause.USER_ERROR)
    assert failed.master.preparation() is None  # its result is being written
    failed.give(events.ResultPersisted())
    assert failed.state is JobState.FAILED
    assert failed.master.preparation() is None
