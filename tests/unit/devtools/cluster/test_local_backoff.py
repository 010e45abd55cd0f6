"""When dead processes come back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lockgate_devtools.cluster.backoff import Backoff

POLICY = Backoff(delay_ms=200, max_delay_ms=3000, stable_after_ms=10_000)


def test_early_deaths_double_the_delay_up_to_the_limit() -> None:
    policy, waits = POLICY, []
    for _ in range(7):
        policy, wait_ms = policy.exited(50)
        waits.append(wait_ms)
    assert waits == [200, 400, 800, 1600, 3000, 3000, 3000]


def test_a_long_life_starts_over() -> None:
    policy = POLICY
    for _ in range(4):
        policy, _ = policy.exited(50)
    policy, wait_ms = policy.exited(10_000)
    assert wait_ms == 200
    assert policy.exited(50)[1] == 400


@given(st.lists(st.integers(0, 20_000), max_size=100))
def test_the_delay_is_never_zero_nor_beyond_the_limit(lives: list[int]) -> None:
    policy = POLICY
    for lived_ms in lives:
        policy, wait_ms = policy.exited(lived_ms)
        assert 200 <= wait_ms <= 3000
