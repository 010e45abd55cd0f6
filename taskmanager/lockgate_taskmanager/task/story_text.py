"""Describes events and effects of a SubtaskMachine for a job's story, as text for operators. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

from lockgate_common.story_log import Outside
from lockgate_proto.messages import CheckpointKind, FailureCause

from lockgate_taskmanager.barrier.events import Aligned, AlignmentAborted, Overtaken
from lockgate_taskmanager.task import effects as do
from lockgate_taskmanager.task import events as on


def event_text(event: on.Event) -> str:  # noqa: C901  one case a kind
    """One event, as a sentence without a full stop."""
    match event:
        case on.ElementProcessed():
            return "the first input is processed"
        case on.Started():
            return "its thread starts"
        case on.Opened():
            return "it is open: its state is restored"
        case on.SinkReached():
            return "the first records reach a sink"
        case on.TriggerReceived(barrier=barrier):
            what = "savepoint" if barrier.kind is CheckpointKind.SAVEPOINT else "checkpoint"
            return f"{what} {barrier.checkpoint_id} is triggered"
        case Aligned(barrier):
            return f"barrier {barrier.checkpoint_id} has arrived on every input channel"
        case Overtaken(barrier, _, delivered):
            return f"barrier {barrier.checkpoint_id} does not wait; channels that delivered it: {len(delivered)}"
        case AlignmentAborted(number, reason):
            return f"barrier {number} will not arrive on every channel: {reason}"
        case on.SnapshotTaken(number, sync_us):
            return f"the state of checkpoint {number} is frozen after {sync_us / 1000:.1f} ms"
        case on.SnapshotFailed(number, reason):
            return f"the state of checkpoint {number} could not be frozen: {reason}"
        case on.UploadDone(number, _, async_ms):
            return f"the state of checkpoint {number} is stored after {async_ms} ms"
        case on.UploadFailed(number, reason):
            return f"the state of checkpoint {number} could not be stored: {reason}"
        case on.CompleteReceived(_, number):
            return f"checkpoint {number} is complete, the leader says"
        case on.AbortReceived(_, number, and_earlier):
            return f"checkpoint {number} is aborted{' with all earlier ones' if and_earlier else ''}, the leader says"
        case on.CommitDone(number):
            return f"the output up to checkpoint {number} is visible"
        case on.InputExhausted():
            return "its input has ended"
        case on.Flushed():
            return "everything is emitted"
        case on.CancelRequested():
            return "it is cancelled"
        case on.Failed(cause, error):
            return f"it fails ({cause.name}): {error}"
        case on.Closed():
            return "it is closed"
        case _:
            assert_never(event)


def cause_of(event: on.Event) -> str:
    """Where an event comes from: the id that its barrier carries, or what is outside of the machines."""
    match event:
        case on.TriggerReceived(barrier=barrier) | Aligned(barrier) | Overtaken(barrier):
            return barrier.cause_id or Outside.LEADER
        case on.CompleteReceived() | on.AbortReceived() | on.Started() | on.CancelRequested():
            return Outside.LEADER
        case on.Failed(cause):
            return Outside.PEER if cause is FailureCause.PEER_LOST else Outside.PROGRAM
        case on.ElementProcessed() | on.SinkReached() | AlignmentAborted() | on.InputExhausted():
            return Outside.DATA
    return Outside.PROGRAM


def effects_of(effects: Iterable[do.Effect]) -> tuple[str, ...]:
    """What is done, in order."""
    return tuple(map(_effect, effects))


def _effect(effect: do.Effect) -> str:  # noqa: C901  one case a kind
    match effect:
        case do.TakeSnapshot(number):
            return f"freeze the state for checkpoint {number}"
        case do.RecordChannels(number):
            return f"keep the elements in flight for checkpoint {number}"
        case do.ForwardBarrier(barrier):
            return f"outputs: barrier {barrier.checkpoint_id}"
        case do.StartUpload(number):
            return f"store the state of checkpoint {number}"
        case do.Acknowledge(number):
            return f"leader: acknowledge checkpoint {number}"
        case do.Decline(number, reason):
            return f"leader: decline checkpoint {number}: {reason}"
        case do.StopAlignment(number):
            return f"release the channels that wait for barrier {number}"
        case do.DropSnapshot(number):
            return f"drop the snapshot of checkpoint {number}"
        case do.Commit(number):
            return f"commit the output up to checkpoint {number}"
        case do.ReportCommitted(number):
            return f"leader: checkpoint {number} is committed"
        case do.Flush():
            return "emit the held-back output"
        case do.ForwardEnd():
            return "outputs: end of input"
        case do.Report(phase, _, error):
            name = phase.name.removeprefix("SUBTASK_").lower()
            return f"leader: {name}{f': {error}' if error else ''}"
        case do.ReportFirstRecord():
            return "leader: first records at a sink"
        case do.Close():
            return "close the program and its channels"
        case _:
            assert_never(effect)
