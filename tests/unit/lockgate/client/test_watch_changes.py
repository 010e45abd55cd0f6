"""A watch asks for changes and gives whole statuses; a new stream begins with a whole one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from lockgate_proto.messages import (
    JobEvent,
    JobEventKind,
    JobState,
    JobStatus,
    JobUpdate,
    LeaderRecord,
    StatusChange,
    SubtaskChange,
    SubtaskLoad,
    SubtaskStatusView,
)

from lockgate.client.watch import JobWatch, WatchClient

RUNNING = JobStatus("k", state=JobState.RUNNING, subtasks=tuple(SubtaskStatusView("v", index) for index in range(2)))
BUSY = replace(RUNNING, subtasks=(RUNNING.subtasks[0], SubtaskStatusView("v", 1, load=SubtaskLoad(900))))
BUSIER = StatusChange((), None, (SubtaskChange(1, SubtaskLoad(900)),))
FINISHED = StatusChange(("state",), JobStatus(state=JobState.FINISHED))
EVENT = JobEvent(JobEventKind.STATE_CHANGED)


class _Stream:
    def __init__(self, updates: Sequence[JobStatus | JobEvent | StatusChange | None]) -> None:
        self._updates = updates

    def __iter__(self) -> Iterator[JobUpdate]:
        return (JobUpdate(update=update) for update in self._updates)

    def cancel(self) -> None:
        """Nothing runs."""


class _Leaders:
    """One stream after another."""

    def __init__(self, *streams: Sequence[JobStatus | JobEvent | StatusChange | None]) -> None:
        self.streams = [_Stream(updates) for updates in streams]

    def open_watch(self, _key: str, _leader: LeaderRecord) -> _Stream:
        return self.streams.pop(0)

    def locate(self, _deadline: Any) -> LeaderRecord:
        return LeaderRecord(1, "h:1")

    locate_again = locate

    def forget_leader(self, _hint: str = "", _refused_by: str = "") -> None:
        """It is the only one."""

    def pause(self, _seconds: float) -> None:
        """It is there."""


def seen(*streams: Sequence[JobStatus | JobEvent | StatusChange | None]) -> list[JobStatus | JobEvent]:
    leaders = _Leaders(*streams)
    found = list(JobWatch(cast(WatchClient, cast(Any, leaders)), "k", None, 60_000))
    assert leaders.streams == []
    return found


def test_changes_come_as_whole_statuses() -> None:
    found = seen([RUNNING, EVENT, BUSIER, None, FINISHED])
    assert found == [RUNNING, EVENT, BUSY, replace(BUSY, state=JobState.FINISHED)]


def test_a_new_stream_begins_with_a_whole_status_that_the_old_ones_changes_are_not_in() -> None:
    found = seen([RUNNING, BUSIER], [replace(RUNNING, token=2), FINISHED])
    assert found == [RUNNING, BUSY, replace(RUNNING, token=2), replace(RUNNING, token=2, state=JobState.FINISHED)]


def test_a_change_without_a_status_or_of_another_one_opens_a_new_stream() -> None:
    other = StatusChange((), None, (SubtaskChange(7, SubtaskLoad()),))
    assert seen([BUSIER, FINISHED], [RUNNING, other, FINISHED], [BUSY, FINISHED]) == [
        RUNNING,
        BUSY,
        replace(BUSY, state=JobState.FINISHED),
    ]
