"""Derives times since the kill from the job's events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lockgate_proto.messages import JobEvent, JobEventKind

from lockgate_devtools.drill.model import Kill, Mode, Target


@dataclass(frozen=True, slots=True)
class Before:
    """The state when the kill was sent. unix_us: wall clock of this host at that moment."""

    unix_us: int
    token: int
    attempt: int


def assemble(target: Target, pid: int, before: Before, events: Iterable[JobEvent]) -> Kill:
    """The kill with the first event of each kind that it caused. Events may arrive in any order, and more than once."""
    after = sorted({event for event in events if event.unix_us >= before.unix_us}, key=lambda event: event.unix_us)

    def first(wanted: JobEventKind, *, token: int = 0, attempt: int = 0) -> float | None:
        """The time of the first such event with this token and attempt, or later ones."""
        for event in after:
            if event.kind == wanted and event.token >= token and event.attempt >= attempt:
                return round((event.unix_us - before.unix_us) / 1000, 1)
        return None

    if target in (Target.STANDBY, Target.ZOOKEEPER):  # leader and attempt survive
        return Kill(target, pid, first_checkpoint_ms=first(JobEventKind.CHECKPOINT_COMPLETED))
    token = before.token + 1 if target is Target.LEADER else 0
    adopted = target is Target.LEADER and first(JobEventKind.ATTEMPT_ADOPTED, token=token) is not None
    attempt = before.attempt + (not adopted)
    deployed_ms = first(JobEventKind.ATTEMPT_DEPLOYED, token=token, attempt=attempt)
    lost = JobEventKind.LEADER_LOSS_DETECTED if target is Target.LEADER else JobEventKind.TASK_MANAGER_LOST
    return Kill(
        target,
        pid,
        detected_ms=first(lost, token=token),
        granted_ms=first(JobEventKind.LEADER_GRANTED, token=token) if target is Target.LEADER else None,
        deployed_ms=deployed_ms,
        first_record_ms=first(JobEventKind.FIRST_RECORD, token=token, attempt=attempt),
        first_checkpoint_ms=first(JobEventKind.CHECKPOINT_COMPLETED, token=token, attempt=attempt),
        mode=Mode.REATTACH if adopted else Mode.RESTART if deployed_ms is not None else None,
    )


def is_survived(kill: Kill) -> bool:
    """True when the job has recovered from the kill: the target's last event has arrived."""
    if kill.target in (Target.LEADER, Target.TASKMANAGER) and kill.mode is not Mode.REATTACH:
        return kill.first_record_ms is not None and kill.first_checkpoint_ms is not None
    return kill.first_checkpoint_ms is not None


def checkpoint_counts(events: Iterable[JobEvent]) -> tuple[int, int]:
    """Numbers of completed and of aborted checkpoints; each id counts once."""
    completed: set[int] = set()
    aborted: set[int] = set()
    for event in events:
        if event.kind == JobEventKind.CHECKPOINT_COMPLETED:
            completed.add(event.checkpoint_id)
        elif event.kind == JobEventKind.CHECKPOINT_ABORTED:
            aborted.add(event.checkpoint_id)
    return len(completed), len(aborted - completed)
