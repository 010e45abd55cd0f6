"""RestartPolicy: growing, bounded, never hot."""

from __future__ import annotations

import pytest
from lockgate_coordinator.graph.normalize import DEFAULT_EXPONENTIAL, Strategy
from lockgate_coordinator.job.restart import MIN_DELAY_MS, GiveUp, RestartAfter, RestartPolicy
from lockgate_proto.messages import ExponentialRestart, FailureRateRestart, FixedDelayRestart, NoRestart


def delays(strategy: Strategy, count: int, noise: float = 0.5, ran_ms: int = 0) -> list[int]:
    policy = RestartPolicy(strategy)
    verdicts = [policy.failed(index * 1_000, ran_ms, noise) for index in range(count)]
    return [verdict.delay_ms for verdict in verdicts if isinstance(verdict, RestartAfter)]


def test_exponential_doubles_up_to_its_maximum() -> None:
    assert delays(DEFAULT_EXPONENTIAL, 10) == [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]


def test_exponential_starts_over_after_a_long_run() -> None:
    policy = RestartPolicy(DEFAULT_EXPONENTIAL)
    for _ in range(5):
        policy.failed(0, 0, 0.5)
    assert policy.failed(0, 29_999, 0.5) == RestartAfter(1_600)
    assert policy.failed(0, 30_000, 0.5) == RestartAfter(50)


def test_jitter_moves_the_delay_both_ways_by_its_fraction() -> None:
    assert delays(DEFAULT_EXPONENTIAL, 5, noise=0.0)[-1] == 640
    assert delays(DEFAULT_EXPONENTIAL, 5, noise=1.0)[-1] == 960


def test_jitter_never_exceeds_the_maximum() -> None:
    assert max(delays(DEFAULT_EXPONENTIAL, 30, noise=1.0)) == 10_000


def test_many_failures_do_not_overflow() -> None:
    strategy = ExponentialRestart(initial_ms=1, max_ms=10**12, multiplier=1e300, jitter=0, reset_after_ms=1)
    assert delays(strategy, 50)[-1] == 10**12


@pytest.mark.parametrize(
    "strategy",
    [
        FixedDelayRestart(attempts=0, delay_ms=0),
        ExponentialRestart(initial_ms=0, max_ms=0, multiplier=1, jitter=1, reset_after_ms=0),
        FailureRateRestart(failures=99, interval_ms=10, delay_ms=0),
    ],
)
def test_no_strategy_is_a_hot_loop(strategy: Strategy) -> None:
    assert min(delays(strategy, 20, noise=0.0)) >= MIN_DELAY_MS


def test_fixed_delay_gives_up_after_its_attempts() -> None:
    policy = RestartPolicy(FixedDelayRestart(attempts=2, delay_ms=300))
    assert [policy.failed(0, 0, 0) for _ in range(2)] == [RestartAfter(300)] * 2
    assert isinstance(policy.failed(0, 0, 0), GiveUp)


def test_fixed_delay_without_a_number_never_gives_up() -> None:
    assert len(delays(FixedDelayRestart(delay_ms=300), 100)) == 100


def test_failure_rate_counts_within_its_interval_only() -> None:
    policy = RestartPolicy(FailureRateRestart(failures=2, interval_ms=1_000, delay_ms=200))
    assert policy.failed(0, 0, 0) == RestartAfter(200)
    assert policy.failed(500, 0, 0) == RestartAfter(200)
    assert policy.failed(1_200, 0, 0) == RestartAfter(200)
    verdict = policy.failed(1_300, 0, 0)
    assert isinstance(verdict, GiveUp)
    assert "3 times within 1000 ms" in verdict.reason


def test_a_restart_strategy_of_none_fails_at_once() -> None:
    assert isinstance(RestartPolicy(NoRestart()).failed(0, 0, 0), GiveUp)
