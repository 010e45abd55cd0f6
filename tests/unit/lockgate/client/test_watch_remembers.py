"""A watch that is opened again leaves out what the leader repeats, however many events lie between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from lockgate_common.kept_events import KeptEvents
from lockgate_proto.messages import JobEvent, JobEventKind, JobState, JobStatus, JobUpdate, LeaderRecord

from lockgate.client.deadline import Deadline
from lockgate.client.watch import JobWatch, WatchClient

GRANTED = JobEvent(JobEventKind.LEADER_GRANTED, token=1)
OFTEN = [JobEvent(JobEventKind.CHECKPOINT_COMPLETED, attempt=1, checkpoint_id=n, token=1) for n in range(12_000)]


class _Stream:
    def __init__(self, updates: list[JobStatus | JobEvent]) -> None:
        self._updates = updates

    def __iter__(self) -> Iterator[JobUpdate]:
        return (JobUpdate(update=update) for update in self._updates)

    def cancel(self) -> None:
        """Nothing runs."""


class _Leader:
    """Its first stream breaks after all of the events; the next one begins with those that it has kept."""

    def __init__(self) -> None:
        kept: KeptEvents[JobEvent] = KeptEvents()
        for event in (GRANTED, *OFTEN):
            kept.add(event, event)
        ended = JobStatus("k", state=JobState.FINISHED)
        self._streams = [_Stream([GRANTED, *OFTEN]), _Stream([ended, *kept])]

    def open_watch(self, _key: str, _leader: LeaderRecord) -> _Stream:
        return self._streams.pop(0)

    def locate(self, _deadline: Deadline) -> LeaderRecord:
        return LeaderRecord(1, "h:1")

    def locate_again(self, _deadline: Deadline) -> LeaderRecord:
        return LeaderRecord(1, "h:1")

    def forget_leader(self, _hint: str = "", _refused_by: str = "") -> None:
        """It is the only one."""

    def pause(self, _seconds: float) -> None:
        """It is there."""


def test_each_event_is_reported_once() -> None:
    watch = JobWatch(cast(WatchClient, cast(Any, _Leader())), "k", None, 60_000)
    found = [update for update in watch if isinstance(update, JobEvent)]
    assert found == [GRANTED, *OFTEN]
    assert len(watch._seen) < 2_000
