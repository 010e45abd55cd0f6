"""When, and whether, a failed attempt is followed by another. Never a hot loop: no delay is below MIN_DELAY_MS."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lockgate_proto.messages import ExponentialRestart, FailureRateRestart, FixedDelayRestart

from coordinator.graph.normalize import Strategy

MIN_DELAY_MS = 50


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Try again after `delay_ms`."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The strategy is exhausted; `reason` is a sentence."""

    reason: str


class RestartPolicy:
    """Counts the failures seen under this leader. Failovers of the leader are not failures of the job."""

    def __init__(self, strategy: Strategy) -> None:
        """strategy: normalized, see coordinator.graph.normalize."""
        self._strategy = strategy
        self._consecutive = 0
        self._failed_at_ms: list[int] = []

    def failed(self, now_ms: int, ran_ms: int, noise: float) -> RestartAfter | GiveUp:
        """An attempt has failed after running for `ran_ms` (0: it never ran). noise: 0..1, decides the jitter."""
        strategy = self._strategy
        if isinstance(strategy, ExponentialRestart):
            return RestartAfter(self._exponential(strategy, ran_ms, noise))
        if isinstance(strategy, FixedDelayRestart):
            self._consecutive += 1
            if strategy.attempts and self._consecutive > strategy.attempts:
                return GiveUp(f"The restart strategy allows {strategy.attempts} restarts, all are used up.")
            return RestartAfter(max(MIN_DELAY_MS, strategy.delay_ms))
        if isinstance(strategy, FailureRateRestart):
            return self._failure_rate(strategy, now_ms)
        return GiveUp("The job has no restart strategy.")

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
