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
OTHER = SubtaskId(ATTEMPT, "read", 1)


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


def test_while_a_running_subtask_has_splits_that_were_not_noted_there_is_no_adoption() -> None:
    """Another subtask restarts alone, so there is room again; the next leader would assign the missing split twice."""
    progress = Progress(ATTEMPT, (READ, OTHER))
    full = [f"{number:05}{'x' * 1_000}" for number in range(MAX_ASSIGNED_BYTES // 1_000)]
    progress.assigned(assign(*full))
    progress.assigned(assign("late", to=OTHER))
    progress.forget([READ])
    assert progress.message({}) is None
    progress.assigned(assign("later", to=OTHER))
    assert progress.message({}) is None
    progress.forget([OTHER])
    assert progress.message({}) is not None


def test_splits_that_restart_with_their_subtask_are_not_missing() -> None:
    progress = Progress(ATTEMPT, (READ, OTHER))
    progress.assigned(assign("small", to=OTHER))
    full = [f"{number:05}{'x' * 1_000}" for number in range(MAX_ASSIGNED_BYTES // 1_000 + 1)]
    progress.assigned(assign(*full))
    progress.assigned(assign("small", to=OTHER))  # the same again is no more
    assert progress.message({}) is None
    progress.forget([READ])
    assert [split.split for split in registered(progress)["read"].assigned] == ["small"]
