"""What a job may not wait for, and what it may not send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.job import deploy_size, effects, events
from lockgate_coordinator.job.deploy_size import start_problem
from lockgate_coordinator.job.restart import NARROW_MS
from lockgate_coordinator.job.splits import DISCOVERY_TIMEOUT_MS
from lockgate_proto.codec import encode
from lockgate_proto.messages import (
    AttemptRecord,
    CancelAttempt,
    CheckpointMetadata,
    CompletedCheckpoint,
    Deploy,
    DiscoverSplits,
    FailureCause,
    ForeachBatchSink,
    JobState,
    KeyedProcess,
    NoRestart,
    Operator,
    OperatorState,
    Participant,
    PythonSink,
    PythonSource,
    PythonTransform,
    RestartStrategy,
    SplitsDiscovered,
    SplitState,
    StateHandle,
    StateKind,
    SubtaskPhase,
    SubtaskState,
)

from tests.layouts import layout
from tests.unit.coordinator.driver import SLOTS, Driver
from tests.unit.coordinator.jobs import attempt, source_state, word_count


def snapshot(driver: Driver | None = None) -> tuple[CompletedCheckpoint, CheckpointMetadata]:
    """A completed checkpoint of the word count."""
    return (driver or Driver().run()).complete()


# sources


def test_a_source_whose_splits_are_not_listed_in_time_fails_the_attempt() -> None:
    driver = Driver().run()
    driver.tick(DISCOVERY_TIMEOUT_MS - 1_000)
    assert driver.state is JobState.RUNNING
    assert driver.one(effects.WakeAt).at_ms <= driver.now + 1_000
    driver.tick(1_000)
    assert driver.state is JobState.RESTARTING
    assert "tm-a has not listed the splits of read" in driver.master.status().error


def test_listed_splits_are_waited_for_no_longer() -> None:
    driver = Driver().run()
    driver.give(events.SplitsFound(SplitsDiscovered(attempt=attempt(), vertex_id="read", complete=True)))
    driver.tick(2 * DISCOVERY_TIMEOUT_MS)
    assert driver.state is JobState.RUNNING


@pytest.mark.parametrize(
    ("cause", "state"),
    [
        (FailureCause.FAILURE_CAUSE_UNSPECIFIED, JobState.FAILED),  # of an older task manager
        (FailureCause.USER_ERROR, JobState.FAILED),
        (FailureCause.STATE_UNREADABLE, JobState.FAILED),
        (FailureCause.FAULT, JobState.RESTARTING),
    ],
)
def test_a_failed_listing_restarts_the_job_when_that_can_help(cause: FailureCause, state: JobState) -> None:
    driver = Driver().run()
    answer = SplitsDiscovered(attempt=attempt(), vertex_id="read", error="it broke", cause=cause)
    driver.give(events.SplitsFound(answer))
    if state is JobState.FAILED:
        assert driver.result().error == "source read: it broke"
        assert driver.result().keep_files is (cause is FailureCause.STATE_UNREADABLE)
    else:
        assert driver.state is state


# large state


def test_inline_state_that_fits_into_no_message_fails_the_job_and_keeps_its_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checkpoint, metadata = snapshot()
    handle = StateHandle(inline=b"x" * 100_000)
    state = OperatorState(operator_id="counts", kind=StateKind.KEYED_STATE, handle=handle)
    large = tuple(
        replace(subtask, operators=(state,)) if subtask.vertex_id == "count" else subtask
        for subtask in metadata.subtasks
    )
    monkeypatch.setattr(deploy_size.check_size, "__defaults__", (90_000,))
    driver = Driver()
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (checkpoint,), replace(metadata, subtasks=large), 2).request)
    assert not driver.sent(Deploy)
    result = driver.result()
    assert "snapshot's inline state is 0.1 MB" in result.error
    assert "filesystem" in result.error
    assert result.outcome == "FAILED"
    assert result.keep_files
    assert [checkpoint.checkpoint_id for checkpoint in result.retained] == [checkpoint.checkpoint_id]


def test_a_job_whose_state_fits_only_onto_more_task_managers_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss of a task manager does not end a job that has a snapshot, however often it is tried in between."""
    monkeypatch.setattr(deploy_size.check_size, "__defaults__", (90_000,))
    driver = Driver(word_count(restart=RestartStrategy(NoRestart()))).run()
    handle = StateHandle(inline=b"x" * 50_000)
    operators = (OperatorState(operator_id="counts", kind=StateKind.KEYED_STATE, handle=handle),)
    counts = {("count", index): SubtaskState("count", index, operators) for index in range(2)}
    driver.acknowledge(driver.trigger(), counts)
    driver.persisted(driver.one(effects.PersistCheckpoint))
    driver.give(events.TaskManagerLost("tm-b", "it left", planned=True))
    for _ in range(20):
        request = driver.one(effects.RequestSlots)
        driver.deploy(request.request, SLOTS[:1] * 2)
        assert driver.state is JobState.RESTARTING
        assert not driver.sent(Deploy)
        status = driver.master.status()
        assert "Use more task managers" in status.message
        assert (status.restarts, "inline state is 0.1 MB" in status.error) == (1, True)
        driver.tick(NARROW_MS)
        assert driver.one(effects.RequestSlots).preferred == ("", ""), "before others, and spread over all"
    driver.deploy(driver.one(effects.RequestSlots).request)
    assert [name for name, _ in driver.sent(Deploy)] == ["tm-a", "tm-b"]
    driver.all_report(SubtaskPhase.SUBTASK_RUNNING)
    assert driver.state is JobState.RUNNING


def test_a_waiting_job_lets_nothing_of_an_earlier_leader_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint, metadata = snapshot()
    state = OperatorState("counts", StateKind.KEYED_STATE, StateHandle(inline=b"x" * 50_000))
    large = replace(
        metadata,
        subtasks=tuple(
            replace(known, operators=(state,)) if known.vertex_id == "count" else known for known in metadata.subtasks
        ),
    )
    monkeypatch.setattr(deploy_size.check_size, "__defaults__", (90_000,))
    driver = Driver()
    last = AttemptRecord(attempt=1, task_manager_ids=("tm-a", "tm-b"))
    driver.deploy(driver.recover(last, (checkpoint,), large, 2).request, SLOTS[:1] * 2)
    assert driver.state is JobState.RESTARTING
    assert {(name, body.attempt) for name, body in driver.sent(CancelAttempt)} >= {
        ("tm-a", attempt(1)),
        ("tm-b", attempt(1)),
    }


def test_a_start_whose_state_fits_into_no_message_is_known_beforehand_and_more_task_managers_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, metadata = snapshot()
    handle = StateHandle(inline=b"x" * 50_000)
    state = OperatorState(operator_id="counts", kind=StateKind.KEYED_STATE, handle=handle)
    large = tuple(
        replace(subtask, operators=(state,)) if subtask.vertex_id == "count" else subtask
        for subtask in metadata.subtasks
    )
    monkeypatch.setattr(deploy_size.check_size, "__defaults__", (90_000,))
    graph, start = normalize(word_count()), replace(metadata, subtasks=large)
    assert "more task managers" in start_problem(graph, start, (2,))
    assert not start_problem(graph, start, (2, 2))
    assert not start_problem(graph, start, (1,)), "the job waits for slots, and there may be more of them then"
    assert not start_problem(graph, start, ())
    assert not start_problem(graph, metadata, (2,))


def test_splits_whose_names_fit_into_no_message_fail_the_job_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request would break the control stream of its task manager, for every job."""
    checkpoint, metadata = snapshot()
    unread = tuple(SplitState(f"{number}-{'x' * 100}", 0, 9) for number in range(1_000))
    source = source_state("read", 0, unread, complete=False)
    subtasks = tuple(
        replace(known, operators=source.operators) if (known.vertex_id, known.subtask) == ("read", 0) else known
        for known in metadata.subtasks
    )
    large = replace(metadata, subtasks=subtasks)
    monkeypatch.setattr(deploy_size.check_known, "__defaults__", (90_000,))
    driver = Driver()
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (checkpoint,), large, 2).request)
    assert not driver.sent(DiscoverSplits)
    assert "the 1,001 known files, or other splits, of source 'read' are 0.1 MB" in driver.result().error
    assert driver.result().keep_files
    monkeypatch.setattr(deploy_size.check_known, "__defaults__", (190_000,))
    driver = Driver()
    driver.deploy(driver.recover(AttemptRecord(attempt=1), (checkpoint,), large, 2).request)
    assert driver.sent(DiscoverSplits)


@pytest.mark.parametrize("files", [0, 3])
@pytest.mark.parametrize("name", ["a", "\U0001f6aa" * 20])
def test_the_size_of_a_request_for_splits_is_never_underestimated(name: str, files: int) -> None:
    handles = (StateHandle(path="file:///x", checksum="sha256:" + "0" * 64, size_bytes=5),) * files
    body = DiscoverSplits(attempt(), "read", (name,) * 2_000, 1, handles)
    needed = len(encode(body)) + deploy_size.ENVELOPE_BYTES
    deploy_size.check_known(body, needed)
    with pytest.raises(deploy_size.DeployTooLarge, match="message"):
        deploy_size.check_known(body, needed - 1)


@pytest.mark.parametrize("size", [10, 5_000, 60_000])
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (PythonTransform, "function"),
        (KeyedProcess, "function"),
        (ForeachBatchSink, "function"),
        (PythonSource, "source"),
        (PythonSink, "sink"),
    ],
)
def test_the_size_of_a_deploy_is_never_underestimated(kind: Any, field: str, size: int) -> None:
    """Whatever passes the quick look fits."""
    graph = word_count()
    code = Operator(id="code", kind=kind(**{field: b"x" * size}))
    vertex = replace(graph.vertices[0], operators=(*graph.vertices[0].operators, code))
    handle = StateHandle(inline=b"y" * 10)
    state = SubtaskState(operators=(OperatorState(operator_id="counts", handle=handle),))
    coded = replace(graph, vertices=(vertex, graph.vertices[1]))
    deploy = Deploy(attempt(), (state,), layout=layout(coded, *[Participant("tm-a", "a:1")] * 2))
    needed = len(encode(deploy)) + deploy_size.ENVELOPE_BYTES
    deploy_size.check_size(deploy, needed)
    with pytest.raises(deploy_size.DeployTooLarge, match="message"):
        deploy_size.check_size(deploy, needed - 1)
