"""The demo's output. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_common.amounts import counted
from lockgate_proto.messages import JobEvent, JobEventKind, JobStatus

from lockgate_devtools.demo.wordcount import SOURCE, SPLIT, Comparison
from lockgate_devtools.drill.timeline import Before

_TIMELINE = (
    (JobEventKind.LEADER_LOSS_DETECTED, "the standby notices that the leader is gone"),
    (JobEventKind.LEADER_GRANTED, "the standby is the leader now (ZooKeeper has raised the fencing token)"),
    (JobEventKind.JOB_RECOVERED, "it has read the job and its newest snapshot from ZooKeeper"),
    (JobEventKind.ATTEMPT_ADOPTED, "it goes on with the subtasks that run: nothing is restarted"),
    (JobEventKind.ATTEMPT_DEPLOYED, "every subtask runs again, from the snapshot"),
    (JobEventKind.FIRST_RECORD, "first new records have gone through the whole pipeline"),
    (JobEventKind.CHECKPOINT_COMPLETED, "first snapshot under the new leader, results committed"),
)
_WRONG_LISTED = 10


def progress(status: JobStatus, elapsed_s: float, lines: int, checkpoints: int) -> str:
    """One line about the job's progress. lines: of the whole input."""
    read, words = records_out(status, SOURCE), records_out(status, SPLIT)
    share = min(100, round(100 * read / lines)) if lines else 0
    return (
        f"{elapsed_s:6.1f} s  {status.state.name.lower():<18} {share:3d} %  {read:>11,} lines {words:>13,} words  "
        f"{checkpoints:>3} checkpoints  {counted(status.restarts, 'restart')}  leader {status.leader_address}"
    )


def records_out(status: JobStatus, operator_id: str) -> int:
    """Records that an operator has emitted so far, 0 when it is not known yet."""
    return next((operator.records_out for operator in status.operators if operator.operator_id == operator_id), 0)


def timeline(before: Before, victim: str, events: Iterable[JobEvent]) -> list[str]:
    """The takeover in ms since the kill: the first event of each kind with a higher token."""
    found = [(0.0, f"SIGKILL for the leader, {victim}")]
    known = sorted(events, key=lambda event: event.unix_us)
    for kind, text in _TIMELINE:
        restarted = kind == JobEventKind.ATTEMPT_DEPLOYED  # an adopted attempt has the number that it had
        for event in known:
            if restarted and event.attempt <= before.attempt:
                continue
            if event.kind == kind and event.token > before.token and event.unix_us >= before.unix_us:
                found.append(((event.unix_us - before.unix_us) / 1000, text))
                break
    return [f"{ms:>9.1f} ms  {text}" for ms, text in sorted(found)]


def verdict(result: Comparison, *, was_killed: bool) -> list[str]:
    """The comparison as text; the last line is the verdict.

    was_killed: whether the leader was killed before the job ended.
    """
    lines = [f"{result.words:,} distinct words, {result.total:,} in all, by plain Spark over the same files"]
    for word, job, batch in result.wrong[:_WRONG_LISTED]:
        lines.append(f"  wrong: {word!r} counted {job:,}, Spark counts {batch:,}")
    if result.is_exact:
        how = " although the leader was killed" if was_killed else "; the job ended before the leader was killed"
        return [*lines, f"verdict: EXACT - every count is right{how}"]
    return [*lines, f"verdict: WRONG - {len(result.wrong):,} of {result.words:,} counts differ"]
