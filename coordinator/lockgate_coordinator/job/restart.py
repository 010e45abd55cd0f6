"""Decides whether and when a failed attempt is restarted. No delay is below MIN_DELAY_MS, so it is never a hot loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never
from zlib import crc32

from lockgate_common.amounts import counted
from lockgate_proto.messages import (
    ExponentialRestart,
    FailureCause,
    FailureRateRestart,
    FixedDelayRestart,
    JobFailure,
    NoRestart,
    RecurringFailure,
)

from lockgate_coordinator.graph.normalize import Strategy
from lockgate_coordinator.job.attempt import Attempt, AttemptFailed
from lockgate_coordinator.job.backoff import Backoff
from lockgate_coordinator.job.recurrence import ENOUGH, Recurrence, job_failure, verdict


class StorageWait:
    """The wait of one job for its storage, from the first failed read to the next successful one."""

    def __init__(self) -> None:
        self._reading = Backoff()
        self._restoring = Backoff()
        self._since_ms = 0
        self._reason = ""

    @property
    def trouble(self) -> tuple[int, str] | None:
        """Since when (monotonic ms) the job has waited, and why; None when it does not."""
        return (self._since_ms, self._reason) if self._reason else None

    def not_read(self, reason: str, now_ms: int) -> int:
        """The leader could not read the snapshot. Returns the pause in ms before `may_read`."""
        self._note(reason, now_ms)
        return self._reading.failed(now_ms)

    def may_read(self, now_ms: int) -> bool:
        """True once, when the pause is over."""
        return self._reading.take_due(now_ms)

    def not_restored(self, reason: str, now_ms: int) -> int:
        """A subtask could not read its state. Returns the pause in ms before the next attempt."""
        self._note(reason, now_ms)
        return self._restoring.failed(now_ms)

    def over(self) -> None:
        """The storage could be read."""
        self._reason, self._restoring = "", Backoff()

    def next_wake_ms(self) -> int | None:
        """When `may_read` changes without an event."""
        return self._reading.next_wake_ms()

    def _note(self, reason: str, now_ms: int) -> None:
        if not self._reason:
            self._since_ms = now_ms
        self._reason = reason


MIN_DELAY_MS = 50
NARROW_MS = 10_000
"""Between attempts while there are too few task managers for a job's inline state. Each costs the deciding thread some
milliseconds.
"""


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Try again after `delay_ms`. is_counted: as a restart of the job."""

    delay_ms: int
    is_counted: bool = True


AT_ONCE = RestartAfter(0, is_counted=False)
_ENDS_JOB = frozenset({FailureCause.USER_ERROR, FailureCause.STATE_UNREADABLE})


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No restart follows; `reason` is a sentence. keep_all: every checkpoint stays."""

    reason: str
    keep_all: bool = False


class Restarts:
    """Decides what follows the failures of one job under this leader."""

    def __init__(self, strategy: Strategy) -> None:
        """strategy: normalized."""
        self.storage = StorageWait()
        self.failure: JobFailure | None = None  # the newest
        self._policy = RestartPolicy(strategy)
        self._recurrence = Recurrence()
        self._decided: RestartAfter | None = None  # of the newest failure, if that was counted

    def recovered(self, stored: Sequence[RecurringFailure]) -> None:
        """Takes over the failures in the record of the last attempt."""
        self._recurrence.recovered(stored)

    def stored(self) -> tuple[RecurringFailure, ...]:
        """The failures for the record of the next attempt."""
        return self._recurrence.stored()

    def failed(self, failed: AttemptFailed, attempt: Attempt, now_ms: int) -> RestartAfter | GiveUp:
        """An attempt has failed. The restart strategy is consulted only if the job is to blame.

        An attempt fails once: if a part of it waits for its restart, what fails beside it often has the same cause, and
        so has what keeps the part from going on where the others are.
        """
        is_part = attempt.execution.is_mixed and attempt.running_ms is None  # which could not begin again
        before, self._decided = self._decided if attempt.execution.has_lost or is_part else None, None
        if failed.planned:
            return RestartAfter(0)
        if failed.cause is FailureCause.STORAGE_AWAY:
            self._decided = before  # which storage does not make another failure
            self.failure = job_failure(failed, attempt.id.attempt, 1)
            return RestartAfter(self.storage.not_restored(failed.text, now_ms), is_counted=False)
        if failed.is_narrow:  # which no fault of the job is
            self.failure = job_failure(failed, attempt.id.attempt, 1)
            return RestartAfter(NARROW_MS, is_counted=False)
        if before is not None and failed.cause not in _ENDS_JOB:
            return before
        times = self._recurrence.noted(failed, attempt.restored_id)
        self.failure = job_failure(failed, attempt.id.attempt, times)
        if failed.cause in _ENDS_JOB:
            return GiveUp(failed.text, keep_all=failed.cause is FailureCause.STATE_UNREADABLE)
        if times >= ENOUGH:
            return GiveUp(f"{failed.text}\n{verdict(self.failure)}")
        ran_ms = now_ms - attempt.running_ms if attempt.running_ms is not None else 0
        noise = crc32(f"{attempt.id.run_id}/{attempt.id.attempt}".encode()) / 2**32
        decided = self._policy.failed(now_ms, ran_ms, noise)
        if isinstance(decided, GiveUp):
            return GiveUp(f"{failed.text}\n{decided.reason}")
        self._decided = decided
        return decided


class RestartPolicy:
    """Counts the failures seen under this leader. Failovers of the leader are not failures of the job."""

    def __init__(self, strategy: Strategy) -> None:
        """strategy: normalized, see lockgate_coordinator.graph.normalize."""
        self._strategy = strategy
        self._consecutive = 0
        self._failed_at_ms: list[int] = []

    def failed(self, now_ms: int, ran_ms: int, noise: float) -> RestartAfter | GiveUp:
        """An attempt has failed after running for `ran_ms` (0: it never ran). noise: 0..1, decides the jitter."""
        strategy = self._strategy
        match strategy:
            case ExponentialRestart():
                return RestartAfter(self._exponential(strategy, ran_ms, noise))
            case FixedDelayRestart(attempts=most, delay_ms=delay_ms):
                self._consecutive += 1
                if most and self._consecutive > most:
                    return GiveUp(f"The restart strategy allows {counted(most, 'restart')}, and none is left.")
                return RestartAfter(max(MIN_DELAY_MS, delay_ms))
            case FailureRateRestart():
                return self._failure_rate(strategy, now_ms)
            case NoRestart():
                return GiveUp("The job has no restart strategy.")
            case _:
                assert_never(strategy)

    def _exponential(self, strategy: ExponentialRestart, ran_ms: int, noise: float) -> int:
        if ran_ms >= strategy.reset_after_ms:
            self._consecutive = 0
        delay = _grown(strategy, self._consecutive)
        self._consecutive += 1
        delay *= 1 + (strategy.jitter or 0.0) * (2 * noise - 1)
        return max(MIN_DELAY_MS, round(min(delay, float(strategy.max_ms))))

    def _failure_rate(self, strategy: FailureRateRestart, now_ms: int) -> RestartAfter | GiveUp:
        since = now_ms - strategy.interval_ms
        self._failed_at_ms = [at for at in self._failed_at_ms if at > since] + [now_ms]
        if len(self._failed_at_ms) > strategy.failures:
            return GiveUp(
                f"The job failed {len(self._failed_at_ms)} times within {strategy.interval_ms} ms; "
                f"its restart strategy allows {strategy.failures}."
            )
        return RestartAfter(max(MIN_DELAY_MS, strategy.delay_ms))


def _grown(strategy: ExponentialRestart, failures: int) -> float:
    """initial_ms times multiplier to the power of `failures`, max_ms at most; it costs the same after any number."""
    most, initial = float(strategy.max_ms), float(strategy.initial_ms)
    if initial >= most:
        return most if failures else initial
    if not initial or strategy.multiplier <= 1:
        return initial
    if failures * math.log(strategy.multiplier) >= math.log(most / initial):
        return most
    return initial * strategy.multiplier**failures
