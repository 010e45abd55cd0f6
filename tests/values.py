"""Random values of every type that leaves a Spark job, and rows as text that tells all values apart."""

from __future__ import annotations

import datetime as dt
import math
import os
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Kind = tuple[pa.DataType, st.SearchStrategy[Any]]
"""A type and its values. Moments may be numbers: Python has not all their years."""

SCALARS: list[Kind] = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-(2**7), 2**7 - 1)),
    (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float32(), st.floats(width=32) | st.just(-0.0)),
    (pa.float64(), st.floats() | st.just(-0.0)),
    (pa.decimal128(7, 2), st.decimals(-99999, 99999, places=2)),
    (pa.decimal128(38, 18), st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-18"))),
    (pa.string(), st.text(max_size=6) | st.text('"\\,\n\r\t \x00\x7fé€😀', max_size=6)),
    (pa.date32(), st.dates() | st.integers(-(2**31), 2**31 - 1)),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC)) | st.integers(-(2**63), 2**63 - 1)),
    (pa.timestamp("us"), st.datetimes() | st.integers(-(2**63), 2**63 - 1)),
]
BINARY: Kind = (pa.binary(), st.binary(max_size=7))
INTERVAL: Kind = (pa.duration("us"), st.integers(-(2**63), 2**63 - 1))
MAP_KEYS: list[Kind] = [(pa.string(), st.text(max_size=5)), (pa.int32(), st.integers(-9, 9)), BINARY]
EXTREMES = pa.table(
    {
        "d": pa.array([-(2**31), 2**31 - 1, -719_529, 2_932_897], pa.int32()).cast(pa.date32()),
        "t": pa.array([-(2**63), 2**63 - 1, -(10**17), 10**18], pa.int64()).cast(pa.timestamp("us", "UTC")),
        "n": pa.array([-(2**63), 2**63 - 1, -1, 0], pa.int64()).cast(pa.timestamp("us")),
        "x": [-0.0, math.inf, math.nan, 5e-324],
        "y": pa.array([-0.0, -math.inf, 3.4028234663852886e38, 1e-45], pa.float32()),
        "s": ["", 'a "b", \\', "line\r\nline", None],
        "z": pa.array([Decimal("1E-38"), Decimal("-0.5"), Decimal(0), None], pa.decimal128(38, 38)),
    }
)
FEW = settings(
    max_examples=int(os.environ.get("LOCKGATE_TEST_EXAMPLES", "8")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def nested(plain: Sequence[Kind], keys: Sequence[Kind]) -> st.SearchStrategy[Kind]:
    """Arrays, structs and maps of plain kinds, and of each other. keys: for maps."""
    return st.recursive(st.sampled_from(plain), lambda inner: _nested(inner, st.sampled_from(keys)), max_leaves=4)


def _nested(inner: st.SearchStrategy[Kind], keys: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    def many(kind: Kind) -> Kind:
        return pa.list_(kind[0]), st.lists(st.none() | kind[1], max_size=3)

    def struct(kinds: list[Kind]) -> Kind:
        fields = {f"f{n}": kind for n, kind in enumerate(kinds)}
        made = pa.struct([(name, kind[0]) for name, kind in fields.items()])
        return made, st.fixed_dictionaries({name: st.none() | kind[1] for name, kind in fields.items()})

    def mapped(pair: tuple[Kind, Kind]) -> Kind:
        key, value = pair
        entries = st.lists(st.tuples(key[1], st.none() | value[1]), max_size=3, unique_by=lambda entry: repr(entry[0]))
        return pa.map_(key[0], value[0]), entries

    return inner.map(many) | st.lists(inner, min_size=1, max_size=3).map(struct) | st.tuples(keys, inner).map(mapped)


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of a kind's values."""
    return pa.array(_numbers(list(values), kind), as_numbers(kind)).cast(kind)


def as_numbers(kind: pa.DataType) -> pa.DataType:
    """The type with numbers in the place of times, which Python does not have in all their years."""
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_list(kind):
        return pa.list_(as_numbers(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(as_numbers(kind.key_type), as_numbers(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, as_numbers(field.type)) for field in kind])
    return kind


def _numbers(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, dt.datetime):
        return (value.replace(tzinfo=dt.UTC) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, list | tuple):
        return type(value)(_numbers(inner, kind) for inner in value)
    return {name: _numbers(inner, kind) for name, inner in value.items()} if isinstance(value, dict) else value


def rows(found: pa.Table) -> list[str]:
    """Each row as text that tells NaN, both zeros and every moment apart; in an order of its own."""
    plain = [column.cast(as_numbers(column.type)).to_pylist() for column in found.columns]
    return sorted(repr(_sorted_maps(row)) for row in zip(*plain, strict=True))


def _sorted_maps(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(entry, tuple) for entry in value):
        return sorted(((key, _sorted_maps(inner)) for key, inner in value), key=repr)
    if isinstance(value, list | tuple):
        return [_sorted_maps(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _sorted_maps(inner) for name, inner in value.items()}
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
