"""Derives times since the kill from the job's events. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

from lockgate_proto.messages import JobEvent, JobEventKind

from lockgate_devtools.drill.model import CLOCK_OFF_S, Kill, Mode, Target


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

    strikes_leader, strikes_attempt = target.strikes_leader, target.strikes_attempt
    if target.is_link:
        strikes_leader = first(JobEventKind.LEADER_GRANTED, token=before.token + 1) is not None
        strikes_attempt = not strikes_leader and any(event.attempt > before.attempt for event in after)
    if not strikes_leader and not strikes_attempt:
        return Kill(target, pid, first_checkpoint_ms=first(JobEventKind.CHECKPOINT_COMPLETED))
    token = before.token + 1 if strikes_leader else 0
    adopted = not strikes_attempt and first(JobEventKind.ATTEMPT_ADOPTED, token=token) is not None
    attempt = before.attempt + (not adopted)
    deployed_ms = first(JobEventKind.ATTEMPT_DEPLOYED, token=token, attempt=attempt)
    lost = JobEventKind.LEADER_LOSS_DETECTED if strikes_leader else JobEventKind.TASK_MANAGER_LOST
    return Kill(
        target,
        pid,
        detected_ms=first(lost, token=token),
        granted_ms=first(JobEventKind.LEADER_GRANTED, token=token) if strikes_leader else None,
        deployed_ms=deployed_ms,
        first_record_ms=first(JobEventKind.FIRST_RECORD, token=token, attempt=attempt),
        first_checkpoint_ms=first(JobEventKind.CHECKPOINT_COMPLETED, token=token, attempt=attempt),
        mode=Mode.REATTACH if adopted else Mode.RESTART if deployed_ms is not None else None,
    )


def is_survived(kill: Kill) -> bool:
    """True when the job has recovered from the kill: the target's last event has arrived."""
    must_restart = kill.target.strikes_leader or kill.target.strikes_attempt
    if (must_restart and kill.mode is not Mode.REATTACH) or kill.mode in (Mode.REGION, Mode.PARTIAL, Mode.RESTART):
        return kill.first_record_ms is not None and kill.first_checkpoint_ms is not None
    return kill.first_checkpoint_ms is not None


def has_committed(events: Iterable[JobEvent], since_us: int) -> bool:
    """Whether a checkpoint has completed since then: the damage that was over by then has been survived."""
    return any(event.kind == JobEventKind.CHECKPOINT_COMPLETED and event.unix_us >= since_us for event in events)


def righted(event: JobEvent, arrived_us: int) -> JobEvent:
    """The event with the time at which it happened, where the clock of its sender was set off by a drill.

    arrived_us: when the event was received, within half an hour after it. The offset is known exactly, so is the time.
    """
    off_us = CLOCK_OFF_S * 1_000_000
    times = (event.unix_us, event.unix_us - off_us, event.unix_us + off_us)
    return replace(event, unix_us=min(times, key=lambda unix_us: abs(arrived_us - unix_us)))


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


def history_problems(events: Iterable[JobEvent]) -> tuple[str, ...]:
    """Sentences about what no order of failures may lead to; none when all is well. Events may come more than once.

    A token is granted once, and tokens rise; a checkpoint id is completed once, by one leader and attempt; what a later
    leader completes has a greater id than everything of the leaders before.
    """
    ordered = sorted(set(events), key=lambda event: event.unix_us)
    granted = [event.token for event in ordered if event.kind == JobEventKind.LEADER_GRANTED]
    problems = [
        f"token {token} was granted after token {before}" for before, token in pairwise(granted) if token <= before
    ]
    completed: dict[int, set[tuple[int, int]]] = {}
    for event in ordered:
        if event.kind == JobEventKind.CHECKPOINT_COMPLETED:
            completed.setdefault(event.checkpoint_id, set()).add((event.token, event.attempt))
    problems += [
        f"checkpoint {checkpoint_id} was completed by several leaders or attempts: (token, attempt) {sorted(places)}"
        for checkpoint_id, places in completed.items()
        if len(places) > 1
    ]
    by_token = sorted((min(places), checkpoint_id) for checkpoint_id, places in completed.items())
    newest = 0
    for (token, _), checkpoint_id in by_token:
        if checkpoint_id < newest:
            problems.append(f"checkpoint {checkpoint_id} was completed under token {token}, after checkpoint {newest}")
        newest = max(newest, checkpoint_id)
    return tuple(problems)
