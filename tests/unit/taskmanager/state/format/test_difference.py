"""Differences between forms of a value: that they come back, when they pay, and what becomes of a wrong base."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_taskmanager.state.format.difference import LEAST_BYTES, MOST_SHARE, applied, difference, mark

MB = 1_000_000


def noise(size: int, seed: int = 1) -> bytes:
    """Nothing in it can be compressed."""
    return random.Random(seed).randbytes(size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [LEAST_BYTES, 100_000, 3 * MB, 8_388_608, 12 * MB, 40 * MB])
def test_a_few_changed_bytes_are_a_small_difference_of_a_value_of_any_size(size: int) -> None:
    old = noise(size)
    new = old[: size // 3] + b"put in" + old[size // 3 : -100] + noise(100, 2)  # everything behind it moves
    made = difference(old, new)
    assert made is not None
    assert len(made) < 200 + size // 100
    assert applied(old, made) == new


def test_distant_parts_of_a_large_value_are_found() -> None:
    old = noise(5 * MB)
    new = old[4 * MB :] + old[: 4 * MB]
    made = difference(old, new)
    assert made is not None
    assert len(made) < 50_000
    assert applied(old, made) == new


def test_a_value_that_is_another_one_altogether_is_not_worth_it() -> None:
    assert difference(noise(5_000, 1), noise(5_000, 2)) is None


def test_a_difference_of_more_than_half_is_not_worth_it() -> None:
    old = noise(10_000)
    fresh = int(MOST_SHARE * 10_000)
    assert difference(old, old[: fresh + 100] + noise(10_000 - fresh - 100, 2)) is not None
    assert difference(old, old[: fresh - 100] + noise(10_000 - fresh + 100, 2)) is None


@pytest.mark.parametrize(("old", "new"), [(LEAST_BYTES - 1, LEAST_BYTES), (LEAST_BYTES, LEAST_BYTES - 1), (0, 5_000)])
def test_short_values_stay_whole(old: int, new: int) -> None:
    assert difference(bytes(old), bytes(new)) is None


def test_another_base_or_damage_is_noticed() -> None:
    old = noise(20_000)
    new = old[:9_000] + b"changed" + old[9_000:]
    made = difference(old, new)
    assert made is not None
    other = old[:500] + b"?" + old[501:]
    with pytest.raises(ValueError, match=r"."):
        applied(other, made)
    with pytest.raises(ValueError, match=r"."):
        applied(old, made[:-1])
    with pytest.raises(ValueError, match=r"."):
        applied(old, made[:-6] + bytes([made[-6] ^ 1]) + made[-5:])
    assert len({mark(old), mark(new), mark(other), mark(old + b"\0")}) == 4
    assert all(0 <= mark(item) < 2**63 for item in (b"", old, b"\xff" * 100))


edits = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 400), st.binary(max_size=300)), max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 30_000), edits)
def test_every_difference_round_trips(seed: int, size: int, changes: list[tuple[float, int, bytes]]) -> None:
    old = new = noise(size, seed)
    for where, removed, put in changes:
        at = int(where * len(new))
        new = new[:at] + put + new[at + removed :]
    made = difference(old, new)
    if made is not None:
        assert len(made) <= MOST_SHARE * len(new)
        assert applied(old, made) == new
    elif old == new:
        assert size < LEAST_BYTES
