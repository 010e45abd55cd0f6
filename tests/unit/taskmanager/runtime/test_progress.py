"""Progress: what a task manager tells the next leader of a running attempt."""

from __future__ import annotations

from lockgate_proto.messages import (
    AssignSplits,
    AttemptGone,
    AttemptId,
    CheckpointCommitted,
    OperatorCounters,
    SplitState,
    SubtaskId,
    SubtaskPhase,
    SubtaskProgress,
    SubtaskReport,
)
from lockgate_taskmanager.runtime.progress import MAX_ASSIGNED_BYTES, Progress

ATTEMPT = AttemptId("job", "run", 3)
READ, COUNT = SubtaskId(ATTEMPT, "read", 0), SubtaskId(ATTEMPT, "count", 1)


def assign(*names: str, complete: bool = False, to: SubtaskId = READ) -> AssignSplits:
    return AssignSplits(to, tuple(SplitState(name, 0, 9) for name in names), complete)


def registered(progress: Progress) -> dict[str, SubtaskProgress]:
    message = progress.message({})
    assert message is not None
    assert message.attempt == ATTEMPT
    return {item.vertex_id: item for item in message.subtasks}


def test_it_has_the_last_phase_and_commit_and_every_assignment_once() -> None:
    progress = Progress(ATTEMPT, (READ, COUNT))
    assert registered(progress) == {"read": SubtaskProgress("read", 0), "count": SubtaskProgress("count", 1)}
    progress.reported(SubtaskReport(READ, SubtaskPhase.SUBTASK_RUNNING))
    progress.reported(SubtaskReport(COUNT, SubtaskPhase.SUBTASK_RUNNING))
    progress.reported(SubtaskReport(COUNT, SubtaskPhase.SUBTASK_EXHAUSTED))
    progress.reported(CheckpointCommitted(COUNT, 6, has_output=True))
    progress.reported(CheckpointCommitted(COUNT, 7))
    progress.reported(AttemptGone(ATTEMPT))
    progress.assigned(assign())
    assert (registered(progress)["read"].has_assigned, registered(progress)["read"].assigned) == (True, ())
    progress.assigned(assign("a", "b"))
    progress.assigned(assign("a", "b"))
    progress.assigned(assign("c", complete=True))
    read, count = registered(progress)["read"], registered(progress)["count"]
    assert (read.phase, [split.split for split in read.assigned], read.complete) == (
        SubtaskPhase.SUBTASK_RUNNING,
        ["a", "b", "c"],
        True,
    )
    assert (count.phase, count.committed_id, count.has_assigned) == (SubtaskPhase.SUBTASK_EXHAUSTED, 7, False)
    assert (count.has_output, read.has_output) == (True, False)


def test_it_has_the_newest_counters() -> None:
    """Without them a leader that adopts the attempt would show those of the last snapshot until a heartbeat."""
    counters = (OperatorCounters("source", 0, 7),)
    message = Progress(ATTEMPT, (READ, COUNT)).message({READ: counters})
    assert message is not None
    assert [item.counters for item in message.subtasks] == [counters, ()]


def test_progress_covers_no_other_subtasks() -> None:
    progress = Progress(ATTEMPT, (READ,))
    progress.reported(SubtaskReport(COUNT, SubtaskPhase.SUBTASK_RUNNING))
    progress.assigned(assign("a", to=COUNT))
    assert registered(progress) == {"read": SubtaskProgress("read", 0)}


def test_more_splits_than_fit_into_a_registration_are_not_reported() -> None:
    progress = Progress(ATTEMPT, (READ,))
    name = "x" * 1_000
    for number in range(MAX_ASSIGNED_BYTES // 1_050):
        progress.assigned(assign(f"{name}{number:04}"))
        progress.assigned(assign(f"{name}{number:04}"))  # the same again is no more
    assert len(registered(progress)["read"].assigned) == MAX_ASSIGNED_BYTES // 1_050
    progress.assigned(assign(*(f"{name}-{number}" for number in range(100))))
    assert progress.message({}) is None
