"""Rows of keys whose states are numbers: packed, and read again whatever is declared then."""

from __future__ import annotations

import math
import pickle

import pytest
from lockgate_taskmanager.state.format.key_payload import Packing, read, whole, written

CODES = {"total": "q", "mean": "d", "is_on": "?", "größe": "q"}
STATES = {"total": (-(1 << 63), 0), "mean": (math.inf, (1 << 62)), "is_on": (True, 5), "größe": ((1 << 63) - 1, 0)}


def test_a_row_is_read_by_those_who_know_its_states_and_by_those_who_do_not() -> None:
    packing = Packing(CODES)
    (row,) = packing.written([STATES])
    assert row.startswith(packing.head)
    assert packing.read([row]) == [STATES]
    assert read(row) == (STATES, [], [], {})
    assert read(whole(row)) == read(row)
    assert [type(value) for value, _ in read(row).states.values()] == [int, float, bool, int]


def test_the_order_in_which_states_were_set_does_not_count() -> None:
    packing = Packing(CODES)
    assert packing.written([dict(reversed(STATES.items()))]) == packing.written([STATES])


def test_rows_of_every_form_are_read_in_their_order() -> None:
    packing, other = Packing({"total": "q"}), Packing({"mean": "d"})
    some = [{"total": (number, number)} for number in range(3)]
    first, second, third = packing.written(some)
    (foreign,) = other.written([{"mean": (0.5, 0)}])
    pickled, _ = written({"total": (7, 0)}, [5], [], {}, False)
    longer = first + b"surplus"
    rows = [None, first, pickled, second, foreign, b"", longer, third, None]
    assert packing.read(rows) == [{}, some[0], pickled, some[1], foreign, b"", longer, some[2], {}]
    assert packing.read([]) == packing.written([]) == []


@pytest.mark.parametrize("states", [{}, {"total": (1, 0)}, {**STATES, "other": (1, 0)}])
def test_only_a_key_with_just_these_states_is_packed(states: dict[str, tuple[int, int]]) -> None:
    assert not Packing(CODES).fits(states)
    assert Packing(CODES).fits(STATES)


def test_a_row_of_other_states_is_another_form() -> None:
    (row,) = Packing({"total": "q"}).written([{"total": (7, 0)}])
    for codes in ({"total": "d"}, {"totals": "q"}, {"total": "q", "mean": "d"}, {"tota": "q"}):
        assert not row.startswith(Packing(codes).head)
    assert read(row).states == {"total": (7, 0)}


def test_a_packed_row_is_smaller_than_a_pickle() -> None:
    states = {"total": (123_456_789, 0)}
    (row,) = Packing({"total": "q"}).written([states])
    assert len(row) < len(pickle.dumps((states, [], []), 5))
    assert read(written(states, [], [], {}, False)[0]).states == read(row).states
