"""Checkpoints and failovers of a job as spans."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.job import effects, trace
from lockgate_coordinator.job.trace import Build, JobTracer, Span, Starts
from lockgate_proto.messages import AcknowledgeCheckpoint, JobEvent, JobEventKind

from tests.unit.coordinator.driver import Driver

KIND = JobEventKind


class Traced:
    """A tracer, and the traces that it has made."""

    def __init__(self) -> None:
        self.builds: list[Build] = []
        self.tracer = JobTracer("job", self.builds.append)

    def hear(self, kind: JobEventKind, at_ms: int, text: str = "", attempt: int = 2, parts: object = None) -> None:
        event = JobEvent(kind, at_ms * 1_000, attempt, checkpoint_id=7, token=3, text=text)
        self.tracer.heard(event, parts)  # type: ignore[arg-type]

    def traces(self) -> list[Sequence[Span]]:
        return [build() for build in self.builds]


def _details(*took_ms: int) -> SnapshotDetails:
    found = SnapshotDetails(7, ("tm-a", "tm-b"))
    found.triggered_unix_ms = 1_000
    for index, each in enumerate(took_ms):
        found.add(("count", index), AcknowledgeCheckpoint(sync_us=5, async_ms=6, alignment_ms=7), each)
    return found


def _steps(spans: Sequence[Span]) -> list[tuple[str, int, int, str]]:
    return [(span.name, span.start_us // 1_000, span.end_us // 1_000, spans[span.parent].name) for span in spans[1:]]


def test_a_checkpoint_is_a_trace_with_a_span_for_each_subtask() -> None:
    traced = Traced()
    traced.hear(KIND.CHECKPOINT_COMPLETED, 1_100, parts=_details(40, 70))
    ((root, *rest),) = traced.traces()
    assert (root.name, root.start_us, root.end_us, root.error) == ("checkpoint", 1_000_000, 1_100_000, "")
    assert root.attributes["lockgate.checkpoint"] == 7
    assert [(span.name, span.end_us - span.start_us) for span in rest] == [
        ("snapshot count", 70_000),
        ("snapshot count", 40_000),
        ("persist", 30_000),
    ]
    slowest = rest[0].attributes
    assert (slowest["lockgate.subtask"], slowest["lockgate.task_manager"], slowest["lockgate.sync_us"]) == (
        1,
        "tm-b",
        5,
    )


def test_an_aborted_checkpoint_says_why() -> None:
    traced = Traced()
    traced.hear(KIND.CHECKPOINT_ABORTED, 1_500, "not acknowledged in time by count-1", parts=_details(40))
    ((root, *rest),) = traced.traces()
    assert (root.error, len(rest)) == ("not acknowledged in time by count-1", 1)


def test_only_the_slowest_subtasks_of_a_huge_job_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "MOST_SUBTASKS", 2)
    traced = Traced()
    traced.hear(KIND.CHECKPOINT_COMPLETED, 1_100, parts=_details(*range(5)))
    (spans,) = traced.traces()
    assert spans[0].attributes["lockgate.left_out"] == 3
    assert [span.attributes["lockgate.subtask"] for span in spans if span.name == "snapshot count"] == [4, 3]


def test_a_takeover_is_a_trace_of_its_steps_and_starts() -> None:
    traced = Traced()
    for kind, at_ms in ((KIND.LEADER_LOSS_DETECTED, 10), (KIND.LEADER_GRANTED, 14), (KIND.JOB_RECOVERED, 20)):
        traced.hear(kind, at_ms)
    starts = Starts(5_000, {("read", 0): 5_030, ("count", 0): 5_050}, lambda key: f"tm of {key[0]}")
    traced.hear(KIND.ATTEMPT_DEPLOYED, 80, parts=starts)
    traced.hear(KIND.FIRST_RECORD, 90)
    assert traced.traces() == []
    traced.hear(KIND.CHECKPOINT_COMPLETED, 120)
    traced.hear(KIND.CHECKPOINT_COMPLETED, 220)
    (spans,) = traced.traces()
    assert (spans[0].name, spans[0].start_us, spans[0].end_us, spans[0].error) == ("failover", 10_000, 120_000, "")
    assert spans[0].attributes["lockgate.cause"] == "leader_loss_detected"
    assert _steps(spans) == [
        ("take leadership", 10, 14, "failover"),
        ("recover the job", 14, 20, "failover"),
        ("deploy", 20, 80, "failover"),
        ("start count", 30, 80, "deploy"),
        ("start read", 30, 60, "deploy"),
        ("first record", 80, 90, "failover"),
        ("first checkpoint", 90, 120, "failover"),
    ]
    assert spans[4].attributes["lockgate.task_manager"] == "tm of count"


def test_a_lost_task_manager_is_a_failover_and_a_late_checkpoint_does_not_end_it() -> None:
    traced = Traced()
    traced.hear(KIND.TASK_MANAGER_LOST, 10, "tm-a", attempt=1)
    traced.hear(KIND.CHECKPOINT_COMPLETED, 15, attempt=1)
    traced.hear(KIND.ATTEMPT_DEPLOYED, 50)
    traced.hear(KIND.CHECKPOINT_COMPLETED, 70)
    (spans,) = traced.traces()
    assert [span.name for span in spans] == ["failover", "deploy", "first checkpoint"]
    assert (spans[0].attributes["lockgate.cause"], spans[0].attributes["lockgate.text"]) == (
        "task_manager_lost",
        "tm-a",
    )


def test_a_failure_on_top_of_another_is_a_part_of_it_until_the_attempt_runs() -> None:
    traced = Traced()
    traced.hear(KIND.ATTEMPT_FAILED, 10, "first")
    traced.hear(KIND.TASK_MANAGER_LOST, 20)
    traced.hear(KIND.ATTEMPT_DEPLOYED, 50)
    traced.hear(KIND.ATTEMPT_FAILED, 60, "second")
    traced.hear(KIND.STATE_CHANGED, 70, "FAILED")
    first, second = traced.traces()
    assert [span.name for span in first] == ["failover", "end the attempt", "deploy"]
    assert (first[0].error, second[0].error) == ("the next failure: second", "the job is FAILED")


def test_each_failure_of_a_job_that_never_runs_ends_the_failover_before_it() -> None:
    traced = Traced()
    traced.hear(KIND.JOB_RECOVERED, 5, attempt=4)
    for attempt in range(5, 1_005):
        traced.hear(KIND.ATTEMPT_FAILED, attempt * 10, f"failure {attempt}", attempt=attempt)
    assert len(traced.builds) == 1_000
    assert len(traced.tracer._failover) == 1
    (root,) = traced.traces()[1]
    assert (root.start_us, root.end_us) == (50_000, 60_000)
    assert (root.attributes["lockgate.text"], root.error) == ("failure 5", "the next failure: failure 6")


def test_a_failover_is_bounded_whatever_is_reported() -> None:
    traced = Traced()
    for at_ms in range(1_000):
        traced.hear(KIND.TASK_MANAGER_LOST, at_ms)
        traced.hear(KIND.FIRST_RECORD, at_ms)
    assert len(traced.tracer._failover) <= trace.MOST_EVENTS
    assert max(map(len, traced.traces())) <= trace.MOST_EVENTS


def test_a_job_that_only_runs_has_no_failover_and_nobody_may_want_traces() -> None:
    traced = Traced()
    for kind in (KIND.ATTEMPT_DEPLOYED, KIND.FIRST_RECORD, KIND.CHECKPOINT_COMPLETED):
        traced.hear(kind, 10)
    traced.hear(KIND.STATE_CHANGED, 20, "FINISHED")
    assert traced.traces() == []
    JobTracer("job", None).heard(JobEvent(KIND.TASK_MANAGER_LOST))


def test_the_job_master_hands_over_what_traces_need() -> None:
    driver = Driver().run()
    deployed = [emit for emit in driver.all if isinstance(emit, effects.Emit) and isinstance(emit.parts, Starts)]
    assert [emit.event.kind for emit in deployed] == [KIND.ATTEMPT_DEPLOYED]
    assert len(deployed[0].parts.started_ms) == 4  # type: ignore[union-attr]
    driver.complete()
    driver.trigger()
    driver.tick(600_000)
    taken = [emit for emit in driver.all if isinstance(emit, effects.Emit) and isinstance(emit.parts, SnapshotDetails)]
    assert {emit.event.kind for emit in taken} >= {KIND.CHECKPOINT_COMPLETED, KIND.CHECKPOINT_ABORTED}
    assert [len(emit.parts) for emit in taken[:2]] == [4, 0]  # type: ignore[arg-type]
