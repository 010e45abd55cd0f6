"""No kind of event pushes another out."""

from __future__ import annotations

from lockgate_common.kept_events import KEPT_OF_A_KIND, MOST_EVENTS, KeptEvents
from lockgate_proto.messages import JobEvent, JobEventKind

COMPLETED, ABORTED = JobEventKind.CHECKPOINT_COMPLETED, JobEventKind.CHECKPOINT_ABORTED
TAKEOVER = (
    JobEvent(JobEventKind.LEADER_LOSS_DETECTED, token=2),
    JobEvent(JobEventKind.LEADER_GRANTED, token=2),
    JobEvent(JobEventKind.JOB_RECOVERED, token=2),
    JobEvent(JobEventKind.ATTEMPT_DEPLOYED, attempt=5, token=2),
    JobEvent(JobEventKind.FIRST_RECORD, attempt=5, token=2),
    JobEvent(COMPLETED, attempt=5, checkpoint_id=1, token=2),
)


def test_a_takeover_with_its_first_checkpoint_outlives_hours_of_checkpoints() -> None:
    kept: KeptEvents[JobEvent] = KeptEvents()
    for event in TAKEOVER:
        assert kept.add(event, event) is None
    often = [JobEvent((COMPLETED, ABORTED)[n % 2], attempt=5, checkpoint_id=n, token=2) for n in range(2, 20_000)]
    for event in often:
        kept.add(event, event)
    found = list(kept)
    assert found[: len(TAKEOVER)] == list(TAKEOVER)
    newest = often[-2 * KEPT_OF_A_KIND :]
    assert found[-len(newest) :] == newest
    assert len(found) == len(TAKEOVER) + 1 + len(newest), "one more is the first that was aborted"


def test_a_job_that_restarts_again_and_again_keeps_the_takeover_of_its_leader() -> None:
    kept: KeptEvents[JobEvent] = KeptEvents(10)
    for event in TAKEOVER:
        kept.add(event, event)
    for attempt in range(6, 1_000):
        for kind in (JobEventKind.ATTEMPT_FAILED, JobEventKind.STATE_CHANGED, JobEventKind.ATTEMPT_DEPLOYED):
            kept.add(JobEvent(kind, attempt=attempt, token=2), JobEvent(kind, attempt=attempt, token=2))
    assert list(kept)[:3] == list(TAKEOVER[:3])
    assert [event.attempt for event in kept if event.kind is JobEventKind.ATTEMPT_DEPLOYED] == list(range(990, 1_000))


def test_what_makes_room_is_returned() -> None:
    kept: KeptEvents[str] = KeptEvents(2)
    event = JobEvent(ABORTED, attempt=1)
    assert [kept.add(event, name) for name in ("first", "b", "c", "d")] == [None, None, None, "b"]
    assert list(kept) == ["first", "c", "d"]


def test_another_leader_begins_anew_with_the_same_attempt() -> None:
    kept: KeptEvents[str] = KeptEvents(1)
    for token, name in ((1, "first"), (1, "second"), (2, "adopted"), (2, "next")):
        kept.add(JobEvent(COMPLETED, attempt=4, token=token), name)
    assert list(kept) == ["adopted", "next"]


def test_its_size_is_bounded() -> None:
    kept: KeptEvents[int] = KeptEvents()
    number = 0
    for attempt in range(2 * KEPT_OF_A_KIND):
        for kind in JobEventKind:
            for _ in range(3):
                number += 1
                kept.add(JobEvent(kind, attempt=attempt), number)
    found = list(kept)
    assert len(found) == MOST_EVENTS
    assert found == sorted(found)
