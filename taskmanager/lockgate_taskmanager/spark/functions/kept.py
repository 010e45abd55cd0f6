"""Whether Arrow keeps values when it makes a column of them.

It refuses most values of another type, but makes 1 of 1.5 and characters of a text without a word.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_INTEGERS = frozenset({int, type(None)})
_BYTES = (bytes, bytearray, memoryview)


def are_kept(values: Sequence[Any], kind: pa.DataType) -> bool:
    """values: those of which Arrow has made an array of this type. Looks at their types, and only in doubt at each."""
    types, found = pa.types, set(map(type, values))
    found.discard(type(None))
    if types.is_integer(kind):
        return found <= _INTEGERS or all(map(_is_whole, values))
    if types.is_floating(kind):
        return bool not in found and (types.is_float64(kind) or _are_finite(values, kind))
    if _is_text(kind):
        return not _has(found, _BYTES)
    if types.is_binary(kind) or types.is_large_binary(kind):
        return not _has(found, (str,))
    if types.is_date(kind):
        return _are(found, (dt.date,)) and not _has(found, (dt.datetime,))
    if types.is_timestamp(kind):
        return found <= {dt.datetime} or (_are(found, (dt.datetime, np.datetime64)) and _are_micros(values))
    if types.is_duration(kind):
        return found <= {dt.timedelta} or (_are(found, (dt.timedelta, np.timedelta64)) and _are_micros(values))
    return _are_nested_kept(values, found, kind) if types.is_nested(kind) else True


def _are_nested_kept(values: Sequence[Any], found: Collection[type[Any]], kind: pa.DataType) -> bool:
    given = [value for value in values if value is not None]
    if pa.types.is_struct(kind):
        return _are_fields_kept(given, kind)
    if pa.types.is_map(kind):
        pairs = list(chain.from_iterable(value.items() if _is_mapping(value) else value for value in given))
        names = (kind.key_field.name, kind.item_field.name)
        pairs = [pair if type(pair) is tuple or not _is_mapping(pair) else list(map(pair.get, names)) for pair in pairs]
        return are_kept([pair[0] for pair in pairs], kind.key_type) and are_kept(
            [pair[1] for pair in pairs], kind.item_type
        )
    return not _has(found, (str, *_BYTES)) and are_kept(list(chain.from_iterable(given)), kind.value_type)


def _are_fields_kept(given: Sequence[Any], kind: pa.DataType) -> bool:
    names = [field.name for field in kind]
    known = frozenset(names)
    named, ordered = [], []
    for value in given:
        fields = dict(value) if isinstance(value, list) else value  # Arrow takes a list of pairs
        if _is_mapping(fields):
            if not fields.keys() <= known:
                return False
            named.append(fields)
        else:
            if list(getattr(fields, "_fields", names)) != names:  # a named tuple, to Arrow like any other
                return False
            ordered.append(fields)
    return all(
        are_kept([*(fields.get(field.name) for fields in named), *(fields[index] for fields in ordered)], field.type)
        for index, field in enumerate(kind)
    )


def _is_mapping(value: Any) -> bool:
    return type(value) is dict or isinstance(value, Mapping)  # the former is many times as fast


def _is_whole(value: Any) -> bool:
    if value is None or isinstance(value, int | np.integer | pa.Scalar):  # of a scalar Arrow checks the type itself
        return True
    if isinstance(value, np.bool_):
        return False
    try:
        return bool(value % 1 == 0)
    except (TypeError, ValueError, ArithmeticError):
        return False


def _are_finite(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether those are infinite that were so before."""
    infinite = pc.indices_nonzero(pc.is_inf(pa.array(values, kind))).to_pylist()
    return all(isinstance(values[index], pa.Scalar) or math.isinf(values[index]) for index in infinite)


def _are_micros(values: Sequence[Any]) -> bool:
    """pandas' times have nanoseconds."""
    return not any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in values)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _are(found: Collection[type[Any]], wanted: tuple[type[Any], ...]) -> bool:
    return all(issubclass(kind, (*wanted, pa.Scalar)) for kind in found)


def _has(found: Collection[type[Any]], unwanted: tuple[type[Any], ...]) -> bool:
    return any(issubclass(kind, unwanted) for kind in found)
