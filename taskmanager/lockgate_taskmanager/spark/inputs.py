"""Checks that the inputs of a vertex have the same columns."""

from __future__ import annotations

import pyarrow as pa

from lockgate_taskmanager.task.program import UserError

Sent = tuple[str, pa.Schema]
"""The sender's name in messages, and its columns."""


def plain(schema: pa.Schema) -> pa.Schema:
    """Names and types only."""
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def require_same(first: Sent, other: Sent, vertex_id: str) -> None:
    """Raises UserError unless both inputs of a union have the same columns (in any order) and types."""
    ours = {field.name: field.type for field in first[1]}
    theirs = {field.name: field.type for field in other[1]}
    if ours == theirs:
        return
    raise UserError(
        f"the inputs of {vertex_id} differ: {first[0]} sends ({_columns(first[1])}),"
        f" {other[0]} sends ({_columns(other[1])}); give them the same columns and types with SELECT and CAST"
    )


def like(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with its columns in the order of `schema`."""
    return table if table.schema.equals(schema) else table.select(schema.names).cast(schema)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
