"""Events of a JobMaster get ids and causes from the shell around it; the messages that they make name them."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest
from lockgate_coordinator.job import effects as do
from lockgate_coordinator.job import events as ev
from lockgate_coordinator.job.story_text import effects_of, event_text
from lockgate_coordinator.runtime.job_story import KEPT_AFTER_END, JobStory, caused
from lockgate_proto import messages as m

ATTEMPT = m.AttemptId("job", "run", 1)
STATE = m.JobEventKind.STATE_CHANGED


def _story() -> JobStory:
    return JobStory("coordinator-0", 3, itertools.count(1))


def _said(report: ev.Report) -> ev.TaskManagerReport:
    return ev.TaskManagerReport("tm-0", report)


def _state(state: m.JobState) -> do.Emit:
    return do.Emit(m.JobEvent(STATE, text=state.name))


def test_an_event_names_its_cause_and_its_effects() -> None:
    story = _story()
    trigger = do.Send("tm-0", m.TriggerCheckpoint(ATTEMPT, 4))
    first = story.handled(ev.CheckpointIdPersisted(4), "c3-0", [trigger, do.WakeAt(7)])
    (line,), remarks = story.lines()
    assert (first, line.id, line.cause_id, line.process) == ("c3-1", "c3-1", "c3-0", "coordinator-0")
    assert line.event == "checkpoint id 4 is reserved in ZooKeeper"
    assert line.effects == ("tm-0: trigger checkpoint 4",)
    assert remarks == ()


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (_said(ev.Acknowledged(m.AcknowledgeCheckpoint(checkpoint_id=4, cause_id="tm-0.ab-7"))), "tm-0.ab-7"),
        (_said(ev.Gone("tm-0", m.AttemptGone(ATTEMPT, "tm-0.ab-9"))), "tm-0.ab-9"),
        (_said(ev.Reported(m.SubtaskReport(error="a task manager of an older version"))), "task manager"),
        (ev.TaskManagerLost("tm-0", "it died"), "task manager"),
        (ev.CancelRequested(), "client"),
        (ev.Suspended(), "ZooKeeper"),
        (ev.Recovered(None, (), None, 1), "leadership"),
    ],
)
def test_an_event_names_its_cause(event: ev.Event, cause: str) -> None:
    story = _story()
    story.handled(event, "", [])
    assert story.lines()[0][0].cause_id == cause


def test_an_answer_of_the_slots_is_caused_by_its_request() -> None:
    story = _story()
    asked = story.handled(ev.Recovered(None, (), None, 1), "client", [do.RequestSlots("words", 1, 2)])
    story.handled(ev.SlotsOffered("words", 1, ()), "", [do.PersistAttempt(m.AttemptRecord(1))])
    assert story.lines()[0][-1].cause_id == asked


def test_a_timer_begins_a_chain_and_names_the_event_that_set_it() -> None:
    story = _story()
    failed = story.handled(ev.TaskManagerLost("tm-0", "it died"), "", [do.WakeAt(9)])
    story.handled(ev.Tick(), "", [do.RequestSlots("words", 2, 2)])
    line = story.lines()[0][-1]
    assert (line.cause_id, line.event) == ("timer", f"a timer is due, set by {failed}")


def test_timers_and_counters_without_effects_are_not_kept() -> None:
    story = _story()
    story.handled(ev.Tick(), "", [do.WakeAt(9)])
    story.handled(_said(ev.CountersReported(())), "", [])
    assert story.lines()[0] == ()


def test_a_change_of_state_is_reported_with_the_state_before() -> None:
    story = _story()
    story.handled(ev.SlotsOffered("words", 1, ()), "", [_state(m.JobState.DEPLOYING)])
    story.handled(ev.Tick(), "", [_state(m.JobState.RUNNING), _state(m.JobState.FINISHING)])
    assert [line.change for line in story.lines()[0]] == ["DEPLOYING", "DEPLOYING -> RUNNING -> FINISHING"]


def test_an_event_that_the_machine_cannot_handle_is_in_the_story_with_its_error() -> None:
    story = _story()
    event_id = story.failed(ev.ResultPersisted(), "c3-7", RuntimeError("a mistake"))
    line = story.lines()[0][0]
    assert (line.id, line.cause_id) == (event_id, "c3-7")
    assert line.effects == ("internal error: RuntimeError: a mistake",)


def test_after_the_end_the_last_events_are_kept_with_a_remark() -> None:
    story = _story()
    for number in range(200):
        story.handled(ev.CheckpointIdPersisted(number), "c3-0", [do.PersistCheckpointId(number)])
    story.end()
    lines, remarks = story.lines()
    assert len(lines) == KEPT_AFTER_END
    assert remarks == (f"The job has ended: only the newest {KEPT_AFTER_END} of the leader's lines are kept.",)


@pytest.mark.parametrize("kind", get_args(do.ControlBody), ids=lambda kind: kind.__name__)
def test_every_message_names_its_cause_unless_it_is_advice(kind: type[do.ControlBody]) -> None:
    body = caused(kind(), "c3-5")
    assert getattr(body, "cause_id", "c3-5") == "c3-5"
    assert hasattr(body, "cause_id") is (kind not in (m.PrepareJob, m.KeepCopies))
    assert effects_of([do.Send("tm-0", body)])[0].startswith("tm-0: ")


def test_the_same_message_to_many_is_one_effect_and_states_and_timers_are_none() -> None:
    sends = [do.Send(f"tm-{number}", m.NotifyCheckpointComplete(ATTEMPT, 4)) for number in range(100)]
    lines = effects_of([*sends, _state(m.JobState.RUNNING), do.WakeAt(3), do.CleanUp()])
    assert lines == (
        "tm-0, tm-1 and 98 more: checkpoint 4 is complete: commit",
        "delete the job's records and files",
    )


def test_reports_of_task_managers_are_described_in_the_story() -> None:
    subtask = m.SubtaskId(ATTEMPT, "count", 2)
    reports = [
        ev.Reported(m.SubtaskReport(subtask, m.SubtaskPhase.SUBTASK_FAILED, error="no such file")),
        ev.Declined(m.DeclineCheckpoint(subtask, 4, "too large")),
        ev.SplitsFound(m.SplitsDiscovered(ATTEMPT, "rows", error="no such folder")),
    ]
    assert [event_text(_said(report)) for report in reports] == [
        "count[2]@1 is failed: no such file",
        "count[2]@1 declines checkpoint 4: too large",
        "the splits of rows cannot be listed: no such folder",
    ]
