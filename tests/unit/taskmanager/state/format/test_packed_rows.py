"""Rows of keys whose states are numbers: packed, and read again whatever is declared then."""

from __future__ import annotations

import math
import pickle
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.state.format.key_payload import read, whole, written
from lockgate_taskmanager.state.format.packed_payloads import NEVER, Packing

CODES = {"total": "q", "mean": "d", "is_on": "?", "größe": "q"}
STATES = {"total": (-(1 << 63), 0), "mean": (math.inf, (1 << 62)), "is_on": (True, 5), "größe": ((1 << 63) - 1, 0)}


def packed(codes: dict[str, str], *some: dict[str, tuple[Any, int]]) -> list[bytes]:
    """The rows of keys with these states."""
    columns, expiries = ([[states[name][part] for states in some] for name in codes] for part in (0, 1))
    found: list[bytes] = Packing(codes).written(columns, expiries, range(len(some))).payloads.to_pylist()
    return found


def test_a_row_is_read_by_those_who_know_its_states_and_by_those_who_do_not() -> None:
    (row,) = packed(CODES, STATES)
    assert row.startswith(Packing(CODES).head)
    values, expiries, lasts, others = Packing(CODES).read(pa.array([row]))
    assert [(value, expiry) for (value,), (expiry,) in zip(values, expiries, strict=True)] == list(STATES.values())
    assert (lasts, others) == (False, [None])
    assert read(row) == (STATES, [], [], {})
    assert read(whole(row)) == read(row)
    for found in ([value for (value,) in values], [value for value, _ in read(row).states.values()]):
        assert [type(value) for value in found] == [int, float, bool, int]


@pytest.mark.parametrize("sliced", [False, True])
def test_rows_of_every_form_are_read_in_their_order(sliced: bool) -> None:
    first, second, third = packed({"total": "q"}, *({"total": (number, 3 * number)} for number in range(3)))
    (foreign,) = packed({"mean": "d"}, {"mean": (0.5, 0)})
    pickled, _ = written({"total": (7, 0)}, [5], [], {}, False)
    longer = first + b"surplus"
    rows = [None, first, pickled, second, foreign, b"", longer, third, None]
    given = pa.array([b"before", *rows])[1:] if sliced else pa.array(rows)
    found = Packing({"total": "q"}).read(given)
    assert found.values == [[None, 0, None, 1, None, None, None, 2, None]]
    assert found.expiries == [[0, 0, 0, 3, 0, 0, 0, 6, 0]]
    assert found.others == [None, None, pickled, None, foreign, b"", longer, None, None]
    assert not found.lasts


@pytest.mark.parametrize("rows", [[], [None], [None, b"", b"x"]])
def test_there_may_be_no_packed_row(rows: list[bytes | None]) -> None:
    found = Packing(CODES).read(pa.array(rows, pa.binary()))
    assert found == ([[None] * len(rows)] * 4, [[0] * len(rows)] * 4, True, rows)
    found.expiries[0][:] = [9] * len(rows)
    assert found.expiries[1] == [0] * len(rows), "each has its own list"


def test_a_value_that_is_not_a_number_is_one() -> None:
    ((value,),) = Packing({"mean": "d"}).read(pa.array(packed({"mean": "d"}, {"mean": (math.nan, 0)}))).values
    assert math.isnan(value)


@pytest.mark.parametrize(
    ("expiries", "last"), [((0, 0), NEVER), ((5, 0), NEVER), ((0, 5), NEVER), ((5, 7), 7), ((7, 5), 7)]
)
def test_a_key_expires_with_its_last_state(expiries: tuple[int, int], last: int) -> None:
    made = Packing({"a": "q", "b": "?"}).written([[1, 1], [True, True]], [[9, expiries[0]], [9, expiries[1]]], [1])
    assert made.expiries.tolist() == [last]


def test_a_row_of_other_states_is_another_form() -> None:
    (row,) = packed({"total": "q"}, {"total": (7, 0)})
    for codes in ({"total": "d"}, {"totals": "q"}, {"total": "q", "mean": "d"}, {"tota": "q"}):
        assert not row.startswith(Packing(codes).head)
        assert Packing(codes).read(pa.array([row])).others == [row]
    assert read(row).states == {"total": (7, 0)}


def test_a_packed_row_is_smaller_than_a_pickle() -> None:
    states = {"total": (123_456_789, 0)}
    (row,) = packed({"total": "q"}, states)
    assert len(row) < len(pickle.dumps((states, [], []), 5))
    assert read(written(states, [], [], {}, False)[0]).states == read(row).states
