"""The restart strategy after a failure that is not the pipeline's own error."""

from __future__ import annotations

from lockgate_proto.messages import (
    ExponentialRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategy,
)

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError


class Restart:
    """The choices for `Job(restart=...)`. Times in milliseconds. Errors raise PipelineError.

    Omitted values are chosen by the cluster, so that all its clients have the same defaults.
    """

    @staticmethod
    def exponential(
        initial_ms: int | None = None,
        max_ms: int | None = None,
        multiplier: float | None = None,
        jitter: float | None = None,
        reset_after_ms: int | None = None,
    ) -> RestartStrategy:
        """Waits longer after each failure, up to `max_ms`; starts over after `reset_after_ms` without one.

        jitter: the fraction, 0 to 1, by which a pause is made longer or shorter at random. Defaults: 50 ms, 10 s, twice
        as long each time, 0.2, 30 s.
        """
        method = "Restart.exponential"
        return RestartStrategy(
            ExponentialRestart(
                _given(method, "initial_ms", initial_ms),
                _given(method, "max_ms", max_ms),
                0.0 if multiplier is None else _number(method, "multiplier", multiplier, 1, 1000),
                None if jitter is None else _number(method, "jitter", jitter, 0, 1),
                _given(method, "reset_after_ms", reset_after_ms),
            )
        )

    @staticmethod
    def fixed_delay(delay_ms: int | None = None, attempts: int = 0) -> RestartStrategy:
        """Waits the same each time, 1 s by default; fails the job after `attempts` restarts (0: never)."""
        method = "Restart.fixed_delay"
        restarts = checks.whole(method, "attempts", attempts, 0)
        return RestartStrategy(FixedDelayRestart(restarts, _given(method, "delay_ms", delay_ms)))

    @staticmethod
    def failure_rate(
        failures: int | None = None, interval_ms: int | None = None, delay_ms: int | None = None
    ) -> RestartStrategy:
        """Fails the job after more than `failures` failures within `interval_ms`. Defaults: 3, 60 s, 1 s."""
        method = "Restart.failure_rate"
        return RestartStrategy(
            FailureRateRestart(
                _given(method, "failures", failures),
                _given(method, "interval_ms", interval_ms),
                _given(method, "delay_ms", delay_ms),
            )
        )

    @staticmethod
    def never() -> RestartStrategy:
        """The first failure fails the job."""
        return RestartStrategy(NoRestart())


def _given(method: str, name: str, value: int | None) -> int:
    """Rejects 0, which means "default" in the graph."""
    return 0 if value is None else checks.whole(method, name, value, 1)


def _number(method: str, name: str, value: float, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise PipelineError(f"{method}: {name} must be a number from {least} to {most}, not {value!r}")
    return float(value)
