"""Keys as people write them, of types whose text is not obvious."""

from __future__ import annotations

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
