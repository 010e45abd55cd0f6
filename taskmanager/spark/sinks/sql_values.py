"""What has to be seen to in rows before a database compares their keys, or finds a value that it cannot store."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from taskmanager.spark.sinks.value_text import within_years
from taskmanager.task.program import DataError

_FIRST_YEAR = 1


def comparable_keys(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One bit pattern for both zeros, and one for every NaN: for Spark and for databases they are the same key."""
    for key in keys:
        position = table.schema.get_field_index(key)
        column = table.column(position)
        if pa.types.is_floating(column.type):
            not_a_number = pa.scalar(float("nan"), column.type)
            plain = pc.add(column, pa.scalar(0, column.type))
            table = table.set_column(position, table.field(position), pc.if_else(pc.is_nan(plain), not_a_number, plain))
    return table


def require_storable(table: pa.Table, where: str) -> None:
    """Raises DataError with the column of a value that PostgreSQL, or its driver, has no place for."""
    for field, column in zip(table.schema, table.columns, strict=True):
        if pa.types.is_string(field.type) and pc.any(pc.match_substring(column, "\x00")).as_py():
            text = f"column '{field.name}' has text with a NUL in it, which PostgreSQL cannot store; leave it BINARY"
            raise DataError(text, where=where, column=field.name)
        if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
            is_known = all(map(within_years, column.chunks))
            if not is_known or pc.any(pc.less(pc.year(column), _FIRST_YEAR)).as_py():
                text = (
                    f"column '{field.name}' has a date before year 1 or beyond 9999, which is not written to"
                    " PostgreSQL; filter such rows out"
                )
                raise DataError(text, where=where, column=field.name)
