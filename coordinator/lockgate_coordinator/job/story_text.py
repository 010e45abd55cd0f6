"""Describes events and effects of a JobMaster for a job's story, as text for operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from lockgate_common.amounts import counted
from lockgate_common.story_log import Outside, grouped
from lockgate_proto import messages as m

from lockgate_coordinator.job import effects as do
from lockgate_coordinator.job import events as ev

_MAX_REPORTS = 5


def event_text(event: ev.Event) -> str:  # noqa: C901  one case a kind
    """Describes an event, as a sentence without a full stop."""
    if isinstance(event, Request):
        return _request(event)
    if isinstance(event, ev.Report):
        return _report(event)
    match event:
        case ev.TaskManagerReports(reports=reports):
            more = len(reports) - _MAX_REPORTS
            return "; ".join(map(_report, reports[:_MAX_REPORTS])) + (f"; and {more} more reports" if more > 0 else "")
        case ev.TaskManagerReport(report=report):
            return event_text(report)
        case ev.Recovered(completed=completed):
            newest = completed[0].checkpoint_id if completed else 0
            return f"the job's records are read; newest snapshot: {newest or 'none'}"
        case ev.RecoveryFailed(reason):
            return f"the job's records or its snapshot cannot be read: {reason}"
        case ev.SlotsOffered(slots=slots):
            return f"{len(slots)} slots are assigned to the job"
        case ev.SlotsMissing(free_slots=free, task_managers=count):
            return f"too few slots: {free} free in {count} task managers"
        case ev.AttemptPersisted(number):
            return f"attempt {number} is recorded in ZooKeeper"
        case ev.ResultPersisted():
            return "the job's result is recorded in ZooKeeper"
        case ev.OrdersPersisted():
            return "the client's order is recorded in ZooKeeper"
        case ev.PersistFailed(kind, reason):
            return f"the record of the {kind.value} could not be written: {reason}"
        case ev.TaskManagerLost(name, reason, planned):
            return f"{name} has left: {reason}" if planned else f"{name} is lost: {reason}"
        case ev.StillRunning(name, attempt):
            return f"{name} registered and still runs attempt {attempt.attempt}"
        case ev.Suspended(reason):
            return f"ZooKeeper is not reachable: nothing new is begun{reason and f' ({reason})'}"
        case ev.Resumed():
            return "ZooKeeper is reachable again"
        case ev.Tick():
            return "a timer is due"
        case ev.CheckpointIdPersisted(number):
            return f"checkpoint id {number} is reserved in ZooKeeper"
        case ev.CheckpointIdPersistFailed(number, reason):
            return f"checkpoint id {number} could not be reserved: {reason}"
        case ev.CheckpointPersisted(checkpoint):
            return f"checkpoint {checkpoint.checkpoint_id} is recorded in ZooKeeper, so it is complete"
        case ev.CheckpointPersistFailed(number, text):
            return f"checkpoint {number} could not be recorded: {text}"
        case _:
            assert_never(event)


Request = (
    ev.CancelRequested
    | ev.SavepointRequested
    | ev.RescaleRequested
    | ev.StopRequested
    | ev.DisposalBegun
    | ev.SavepointDisposed
)
"""Requests of clients."""


def _request(event: Request) -> str:
    match event:
        case ev.CancelRequested():
            return "a client cancels the job"
        case ev.SavepointRequested():
            return "a client asks for a savepoint"
        case ev.RescaleRequested(parallelism=wanted):
            return f"a client asks for {', '.join(f'{part.vertex_id}={part.parallelism}' for part in wanted)}"
        case ev.StopRequested(drain=drain):
            return f"a client asks for a stop {'after draining ' if drain else ''}with a savepoint"
        case ev.DisposalBegun(number):
            return f"a client disposes of savepoint {number}"
        case ev.SavepointDisposed(number):
            return f"savepoint {number} is deleted"
        case _:
            assert_never(event)


def _report(report: ev.Report) -> str:
    match report:
        case ev.Acknowledged(body):
            return f"{_subtask(body.subtask)} acknowledges checkpoint {body.checkpoint_id}"
        case ev.Committed(body):
            return f"{_subtask(body.subtask)} has committed checkpoint {body.checkpoint_id}"
        case ev.CountersReported():
            return "counters of a heartbeat"
        case ev.Declined(body):
            return f"{_subtask(body.subtask)} declines checkpoint {body.checkpoint_id}: {body.reason}"
        case ev.Reported(body):
            phase = body.phase.name.removeprefix("SUBTASK_").lower()
            return f"{_subtask(body.subtask)} is {phase}{f': {body.error}' if body.error else ''}"
        case ev.FirstRecordSeen(body):
            return f"the first records have reached a sink at {_subtask(body.subtask)}"
        case ev.SplitsFound(found) if found.error:
            return f"the splits of {found.vertex_id} cannot be listed: {found.error}"
        case ev.SplitsFound(found):
            return f"new splits of {found.vertex_id}: {len(found.splits)}"
        case ev.Gone(name, gone):
            return f"attempt {gone.attempt.attempt if gone.attempt else 0} has ended on {name}"
        case _:
            assert_never(report)


def _subtask(subtask: m.SubtaskId | None) -> str:
    if subtask is None:
        return "a subtask"
    attempt = f"@{subtask.attempt.attempt}" if subtask.attempt is not None else ""
    return f"{subtask.vertex_id}[{subtask.subtask}]{attempt}"


def _slots(slots: Sequence[int]) -> str:
    return f"slot{'s' if len(slots) != 1 else ''} {', '.join(map(str, slots))}"


def _splits(count: int) -> str:
    return "1 split" if count == 1 else f"{count} splits"


def cause_of(event: ev.Event) -> Outside:
    """The origin of an event that no other event has caused."""
    match event:
        case ev.Recovered() | ev.RecoveryFailed():
            return Outside.LEADERSHIP
        case ev.Tick():
            return Outside.TIMER
        case ev.Suspended() | ev.Resumed():
            return Outside.ZOOKEEPER
        case _ if isinstance(event, Request):
            return Outside.CLIENT
    return Outside.TASK_MANAGER


def reported_cause(event: ev.Event) -> str:
    """The id of the task manager's event that caused this report, else empty.

    Of several reports, the last acknowledgement counts, which may complete a checkpoint; else the last one.
    """
    match event:
        case ev.TaskManagerReports(name, reports):
            last = [*reports, *(report for report in reports if isinstance(report, ev.Acknowledged))][-1:]
            return reported_cause(ev.TaskManagerReport(name, last[0])) if last else ""
        case ev.TaskManagerReport(
            report=ev.Acknowledged(body)
            | ev.Declined(body)
            | ev.Committed(body)
            | ev.Reported(body)
            | ev.FirstRecordSeen(body)
            | ev.SplitsFound(body)
            | ev.Gone(gone=body)
        ):
            return body.cause_id
    return ""


def effects_of(effects: Iterable[do.Effect]) -> tuple[str, ...]:
    """Describes effects in order, without timers; the same message to several task managers appears once."""
    return grouped(pair for effect in effects for pair in _effect(effect))


def _effect(effect: do.Effect) -> list[tuple[str, str]]:
    """Pairs of recipient, "" for none, and text; none for effects that are not listed."""
    match effect:
        case do.Send(name, body):
            return [(name, _message(body))]
        case do.Emit(event):
            number = f" {event.checkpoint_id}" if event.checkpoint_id else ""
            name = event.kind.name.lower().replace("_", " ")
            is_listed = event.kind is not m.JobEventKind.STATE_CHANGED  # which is the line's `change`
            return [("watchers", f"{name}{number}{f': {event.text}' if event.text else ''}")] if is_listed else []
        case do.WakeAt():
            return []
        case do.AnswerSavepoint(error=error) | do.AnswerRescale(error=error):
            return [("client", error or "done")]
        case _:
            return [("", _own(effect))]


Own = (
    do.Recover
    | do.RequestSlots
    | do.ReleaseSlots
    | do.PersistAttempt
    | do.PersistCheckpointId
    | do.PersistCheckpoint
    | do.PersistResult
    | do.PersistOrders
    | do.DiscardCheckpoint
    | do.DiscardPending
    | do.CleanUp
)
"""Actions of the coordinator itself."""


def _own(effect: Own) -> str:
    match effect:
        case do.Recover():
            return "read the job's records again"
        case do.RequestSlots(count=count):
            return f"request {counted(count, 'slot')}"
        case do.ReleaseSlots():
            return "release the slots"
        case do.PersistAttempt(record):
            return f"record attempt {record.attempt} in ZooKeeper"
        case do.PersistCheckpointId(number):
            return f"reserve checkpoint id {number} in ZooKeeper"
        case do.PersistCheckpoint(record=record):
            return f"write the metadata of checkpoint {record.checkpoint_id}, then record it in ZooKeeper"
        case do.PersistResult(result):
            return f"record the job's result in ZooKeeper: {result.outcome}"
        case do.PersistOrders():
            return "record the client's order in ZooKeeper"
        case do.DiscardCheckpoint(checkpoint):
            return f"delete checkpoint {checkpoint.checkpoint_id}, which a newer one replaces"
        case do.DiscardPending(number):
            return f"delete what was written for checkpoint {number}"
        case do.CleanUp():
            return "delete the job's records and files"
        case _:
            assert_never(effect)


def _message(body: do.ControlBody) -> str:  # noqa: C901  one case a kind
    match body:
        case m.TriggerCheckpoint(checkpoint_id=number, kind=kind, unaligned=unaligned):
            what = "savepoint" if kind is m.CheckpointKind.SAVEPOINT else "checkpoint"
            return f"trigger {'unaligned ' if unaligned else ''}{what} {number}"
        case m.NotifyCheckpointComplete(checkpoint_id=number):
            return f"checkpoint {number} is complete: commit"
        case m.NotifyCheckpointAborted(checkpoint_id=number, reason=reason, and_earlier=and_earlier):
            return f"checkpoint {number} is aborted{' with all earlier ones' if and_earlier else ''}: {reason}"
        case m.Deploy(attempt, restored_checkpoint_id=number):
            start = f"from checkpoint {number}" if number else "without a snapshot"
            return f"deploy attempt {attempt.attempt if attempt else 0} {start}"
        case m.CancelAttempt(attempt, reason):
            return f"cancel attempt {attempt.attempt if attempt else 0}: {reason}"
        case m.DiscoverSplits(vertex_id=vertex):
            return f"list the splits of {vertex}"
        case m.AssignSplits(subtask, splits):
            return f"read {_splits(len(splits))} in {_subtask(subtask)}"
        case m.AssignSplitsTogether(orders):
            return f"read {_splits(sum(len(order.splits) for order in orders))} in {len(orders)} subtasks"
        case m.PrepareJob():
            return "prepare to run the job"
        case m.KeepCopies(checkpoint_id=number):
            return f"keep copies of checkpoint {number}" if number else "drop all copies"
        case m.DrainSources():
            return "drain the sources"
        case m.AwaitPart(slots=slots):
            return f"run on while {_slots(slots)} start again"
        case m.RejoinPart(part=part, restored_checkpoint_id=number, places=places):
            found = _slots([place.slot for place in places])
            return f"send {found} of attempt {part} what follows checkpoint {number}"
        case _:
            assert_never(body)
