"""Keys of queries, as authors write them."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from lockgate.client.errors import ClientError
from lockgate.client.key_json import key_json


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ([1, "a", None, True], '[1, "a", null, true]'),
        ((Decimal("1.10"),), '["1.10"]'),
        ([dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC)], '["2026-01-02T03:00:00+00:00"]'),
        ([dt.date(2026, 1, 2), dt.time(3, 4)], '["2026-01-02", "03:04:00"]'),
        ([b"\x0a\xff"], '["0aff"]'),
        ([np.int64(3), np.float64(0.5)], '["3", 0.5]'),
        ([np.float32(0.1), np.bool_(True), np.bool_(False)], '["0.10000000149011612", true, false]'),
        ([math.nan, math.inf, -math.inf], '["nan", "inf", "-inf"]'),
        ([np.float64("nan"), np.float32("-inf")], '["nan", "-inf"]'),
        ([bytearray(b"\x0a\xff"), memoryview(b"\x01")], '["0aff", "01"]'),
    ],
)
def test_each_value_is_written_as_it_is_read(key: Any, text: str) -> None:
    assert key_json(key) == text


@pytest.mark.parametrize("key", ["the", b"the", bytearray(b"the"), 7, None, {"a": 1}])
def test_a_value_alone_is_no_key(key: Any) -> None:
    with pytest.raises(ClientError, match="a key is a list with a value for each key column, such as"):
        key_json(key)


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, np.array([True]), np.datetime64("2026-01-02")])
def test_a_value_that_no_column_holds_is_named(value: Any) -> None:
    with pytest.raises(ClientError, match="give a number, a text, a decimal, a date, a time or bytes"):
        key_json([value])
