"""A watcher that gets changes has the same statuses as one that gets them whole, whenever it reads them."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st
from lockgate_coordinator.runtime.watch import Watcher, WatchHub
from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import (
    CompletedCheckpoint,
    JobBacklog,
    JobEvent,
    JobEventKind,
    JobState,
    JobStatus,
    JobUpdate,
    OperatorStatus,
    StatusChange,
    StorageTrouble,
    SubtaskLoad,
    SubtaskStatusView,
)
from lockgate_proto.status_changes import change_between, changed

LOADS = st.none() | st.builds(SubtaskLoad, st.integers(0, 2), lag_ms=st.integers(0, 1), has_lag=st.booleans())
SUBTASKS = st.builds(SubtaskStatusView, st.just("v"), st.integers(0, 3), st.sampled_from(["a", "b"]), load=LOADS)
TEXTS = st.sampled_from(["", "x"])
MAYBE = st.none() | st.integers(0, 2)
VALUES = {
    "state": st.sampled_from(JobState),
    "message": TEXTS,
    "attempt": st.integers(0, 2),
    "operators": st.lists(st.builds(OperatorStatus, TEXTS, records_in=st.integers(0, 2)), max_size=2).map(tuple),
    "subtasks": st.lists(SUBTASKS, max_size=4).map(tuple),
    "last_checkpoint": st.none() | st.builds(CompletedCheckpoint, st.integers(0, 2)),
    "storage_trouble": st.none() | st.builds(StorageTrouble, st.integers(0, 2), TEXTS),
    "records_read": MAYBE,
    "backlog": st.none() | st.builds(JobBacklog, MAYBE),
}
EVENT = JobEvent(JobEventKind.STATE_CHANGED)


class Reader:
    """Reads as a client does, from bytes."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.kinds: list[type] = []
        self.status: JobStatus | None = None

    def read(self) -> JobStatus | None:
        """Everything that has come."""
        while (shared := self.watcher.take()) is not None:
            update = decode(JobUpdate, encode(shared.make())).update
            self.kinds.append(type(update))
            if isinstance(update, StatusChange):
                self.status = changed(self.status, update)
            elif isinstance(update, JobStatus):
                self.status = update
        return self.status


@st.composite
def next_status(draw: st.DrawFn, before: JobStatus) -> JobStatus:
    """Some fields are other ones, or subtasks in the same places."""
    names = draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=3))
    after = replace(before, **{name: draw(VALUES[name]) for name in sorted(names)})
    if after.subtasks and draw(st.booleans()):
        index = draw(st.integers(0, len(after.subtasks) - 1))
        other = draw(st.one_of(SUBTASKS, LOADS.map(lambda load: replace(after.subtasks[index], load=load))))
        after = replace(after, subtasks=(*after.subtasks[:index], other, *after.subtasks[index + 1 :]))
    return after


@given(st.data())
def test_changes_make_the_same_statuses_as_whole_ones(data: st.DataObject) -> None:
    hub, status = WatchHub(), JobStatus("k")
    readers: list[tuple[Reader, bool]] = []
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["status", "status", "status", "watch", "read", "forget", "event"])):
            case "status":
                status = data.draw(next_status(status))
                hub.status(status)
            case "watch":
                changes = data.draw(st.booleans())
                status = data.draw(next_status(status))
                readers.append((Reader(hub.watch(status, changes=changes)), changes))
            case "read" if readers:
                assert data.draw(st.sampled_from(readers))[0].read() == status
            case "forget" if readers:
                hub.forget(readers.pop()[0].watcher)
            case "event":
                hub.event(EVENT)
    for reader, changes in readers:
        assert reader.read() == status
        assert reader.kinds[0] is JobStatus, "the first is a whole one"
        assert changes or StatusChange not in reader.kinds


@given(st.data())
def test_a_change_makes_one_status_into_the_other(data: st.DataObject) -> None:
    before = data.draw(next_status(JobStatus("k")))
    after = data.draw(next_status(before))
    change = change_between(before, after)
    if change is None:
        assert before.subtasks != after.subtasks
    else:
        assert changed(before, decode(StatusChange, encode(change))) == after
        assert len(change.subtasks) <= len(after.subtasks)


def test_every_field_of_a_status_is_among_the_changes() -> None:
    names = {field.name for field in fields(JobStatus)} - {"subtasks"}
    before = JobStatus()
    after = JobStatus(**{field.name: object() for field in fields(JobStatus)} | {"subtasks": ()})  # type: ignore[arg-type]
    change = change_between(before, after)
    assert change is not None
    assert set(change.fields) == names
    assert changed(before, change) == after
