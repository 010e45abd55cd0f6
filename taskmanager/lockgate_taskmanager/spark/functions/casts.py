"""Columns of another type as columns of a schema, where that keeps every value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.spark.functions.rows import WrongResult, described

_REFUSED = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)
_types = pa.types


def fitted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """Of the field's type. Numbers become other numbers where they keep their value; text is never parsed.

    Raises WrongResult with the first value that does not fit.
    """
    if _types.is_dictionary(column.type):  # a pandas category
        column = column.cast(column.type.value_type)
    made = _cast(column, field.type)
    if made is not None:
        return made
    index = _first_misfit(column, field.type)
    value = described(column[index].as_py())
    raise WrongResult(f"returned {value} for column '{field.name}', which is {field.type}", index)


def has_map(kind: pa.DataType) -> bool:
    """At any depth."""
    return _types.is_map(kind) or any(has_map(kind.field(index).type) for index in range(kind.num_fields))


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """None: some value would not be kept."""
    if column.type == kind:
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column), kind)])
    if not _is_alike(column.type, kind):
        return None
    try:
        made = column.cast(kind)
        is_kept = all(_is_kept(before, after) for before, after in zip(column.chunks, made.chunks, strict=True))
    except _REFUSED:
        return None
    return made if is_kept else None


def _first_misfit(column: pa.ChunkedArray, kind: pa.DataType) -> int:
    """The first value that cannot be cast; by bisection, as whether the first n can be cast changes once."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if _cast(column.slice(low, middle - low), kind) is None:
            high = middle
        else:
            low = middle
    return low


def _is_alike(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a value of the one type may be one of the other."""
    if given == kind or _types.is_null(given):
        return True
    if _types.is_struct(given) and _types.is_struct(kind):
        fields = {field.name: field.type for field in kind}
        return all(field.name in fields and _is_alike(field.type, fields[field.name]) for field in given)
    if _types.is_map(given) and _types.is_map(kind):
        return _is_alike(given.key_type, kind.key_type) and _is_alike(given.item_type, kind.item_type)
    if _is_list(given) and _is_list(kind):
        return _is_alike(given.value_type, kind.value_type)
    return any(is_one(given) and is_one(kind) for is_one in _FAMILIES)


def _is_kept(before: pa.Array, after: pa.Array) -> bool:
    """Arrow refuses to cut fractions and integers; not to round decimals, or to make floats infinite."""
    given, kind = before.type, after.type
    if given == kind or _types.is_null(given):
        return True
    if _types.is_struct(kind):
        parts = dict(zip((field.name for field in kind), after.flatten(), strict=True))
        names = [field.name for field in given]
        return all(_is_kept(part, parts[name]) for name, part in zip(names, before.flatten(), strict=True))
    if _types.is_map(kind):
        return _is_kept(before.keys, after.keys) and _is_kept(before.items, after.items)
    if _is_list(kind):
        return _is_kept(before.flatten(), after.flatten())
    if _types.is_floating(given) and _types.is_floating(kind):
        return _infinite(before) == _infinite(after)
    if _types.is_decimal(given) or _types.is_decimal(kind):
        return bool(after.cast(given).equals(before))
    return True


def _infinite(array: pa.Array) -> int:
    return int(pc.sum(pc.is_inf(array)).as_py() or 0)


def _is_list(kind: pa.DataType) -> bool:
    return bool(_types.is_list(kind) or _types.is_large_list(kind) or _types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(_types.is_integer(kind) or _types.is_floating(kind) or _types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(_types.is_string(kind) or _types.is_large_string(kind) or _types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    plain = _types.is_binary(kind) or _types.is_large_binary(kind) or _types.is_binary_view(kind)
    return bool(plain or _types.is_fixed_size_binary(kind))


_FAMILIES: tuple[Any, ...] = (
    _is_number,
    _is_text,
    _is_binary,
    _types.is_timestamp,
    _types.is_duration,
    _types.is_date,
)
