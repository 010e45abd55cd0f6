"""Events of a subtask get ids and causes; a task manager tells the leader those of one job."""

from __future__ import annotations

from lockgate_common.story_log import StoryLog
from lockgate_proto.messages import (
    AttemptId,
    Barrier,
    FailureCause,
    StoryRequest,
    SubtaskId,
    SubtaskState,
)
from lockgate_taskmanager.barrier.events import Aligned
from lockgate_taskmanager.runtime.stories import KEPT_RUNS, Stories, SubtaskStory
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on
from lockgate_taskmanager.task.machine import LifeCycle

ATTEMPT = AttemptId("job", "run", 2)
R = LifeCycle.RUNNING


class Subtask:
    """The story of count[1], and its log."""

    def __init__(self) -> None:
        self.log: StoryLog = Stories("tm-0", "abcdef").of(ATTEMPT)
        self.story = SubtaskStory(self.log, SubtaskId(ATTEMPT, "count", 1), "tm-0.abcd-0")

    def handled(self, event: on.Event, *effects: do.Effect, cause_id: str = "", after: LifeCycle = R) -> str:
        return self.story.handled(event, cause_id, effects, R, after)

    def cause(self) -> str:
        return self.log.lines()[-1].cause_id


def test_a_barrier_brings_its_cause_along() -> None:
    subtask = Subtask()
    barrier = Barrier(7, cause_id="tm-1.ffff-3")
    event_id = subtask.handled(Aligned(barrier, 0), do.TakeSnapshot(7))
    (line,) = subtask.log.lines()
    assert (line.id, line.cause_id) == (event_id, "tm-1.ffff-3") == ("tm-0.abcd-1", "tm-1.ffff-3")
    assert (line.process, line.place, line.attempt) == ("tm-0", "count[1]", 2)
    assert line.event == "barrier 7 has arrived on every input channel"
    assert line.effects == ("freeze the state for checkpoint 7",)
    subtask.handled(on.TriggerReceived(ATTEMPT, Barrier(8)))
    assert subtask.cause() == "leader", "one of an older version says no more"


def test_an_upload_is_caused_by_the_event_that_started_it() -> None:
    subtask = Subtask()
    seventh = subtask.handled(on.SnapshotTaken(7, 10), do.StartUpload(7), cause_id="tm-0.abcd-1")
    eighth = subtask.handled(on.SnapshotTaken(8, 10), do.StartUpload(8), cause_id="tm-0.abcd-2")
    subtask.handled(on.UploadDone(7, SubtaskState(), 3))
    assert subtask.cause() == seventh
    subtask.handled(on.UploadFailed(8, "no space"))
    assert subtask.cause() == eighth


def test_an_element_without_effects_leaves_no_line() -> None:
    subtask = Subtask()
    for _ in range(10):
        subtask.handled(on.ElementProcessed())
    assert subtask.log.lines() == ()


def test_a_change_of_state_is_in_the_story() -> None:
    subtask = Subtask()
    failed = on.Failed(FailureCause.PEER_LOST, "the channel broke")
    subtask.handled(failed, do.Close(), after=LifeCycle.FAILING)
    (line,) = subtask.log.lines()
    assert (line.change, line.cause_id) == ("RUNNING -> FAILING", "peer")


def test_the_leader_gets_the_newest_lines_of_one_run() -> None:
    stories = Stories("tm-0", "abcdef")
    for number in range(5):
        stories.add(ATTEMPT, f"event {number}", "leader")
    stories.add(AttemptId("other", "run", 1), "of another job", "leader")
    stories.add(AttemptId("job", "later-run", 1), "of another run", "leader")
    answer = stories.answer(StoryRequest(9, "job", "run", 3))
    assert (answer.request, answer.cut) == (9, True)
    assert [line.event for line in answer.lines] == ["event 2", "event 3", "event 4"]
    assert not stories.answer(StoryRequest(9, "job", "run", 5)).cut
    assert stories.answer(StoryRequest(10, "unknown", "run", 5)).lines == ()


def test_runs_that_were_not_used_for_longest_are_forgotten() -> None:
    stories = Stories("tm-0", "abcdef")
    for number in range(KEPT_RUNS + 1):
        stories.add(AttemptId(f"job-{number}", "run", 1), "an event", "leader")
        stories.add(AttemptId("job-1", "run", 1), "used", "leader")
    known = [key for key in ("job-0", "job-1", "job-2") if stories.answer(StoryRequest(1, key, "run", 1)).lines]
    assert known == ["job-1", "job-2"]


def test_a_process_that_is_started_again_gives_no_id_twice() -> None:
    first, second = Stories("tm-0", "abcdef"), Stories("tm-0", "fedcba")
    assert first.add(ATTEMPT, "an event", "leader") != second.add(ATTEMPT, "an event", "leader")
