"""The types that a file format supports, so that Spark, and the sources here, read back equal values with the same
schema.

Unsupported types are refused before the first record. A value that only fails when it is written would fail at every
snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from lockgate_proto.messages import FileFormat
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import from_arrow_type

from lockgate_taskmanager.task.program import UserError

_NAMES = {FileFormat.PARQUET: "Parquet", FileFormat.CSV: "CSV", FileFormat.JSON_LINES: "JSON"}


def require_types(schema: pa.Schema, written: FileFormat, where: str) -> None:
    """Raises UserError for the first column with a type that files of this format do not support."""
    for name in _twice([field.name for field in schema]):
        raise UserError(f"{where}: two columns are named '{name}', ignoring case: rename one of them with AS")
    for field in schema:
        for path, kind, reason in _refused(field.name, field.type, written):
            raise UserError(f"{where}: {_NAMES[written]} cannot hold column '{path}' ({spelled(kind)}): {reason}")


def _refused(path: str, kind: pa.DataType, written: FileFormat) -> Iterator[tuple[str, pa.DataType, str]]:
    """The unsupported part of a type: path from the column on, type, and a remedy."""
    reason = _CSV.get(_shape(kind)) if written is FileFormat.CSV else None
    if written is FileFormat.JSON_LINES:
        reason = _json(kind)
    if written is FileFormat.PARQUET and pa.types.is_struct(kind) and not kind.num_fields:
        reason = "it has no fields"
    if pa.types.is_struct(kind):
        doubled = _twice([field.name for field in kind])
        reason = f"two of its fields are named '{doubled[0]}', ignoring case" if doubled else reason
    if reason or _shape(kind) == "unknown":
        yield path, kind, reason or "Spark could not read it; CAST it to another type"
    for name, inner in _inside(kind):
        yield from _refused(f"{path}.{name}", inner, written)


def _json(kind: pa.DataType) -> str | None:
    if pa.types.is_map(kind) and _shape(kind.key_type) != "string":
        return "the names in its objects are text; CAST its keys to STRING"
    return "CAST it to STRING" if pa.types.is_duration(kind) else None


_CSV = {
    "nested": "it is not a plain value; use to_json(...)",
    "binary": "readers would interpret its bytes as text; use base64(...)",
    "interval": "CAST it to STRING",
}


def _shape(kind: pa.DataType) -> str:
    for shape, tests in _SHAPES.items():
        if any(test(kind) for test in tests):
            return shape
    return "unknown"


_SHAPES = {
    "string": (pa.types.is_string, pa.types.is_large_string),
    "nested": (pa.types.is_struct, pa.types.is_list, pa.types.is_map),
    "binary": (pa.types.is_binary, pa.types.is_large_binary),
    "interval": (pa.types.is_duration,),
    "plain": (
        pa.types.is_boolean,
        pa.types.is_signed_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_decimal,
        pa.types.is_date32,
        pa.types.is_timestamp,
    ),
}


def _inside(kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
    if pa.types.is_struct(kind):
        return [(field.name, field.type) for field in kind]
    if pa.types.is_map(kind):
        return [("key", kind.key_type), ("value", kind.item_type)]
    return [("element", kind.value_type)] if pa.types.is_list(kind) else []


def _twice(names: list[str]) -> list[str]:
    """Names that repeat an earlier one, ignoring case: Spark's readers treat them as the same."""
    folded = [name.casefold() for name in names]
    return [name for position, name in enumerate(names) if folded[position] in folded[:position]]


def spelled(kind: pa.DataType) -> str:
    """The type in the form that authors use."""
    try:
        return str(from_arrow_type(kind).simpleString()).upper()
    except PySparkException:
        return str(kind)
