"""Values as text in files: base64 of whole columns, dates that Arrow does not write, and what is no UTF-8."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_taskmanager.spark.sinks.base64_text import base64_text
from lockgate_taskmanager.spark.sinks.jsonlines import to_lines
from lockgate_taskmanager.spark.sinks.value_text import date_text, timestamp_text
from lockgate_taskmanager.spark.valid_text import made_valid, require_valid
from lockgate_taskmanager.task.program import DataError


@given(st.lists(st.none() | st.binary(max_size=9)), st.integers(0, 5), st.integers(0, 20))
def test_base64_of_a_column_is_that_of_each_value(values: list[bytes | None], start: int, count: int) -> None:
    column = pa.array(values, pa.binary()).slice(min(start, len(values)), count)
    text = base64_text(column)
    text.validate(full=True)
    expected = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
    assert text.to_pylist() == expected


@pytest.mark.parametrize(
    ("day", "text"),
    [
        (-(2**31), "-5877641-06-23"),
        (-719_893, "-0001-01-01"),
        (-719_529, "-0001-12-31"),
        (-719_528, "0000-01-01"),
        (2_932_896, "9999-12-31"),
        (2_932_897, "+10000-01-01"),
        (2**31 - 1, "+5881580-07-11"),
    ],
)
def test_dates_of_all_years_have_a_text(day: int, text: str) -> None:
    days = pa.array([0, day, None], pa.int32()).cast(pa.date32())
    assert date_text(days).to_pylist() == ["1970-01-01", text, None]
    moments = pa.array([day * 86_400_000_000 + 1], pa.int64()) if abs(day) < 10**8 else None
    if moments is not None:
        assert timestamp_text(moments.cast(pa.timestamp("us"))).to_pylist() == [f"{text}T00:00:00.000001"]
        assert timestamp_text(moments.cast(pa.timestamp("us", "UTC"))).to_pylist() == [f"{text}T00:00:00.000001Z"]


def test_nested_values_are_json_as_plain_ones_are() -> None:
    entries = pa.array([[("a", 1.5), ('b"', None)], None, []], pa.map_(pa.string(), pa.float64()))
    structs = pa.array([{"x": float("nan"), "b": b"\x01\x02"}, None, {"x": -0.0, "b": None}],
                       pa.struct([("x", pa.float32()), ("b", pa.binary())]))  # fmt: skip
    lists = pa.array([[["1\n", None], None, []], None, []], pa.list_(pa.list_(pa.string())))
    table = pa.table({"m": entries, "s": structs, "l": lists})
    lines = to_lines(table).decode().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"m": {"a": 1.5, 'b"': None}, "s": {"x": "NaN", "b": "AQI="}, "l": [["1\n", None], None, []]},
        {"m": None, "s": None, "l": None},
        {"m": {}, "s": {"x": 0, "b": None}, "l": []},
    ]
    assert '"x":-0.0' in lines[2]
    for start in range(4):
        assert to_lines(table.slice(start)).decode().splitlines() == lines[start:]


@given(st.lists(st.binary(max_size=12) | st.text(max_size=6).map(str.encode)))
def test_lines_are_made_valid_as_decoders_do_it(pieces: list[bytes]) -> None:
    assert made_valid(pieces) == [piece.decode("utf-8", "replace").encode() for piece in pieces]


def _invalid() -> pa.Array:
    return pa.array([b"ok", b"\xff", None]).view(pa.string())


@pytest.mark.parametrize(
    "column",
    [
        _invalid(),
        pa.ListArray.from_arrays([0, 3], _invalid()),
        pa.StructArray.from_arrays([_invalid()], ["x"]),
        pa.MapArray.from_arrays([0, 2], pa.array(["a", "b"]), _invalid()[:2]),
    ],
)
def test_text_that_is_not_utf8_is_refused_by_column_at_any_depth(column: pa.Array) -> None:
    with pytest.raises(DataError, match="operator 'o': column 'c' has text that is not UTF-8"):
        require_valid(pa.table({"c": column}), "operator 'o'")


def test_valid_text_and_bytes_pass() -> None:
    values: Sequence[pa.Array] = [pa.array([b"\xff"]), pa.array(["é"]), pa.array([["é", None]]), pa.array([1])]
    table = pa.table(list(values), names=list("abcd"))
    assert require_valid(table, "o") is table
