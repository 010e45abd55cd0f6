"""Columns of Parquet datasets in types that Spark has, including those encoded in folder names."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from lockgate_taskmanager.task.program import UserError

_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
}
_MOST_DIGITS = 38


def spark_schema(file: pq.ParquetFile, name: str) -> pa.Schema:
    """The schema in types that Spark has. name: of the file. Raises UserError for a column of an unsupported type.

    INT96, which Spark itself uses for TIMESTAMP, is an instant, as it is for Spark.
    """
    columns = file.schema
    physical = (columns.column(number).physical_type for number in range(len(columns)))
    fields = []
    for field in file.schema_arrow:
        try:
            fields.append(pa.field(field.name, _type(field.type, physical)))
        except _Unknown as error:
            raise UserError(
                f"column '{field.name}' of the source file {name} is {error}, which Spark cannot read:"
                " give the source a schema without it"
            ) from None
    return pa.schema(fields)


class _Unknown(Exception):
    """A type that has no counterpart."""


def _type(kind: pa.DataType, physical: Iterator[str]) -> pa.DataType:
    """physical: types of the leaves, in their order."""
    if isinstance(kind, pa.BaseExtensionType):
        return _type(kind.storage_type, physical)
    if pa.types.is_struct(kind):
        return pa.struct(
            [pa.field(member.name, _type(member.type, physical), metadata=member.metadata) for member in kind]
        )
    if pa.types.is_map(kind):
        return pa.map_(_type(kind.key_type, physical), _type(kind.item_type, physical))
    if _is_list(kind):
        return pa.list_(_type(kind.value_type, physical))
    stored = next(physical)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if stored == "INT96" else kind.tz)
    return _plain(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_null(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_decimal(kind) or pa.types.is_time(kind) or pa.types.is_interval(kind):
        raise _Unknown(str(kind))
    return _WIDER.get(kind, kind)


def _is_list(kind: pa.DataType) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
             pa.types.is_large_list_view)  # fmt: skip
    return any(test(kind) for test in tests)


_NULL = "__HIVE_DEFAULT_PARTITION__"


def partition_values(name: str) -> dict[str, str | None]:
    """The column values in a file's folder names, such as `day=2026-03-01/part-0.parquet`; None for NULL.

    name: of the file, below the source's path.
    """
    pairs = [folder.split("=", 1) for folder in name.split("/")[:-1] if "=" in folder]
    return {unquote(column): None if value == _NULL else unquote(value) for column, value in pairs if column}
