"""What happens to a job after a failure that is not the pipeline's own mistake."""

from __future__ import annotations

from lockgate_proto.messages import (
    ExponentialRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)


class Restart:
    """The choices for `Job(restart=...)`. Times in milliseconds."""

    @staticmethod
    def exponential(
        initial_ms: int = 100,
        max_ms: int = 30_000,
        multiplier: float = 2.0,
        jitter: float = 0.1,
        reset_after_ms: int = 60_000,
    ) -> RestartStrategy:
        """Waits longer after each failure, up to `max_ms`; starts over after `reset_after_ms` without one."""
        return RestartStrategy(ExponentialRestart(initial_ms, max_ms, multiplier, jitter, reset_after_ms))

    @staticmethod
    def fixed_delay(delay_ms: int = 1000, attempts: int = 0) -> RestartStrategy:
        """Waits the same each time; fails the job after `attempts` restarts (0: never)."""
        return RestartStrategy(FixedDelayRestart(attempts, delay_ms))

    @staticmethod
    def failure_rate(failures: int = 3, interval_ms: int = 60_000, delay_ms: int = 1000) -> RestartStrategy:
        """Fails the job after more than `failures` failures within `interval_ms`."""
        return RestartStrategy(FailureRateRestart(failures, interval_ms, delay_ms))

    @staticmethod
    def never() -> RestartStrategy:
        """The first failure fails the job."""
        return RestartStrategy(NoRestart())
