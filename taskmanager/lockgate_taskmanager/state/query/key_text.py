"""Keys as people write them, and values as JSON. Pure."""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from lockgate_common.json_input import JsonError, parse_json

from lockgate_taskmanager.task.program import UserError

_SINCE_1970 = re.compile(r"(-?[0-9]{1,19}) (days|s|ms|us|ns) since 1970")


def key_of(text: str, keys: pa.Schema) -> pa.RecordBatch:
    """A key as one row. text: a JSON list with a value for each column. Raises UserError with a sentence."""
    try:
        values = parse_json(text)
    except JsonError as error:
        raise UserError(f"the key {_short(text)} cannot be read: {error}") from error
    names = ", ".join(keys.names)
    if not isinstance(values, list) or len(values) != len(keys):
        count = len(values) if isinstance(values, list) else 1
        raise UserError(
            f"the key {_short(text)} has {count} {'value' if count == 1 else 'values'}, and a key here has"
            f" {len(keys)}: {names}"
        )
    columns = [pa.array([_cast(value, field)], field.type) for value, field in zip(values, keys, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=keys)


def _cast(value: Any, field: pa.Field) -> pa.Scalar:
    if value is None:
        return pa.scalar(None, field.type)
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    is_binary = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    refused = f"{_short(value)} is no value of the key column {field.name}, which is {field.type}{_advice(field.type)}"
    if isinstance(value, list | dict) or ((is_text or is_binary) and not isinstance(value, str)):
        raise UserError(refused)
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else repr(value)
    try:
        if (moment := _since_1970(text, field.type)) is not None:
            return moment
        return pa.scalar(bytes.fromhex(text) if is_binary else text).cast(field.type)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise UserError(refused) from error


def _since_1970(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """A date or time in the form of `_readable`, None for any other text. Raises ArrowException, OverflowError."""
    found = _SINCE_1970.fullmatch(text)
    if found is None or not (pa.types.is_date32(kind) if found[2] == "days" else pa.types.is_timestamp(kind)):
        return None
    return pa.scalar(int(found[1]), kind if found[2] == "days" else pa.timestamp(found[2], kind.tz)).cast(kind)


def _advice(kind: pa.DataType) -> str:
    """How values of a type are written, where that is not obvious."""
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return "; a time here has no offset, such as 2024-01-31T12:00:00"
        return "; a time needs its offset, such as 2024-01-31T12:00:00Z"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "; bytes are in hexadecimal, such as 0aff"
    return ""


def row_json(names: Sequence[str], columns: Sequence[pa.Array], row: int = 0) -> dict[str, Any]:
    """A row as a JSON object."""
    return {name: _readable(column[row]) for name, column in zip(names, columns, strict=True)}


def _readable(value: pa.Scalar) -> Any:
    """As `plain`; a date or time that Python cannot hold, such as one of the year 10000, as a number with its unit."""
    try:
        return plain(value.as_py())
    except (OverflowError, ValueError):
        if isinstance(value, pa.StructScalar):
            return {name: _readable(item) for name, item in value.items()}
        if isinstance(value, pa.MapScalar):
            return [[_readable(item) for item in entry.values()] for entry in value.values]
        if isinstance(value, pa.ListScalar):
            return [_readable(item) for item in value.values]
        if isinstance(value, pa.TimestampScalar | pa.Date32Scalar):
            unit = "days" if isinstance(value, pa.Date32Scalar) else value.type.unit
            return f"{value.value} {unit} since 1970"
        raise


def plain(value: Any) -> Any:
    """A value as JSON has it: times in ISO form, decimals as text, bytes in hexadecimal, NaN and infinity as text.

    A dict with other keys than texts is a list of pairs, like a map: an object would have one value for 1 and "1".
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return value.hex()
        case dict():
            if all(isinstance(name, str) for name in value):
                return {name: plain(item) for name, item in value.items()}
            return [[plain(name), plain(item)] for name, item in value.items()]
        case list() | tuple():
            return [plain(item) for item in value]
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case decimal.Decimal() | datetime.timedelta():
            return str(value)
    return str(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text if len(text) <= 60 else f"{text[:60]}...")
