"""What a watcher gets in place of a whole status, and what does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_proto.codec import encode
from lockgate_proto.messages import JobStatus, StatusChange, SubtaskChange, SubtaskLoad, SubtaskStatusView
from lockgate_proto.status_changes import MisfittingChange, change_between, changed

RUNNING = tuple(
    SubtaskStatusView("count", number, f"tm-{number}", "RUNNING", SubtaskLoad(100), 1) for number in range(10_000)
)
STATUS = JobStatus("k", attempt=1, subtasks=RUNNING, message="waiting")


def test_a_change_of_many_subtasks_is_as_large_as_what_has_changed() -> None:
    after = replace(
        STATUS, message="", checkpoints_completed=3, subtasks=(*RUNNING[:-1], replace(RUNNING[-1], load=None))
    )
    change = change_between(STATUS, after)
    assert change == StatusChange(
        ("message", "checkpoints_completed"),
        JobStatus(checkpoints_completed=3),
        (SubtaskChange(9_999, after.subtasks[-1]),),
    )
    assert len(encode(change)) < 100


def test_of_a_subtask_that_is_busier_only_the_load_is_sent() -> None:
    busier = replace(STATUS, subtasks=tuple(replace(item, load=SubtaskLoad(200)) for item in RUNNING))
    change = change_between(STATUS, busier)
    assert change is not None
    assert change.subtasks[7] == SubtaskChange(7, SubtaskLoad(200))
    assert len(encode(change)) < len(encode(busier)) / 2
    assert changed(STATUS, change) == busier


@pytest.mark.parametrize(
    "subtasks", [RUNNING[:-1], tuple(replace(item, attempt=2) for item in RUNNING)], ids=["fewer", "another attempt"]
)
def test_another_attempt_is_sent_whole(subtasks: tuple[SubtaskStatusView, ...]) -> None:
    assert change_between(STATUS, replace(STATUS, subtasks=subtasks)) is None


def test_nothing_is_a_change_too() -> None:
    change = change_between(STATUS, replace(STATUS, subtasks=(*RUNNING,)))
    assert change == StatusChange()
    assert changed(STATUS, change) == STATUS


def test_a_change_without_a_status_does_not_fit() -> None:
    with pytest.raises(MisfittingChange, match="before the first status"):
        changed(None, StatusChange())


@pytest.mark.parametrize("index", [-1, 10_000])
def test_a_change_of_a_subtask_that_is_not_there_does_not_fit(index: int) -> None:
    with pytest.raises(MisfittingChange, match=f"names subtask {index} of 10000"):
        changed(STATUS, StatusChange((), None, (SubtaskChange(index, SubtaskLoad()),)))


def test_what_only_a_newer_version_knows_is_left_out() -> None:
    """A field of JobStatus, and a third way to change a subtask."""
    change = StatusChange(("weather", "attempt", "subtasks"), JobStatus(attempt=2), (SubtaskChange(3),))
    assert changed(STATUS, change) == replace(STATUS, attempt=2)
