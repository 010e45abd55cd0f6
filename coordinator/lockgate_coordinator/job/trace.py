"""What a checkpoint or a failover of a job took, as spans: of the whole, of its steps, of each subtask. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from lockgate_proto.messages import JobEvent, JobEventKind, SubtaskSnapshot

from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.graph.execution_graph import SubtaskKey
from lockgate_coordinator.job.job_state import Outcome

Attribute = str | int
MOST_SUBTASKS = 2_000
"""Of one trace: the slowest ones. The root says how many are left out."""
MOST_EVENTS = 100
"""Of one failover."""

_TAKEOVER = {
    JobEventKind.LEADER_LOSS_DETECTED: "detect the loss",
    JobEventKind.LEADER_GRANTED: "take leadership",
    JobEventKind.JOB_RECOVERED: "recover the job",
}
_CAUSES = (
    JobEventKind.ATTEMPT_FAILED,
    JobEventKind.TASK_MANAGER_LOST,
    JobEventKind.TASK_MANAGER_LEFT,
    JobEventKind.SUBTASK_MOVED,
)
_STEPS = {
    **_TAKEOVER,
    **dict.fromkeys(_CAUSES, "end the attempt"),
    JobEventKind.ATTEMPT_DEPLOYED: "deploy",
    JobEventKind.FIRST_RECORD: "first record",
    JobEventKind.CHECKPOINT_COMPLETED: "first checkpoint",
}
_ENDS = tuple(outcome.value for outcome in Outcome)


@dataclass(frozen=True, slots=True)
class Span:
    """Times are wall clock, microseconds since 1970. parent: its place in the trace; the first is the root.

    error: a sentence, "" if all went well.
    """

    name: str
    start_us: int
    end_us: int
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    parent: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Starts:
    """When the subtasks of an attempt reported that they run, by a monotonic clock; and where."""

    deployed_ms: int
    started_ms: Mapping[SubtaskKey, int]
    place_of: Callable[[SubtaskKey], str]


Build = Callable[[], Sequence[Span]]
"""Makes a trace, on any thread: what it reads does not change any more."""


class JobTracer:
    """Finds the checkpoints and failovers of one job in its events."""

    def __init__(self, job_key: str, sink: Callable[[Build], None] | None) -> None:
        """sink: takes traces; returns at once. None: traces are off."""
        self._key, self._sink = job_key, sink
        self._failover: list[JobEvent] = []  # its cause, and what has happened since
        self._starts: Starts | None = None

    def heard(self, event: JobEvent, parts: SnapshotDetails | Starts | None = None) -> None:
        """An event of the job, with its time. parts: what the subtasks contributed."""
        if self._sink is None:
            return
        if isinstance(parts, SnapshotDetails):
            key, details = self._key, parts
            self._sink(lambda: checkpoint_trace(key, event, details))
        if event.kind is JobEventKind.STATE_CHANGED:
            if event.text in _ENDS:
                self._finish(event, "" if event.text == Outcome.FINISHED.value else f"the job is {event.text}")
        elif event.kind in _CAUSES or event.kind in _TAKEOVER:
            if self._is_next(event):
                self._finish(event, f"the next failure: {event.text}")
            self._failover.append(event)
        elif self._failover and event.kind in _STEPS:
            self._step(event, parts)

    def _is_next(self, event: JobEvent) -> bool:
        """Whether a failure is not of the attempt that has failed already. Of that one several parts may report it."""
        newest = max((known.attempt for known in self._failover), default=0)
        is_later = event.kind in _CAUSES and event.attempt > newest
        return is_later or self._is_deployed or len(self._failover) >= MOST_EVENTS

    @property
    def _is_deployed(self) -> bool:
        return any(event.kind is JobEventKind.ATTEMPT_DEPLOYED for event in self._failover)

    def _step(self, event: JobEvent, parts: SnapshotDetails | Starts | None) -> None:
        is_checkpoint = event.kind is JobEventKind.CHECKPOINT_COMPLETED
        if is_checkpoint and not self._is_deployed:
            return  # of the attempt before
        if is_checkpoint or len(self._failover) < MOST_EVENTS:
            self._failover.append(event)
        if isinstance(parts, Starts):
            self._starts = parts
        if is_checkpoint:
            self._finish(event, "")

    def _finish(self, end: JobEvent, error: str) -> None:
        key, events, starts = self._key, tuple(self._failover), self._starts
        self._failover, self._starts = [], None
        if events and self._sink is not None:
            self._sink(lambda: failover_trace(key, events, starts, end.unix_us, error))


def checkpoint_trace(job_key: str, event: JobEvent, details: SnapshotDetails) -> list[Span]:
    """From the trigger to its record, with a span for each subtask. event: it is completed or aborted."""
    start_us = details.triggered_unix_ms * 1_000
    parts = sorted(details.subtasks(), key=lambda part: -part.duration_ms)
    end_us = max(event.unix_us, start_us)
    is_complete = event.kind is JobEventKind.CHECKPOINT_COMPLETED
    about = _about(job_key, event) | {"lockgate.checkpoint": event.checkpoint_id, "lockgate.subtasks": len(parts)}
    about["lockgate.size_bytes"] = sum(part.size_bytes for part in parts)
    spans = [Span("checkpoint", start_us, end_us, _cut(about, len(parts)), error="" if is_complete else event.text)]
    spans += [_snapshot(part, start_us) for part in parts[:MOST_SUBTASKS]]
    if is_complete and parts:
        spans.append(Span("persist", min(start_us + parts[0].duration_ms * 1_000, end_us), end_us))
    return spans


def _snapshot(part: SubtaskSnapshot, start_us: int) -> Span:
    sizes: dict[str, Attribute] = {
        "lockgate.size_bytes": part.size_bytes,
        "lockgate.written_bytes": part.written_bytes,
        "lockgate.sync_us": part.sync_us,
        "lockgate.upload_ms": part.async_ms,
        "lockgate.alignment_ms": part.alignment_ms,
    }
    place = _place((part.vertex_id, part.subtask), part.task_manager_id)
    return Span(f"snapshot {part.vertex_id}", start_us, start_us + part.duration_ms * 1_000, place | sizes)


def failover_trace(
    job_key: str, events: Sequence[JobEvent], starts: Starts | None, end_us: int, error: str
) -> list[Span]:
    """From the cause to the first checkpoint, with a span for each step and for the start of each subtask.

    events: the cause first. end_us: when it was over, in microseconds since 1970. error: why it did not come so far.
    """
    steps = sorted(events, key=lambda event: event.unix_us)
    cause, last = events[0], steps[-1]
    about = _about(job_key, last) | {"lockgate.cause": cause.kind.name.lower(), "lockgate.text": cause.text}
    count = len(starts.started_ms) if starts is not None else 0
    spans = [Span("failover", steps[0].unix_us, max(end_us, last.unix_us), _cut(about, count), error=error)]
    for before, step in pairwise(steps):
        spans.append(Span(_STEPS[step.kind], before.unix_us, step.unix_us))
        if step.kind is JobEventKind.ATTEMPT_DEPLOYED and starts is not None:
            spans += _started(starts, step.unix_us, len(spans) - 1)
    return spans


def _started(starts: Starts, end_us: int, parent: int) -> Iterable[Span]:
    """end_us: when the last one had started."""
    found = sorted(starts.started_ms.items(), key=lambda item: -item[1])
    last_ms = found[0][1] if found else 0
    for key, at_ms in found[:MOST_SUBTASKS]:
        began_us, at_us = (end_us - (last_ms - moment) * 1_000 for moment in (starts.deployed_ms, at_ms))
        yield Span(f"start {key[0]}", began_us, at_us, _place(key, starts.place_of(key)), parent)


def _about(job_key: str, event: JobEvent) -> dict[str, Attribute]:
    return {"lockgate.job": job_key, "lockgate.attempt": event.attempt, "lockgate.token": event.token}


def _place(key: SubtaskKey, task_manager_id: str) -> dict[str, Attribute]:
    return {"lockgate.vertex": key[0], "lockgate.subtask": key[1], "lockgate.task_manager": task_manager_id}


def _cut(about: dict[str, Attribute], subtasks: int) -> dict[str, Attribute]:
    return about | ({"lockgate.left_out": subtasks - MOST_SUBTASKS} if subtasks > MOST_SUBTASKS else {})
