"""Columns as what SQLite keeps apart and gives back.

SQLite has no DECIMAL, no NaN and no dates. A DECIMAL of more than 15 digits is text with all its decimals, a shorter
one a number; NaN, which SQLite would take for NULL, is the text 'NaN'; dates and timestamps are text, those in UTC.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from taskmanager.spark.sinks.tables import SQLITE_DIGITS
from taskmanager.spark.sinks.value_text import date_text, timestamp_text

Convert = Callable[[Any], Any]


def sqlite_values(column: pa.ChunkedArray, convert: Convert | None) -> list[Any]:
    """Values for the driver. convert: SQLAlchemy's own for the column's type, for types that are none of the above."""
    kind = column.type
    if pa.types.is_date(kind):
        return [text for chunk in column.chunks for text in date_text(chunk).to_pylist()]
    if pa.types.is_timestamp(kind):
        return [text for chunk in column.chunks for text in _moments(chunk).to_pylist()]
    values: list[Any] = column.to_pylist()
    if pa.types.is_decimal(kind) and kind.precision > SQLITE_DIGITS:
        return [None if value is None else format(value, "f") for value in values]
    if pa.types.is_floating(kind) and pc.any(pc.is_nan(column)).as_py():
        return ["NaN" if value != value else value for value in values]
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _moments(column: pa.Array) -> pa.Array:
    return pc.replace_substring(timestamp_text(column.cast(pa.timestamp("us"))), "T", " ")
