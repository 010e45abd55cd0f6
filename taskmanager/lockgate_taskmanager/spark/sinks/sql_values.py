"""Converts rows before a database compares their keys, or rejects a value that it cannot store.

SQLite has no DECIMAL, no NaN and no dates. A DECIMAL of more than 15 digits is stored as text with all its decimals, a
shorter one as a number; NaN, which SQLite would turn into NULL, is the text 'NaN'; dates and timestamps are text, the
latter in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lockgate_taskmanager.spark.sinks.sql_fit import SQLITE_DIGITS
from lockgate_taskmanager.spark.sinks.value_text import date_text, timestamp_text, within_years
from lockgate_taskmanager.task.program import DataError

_FIRST_YEAR = 1


def comparable_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One bit pattern for both zeros, and one for every NaN: Spark and databases treat them as the same key."""
    for key in keys:
        position = table.schema.get_field_index(key)
        column = table.column(position)
        if pa.types.is_floating(column.type):
            not_a_number = pa.scalar(float("nan"), column.type)
            plain = pc.add(column, pa.scalar(0, column.type))
            table = table.set_column(position, table.field(position), pc.if_else(pc.is_nan(plain), not_a_number, plain))
    return table


def require_storable(table: pa.Table, where: str) -> None:
    """Raises DataError with the column of a value that PostgreSQL, or its driver, cannot represent."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_string(field.type) and pc.any(pc.match_substring(column, "\x00")).as_py():
            text = f"column '{field.name}' has text with a NUL in it, which PostgreSQL cannot store; leave it BINARY"
            raise DataError(text, where=where, column=field.name)
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            is_known = all(map(within_years, column.chunks))
            if not is_known or pc.any(pc.less(pc.year(column), _FIRST_YEAR)).as_py():
                text = (
                    f"column '{field.name}' has a date before year 1 or after 9999, which cannot be written to"
                    " PostgreSQL; filter such rows out"
                )
                raise DataError(text, where=where, column=field.name)


Convert = Callable[[Any], Any]


def sqlite_values(column: pa.ChunkedArray, convert: Convert | None) -> list[Any]:
    """Values for the driver. convert: SQLAlchemy's own for the column's type, used for all other types."""
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
