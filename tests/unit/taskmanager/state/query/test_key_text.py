"""Keys as people write them, of types whose text is not obvious."""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow as pa
import pytest
from lockgate_taskmanager.state.query.key_text import key_of, plain, row_json
from lockgate_taskmanager.task.program import UserError

TYPES = {
    "binary": pa.binary(),
    "large binary": pa.large_binary(),
    "zoned": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
}


@pytest.mark.parametrize("kind", ["binary", "large binary"])
def test_bytes_are_read_as_they_are_printed(kind: str) -> None:
    key = key_of('["00ff61"]', pa.schema([("k", TYPES[kind])]))
    value = key.column(0)[0].as_py()
    assert value == b"\x00\xffa"
    assert plain(value) == "00ff61"


@pytest.mark.parametrize(
    ("kind", "key", "advice"),
    [
        ("binary", '["abc"]', "bytes are in hexadecimal, such as 0aff"),
        ("binary", "[12]", "bytes are in hexadecimal, such as 0aff"),
        ("zoned", '["2024-01-31T12:00:00"]', "a time needs its offset, such as 2024-01-31T12:00:00Z"),
        ("local", '["2024-01-31T12:00:00Z"]', "a time here has no offset, such as 2024-01-31T12:00:00"),
    ],
)
def test_the_advice_works(kind: str, key: str, advice: str) -> None:
    schema = pa.schema([("k", TYPES[kind])])
    with pytest.raises(UserError) as refused:
        key_of(key, schema)
    assert str(refused.value).endswith(advice)
    assert key_of(f'["{advice.rpartition(" ")[2]}"]', schema).num_rows == 1


def test_times_that_python_cannot_hold_are_numbers_with_a_unit_at_any_depth() -> None:
    far = pa.array([10**18], pa.timestamp("us", "UTC"))
    days = pa.array([10**7], pa.date32())
    lists = pa.ListArray.from_arrays(pa.array([0, 2]), pa.concat_arrays([far, pa.array([0], far.type)]))
    structs = pa.StructArray.from_arrays([lists, pa.array(["a  b"])], names=["times", "name"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1]), pa.array(["k"]), days)
    text, epoch = "1000000000000000000 us since 1970", "1970-01-01T00:00:00+00:00"
    assert row_json(["far", "structs", "maps"], [far, structs, maps]) == {
        "far": text,
        "structs": {"times": [text, epoch], "name": "a  b"},
        "maps": [["k", "10000000 days since 1970"]],
    }


@pytest.mark.parametrize(
    "kind",
    [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("s"), pa.timestamp("ns"), pa.date32()],
    ids=str,
)
@pytest.mark.parametrize("number", [2 * 10**9, -(2 * 10**9), 10**18, -(10**18)])
def test_any_time_is_a_key_in_the_form_in_which_it_is_printed(kind: pa.DataType, number: int) -> None:
    if pa.types.is_date32(kind):
        number = min(max(number, -(2**31)), 2**31 - 1)
    column = pa.array([number], kind)
    printed = row_json(["k"], [column])["k"]
    assert key_of(json.dumps([printed]), pa.schema([("k", kind)])).column(0).equals(column), printed


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("us"), "10 days since 1970"),
        (pa.timestamp("us"), "9999999999999999999 us since 1970"),
        (pa.timestamp("us"), "1000000000000000000 s since 1970"),
        (pa.date32(), "10 us since 1970"),
        (pa.date32(), "9999999999 days since 1970"),
        (pa.int64(), "10 us since 1970"),
    ],
    ids=str,
)
def test_what_the_column_cannot_hold_is_refused_in_words(kind: pa.DataType, text: str) -> None:
    with pytest.raises(UserError, match=f"^'{text}' is no value of the key column k"):
        key_of(json.dumps([text]), pa.schema([("k", kind)]))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_keys_as_they_are_printed(number: float) -> None:
    for kind in (pa.float32(), pa.float64()):
        column = key_of(json.dumps([plain(number)]), pa.schema([("k", kind)])).column(0)
        assert str(column[0].as_py()) == str(number)


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"a": 1, "b": {}}, {"a": 1, "b": {}}),
        ({1: "one", "1": "text"}, [[1, "one"], ["1", "text"]]),
        ({(1, b"\x0a"): math.nan}, [[[1, "0a"], "nan"]]),
    ],
)
def test_no_two_keys_of_a_dict_become_one(value: dict[Any, Any], printed: Any) -> None:
    assert plain(value) == printed
