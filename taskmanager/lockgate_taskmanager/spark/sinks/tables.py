"""Database tables that match Arrow schemas: created when missing, checked when present."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError

from lockgate_taskmanager.spark.sinks.file_types import spelled
from lockgate_taskmanager.spark.sinks.sql_fit import SQLITE_DIGITS, fits, keeps
from lockgate_taskmanager.task.program import UserError

_LEDGER = "lockgate_commits"
_NAME_BYTES = 63  # of an identifier in PostgreSQL with default build options


def split(name: str) -> tuple[str | None, str]:
    """Schema (None: the connection's own) and plain name of a table called `schema.name` or `name`."""
    namespace, _, plain = name.rpartition(".")
    return namespace or None, plain


def ledger(metadata: sa.MetaData, namespace: str | None) -> sa.Table:
    """The table that records up to which checkpoint a sink's output is in the database; in the schema of the output."""
    names = ("job", "run", "operator")
    return sa.Table(
        _LEDGER,
        metadata,
        *[sa.Column(name, sa.String(255), primary_key=True) for name in names],
        sa.Column("subtask", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checkpoint", sa.BigInteger, nullable=False),
        schema=namespace,
    )


def ensure(engine: sa.Engine, table: sa.Table) -> None:
    """Creates the table unless it exists; another subtask may be doing the same."""
    for last_try in (False, False, True):
        try:
            table.create(engine, checkfirst=True)
            return
        except (OperationalError, ProgrammingError, sa.exc.IntegrityError):
            if last_try and not sa.inspect(engine).has_table(table.name, schema=table.schema):
                raise


def target(engine: sa.Engine, name: str, schema: pa.Schema, keys: Sequence[str], where: str) -> sa.Table:
    """The sink's table, created or checked. keys: none for appending. Raises UserError when it does not fit."""
    missing = [key for key in keys if key not in schema.names]
    if missing:
        columns = ", ".join(schema.names)
        raise UserError(f"{where}: unknown key column '{missing[0]}'; the columns are: {columns}")
    namespace, plain = split(name)
    dialect = engine.dialect.name
    if dialect == "sqlite" and namespace not in (None, "main"):
        raise UserError(f"{where}: SQLite has no schema '{namespace}'; write the table's name without it")
    for identifier in (namespace or "", plain, *schema.names):
        _check_name(dialect, identifier, where)
    wanted = sa.Table(plain, sa.MetaData(), *_columns(schema, keys, where, dialect), schema=namespace)
    ensure(engine, wanted)
    found = sa.Table(plain, sa.MetaData(), schema=namespace, autoload_with=engine)
    _check_kept(engine.dialect, schema, found, wanted, f"{where}: the table {wanted.fullname}")
    _check(engine, wanted, found, keys, where)
    return wanted


def _check_name(dialect: str, name: str, where: str) -> None:
    """Raises UserError for a name that PostgreSQL would silently truncate."""
    length = len(name.encode())
    if dialect == "postgresql" and length > _NAME_BYTES:
        raise UserError(
            f"{where}: the name '{name}' has {length} bytes, and PostgreSQL keeps only {_NAME_BYTES}: give it a shorter"
            " one, a column with AS"
        )


def _columns(schema: pa.Schema, keys: Sequence[str], where: str, dialect: str) -> list[sa.Column[Any]]:
    return [
        sa.Column(
            field.name,
            _sql_type(field, where, dialect),
            primary_key=field.name in keys,
            autoincrement=False,
            nullable=field.name not in keys,
        )
        for field in schema
    ]


def _sql_type(field: pa.Field, where: str, dialect: str) -> Any:
    kind = field.type
    simple: Sequence[tuple[Any, Any]] = (
        (pa.types.is_boolean, sa.Boolean()),
        (pa.types.is_int64, sa.BigInteger()),
        (pa.types.is_integer, sa.Integer()),
        (pa.types.is_floating, sa.Double()),
        (pa.types.is_string, sa.Text()),
        (pa.types.is_large_string, sa.Text()),
        (pa.types.is_binary, sa.LargeBinary()),
        (pa.types.is_date, sa.Date()),
    )
    for test, column_type in simple:
        if test(kind):
            return column_type
    if pa.types.is_decimal(kind):
        if dialect == "sqlite" and kind.precision > SQLITE_DIGITS:
            return sa.Text()
        return sa.Numeric(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return sa.DateTime(timezone=kind.tz is not None)
    raise UserError(
        f"{where}: column '{field.name}' of type {kind} has no counterpart in SQL; cast it to a plain value"
    )


def _check(engine: sa.Engine, wanted: sa.Table, found: sa.Table, keys: Sequence[str], where: str) -> None:
    title = f"{where}: the table {wanted.fullname}"
    for column in wanted.columns:
        if column.name not in found.columns:
            names = ", ".join(column.name for column in found.columns)
            raise UserError(f"{title} has no column '{column.name}'; its columns are: {names}")
        theirs = found.columns[column.name].type
        if not fits(engine.dialect.name, column.type, theirs):
            raise UserError(f"{title} has column '{column.name}' as {theirs}, but the rows have {column.type}; cast it")
    for column in found.columns:
        if column.name not in wanted.columns and _is_demanded(engine.dialect.name, column):
            raise UserError(f"{title} requires a value for column '{column.name}', which the rows do not have")
    if keys and set(keys) not in _unique_sets(engine, found):
        raise UserError(
            f"{title} has no primary key or unique constraint on ({', '.join(keys)}), which the upsert needs"
        )


def _check_kept(dialect: sa.Dialect, schema: pa.Schema, found: sa.Table, wanted: sa.Table, title: str) -> None:
    """Raises UserError when a column would change values: two keys might become one."""
    for field in schema:
        if field.name not in found.columns or keeps(dialect.name, field.type, found.columns[field.name].type):
            continue
        theirs, ours = found.columns[field.name].type, spelled(field.type)
        fitting = wanted.columns[field.name].type.compile(dialect=dialect)
        raise UserError(
            f"{title} has column '{field.name}' as {theirs}, which does not keep the rows' {ours}: make the column"
            f" {fitting}, or cast the rows to its type"
        )


def _unique_sets(engine: sa.Engine, table: sa.Table) -> list[set[str]]:
    inspector, dialect = sa.inspect(engine), engine.dialect.name
    sets = [{column.name for column in table.primary_key.columns}]
    sets += [
        set(get_unique_constraint["column_names"])
        for get_unique_constraint in inspector.get_unique_constraints(table.name, schema=table.schema)
    ]
    # SQLAlchemy does not see every inline UNIQUE of SQLite, but the index exists
    automatic = {"include_auto_indexes": True} if dialect == "sqlite" else {}
    indexes = inspector.get_indexes(table.name, schema=table.schema, **automatic)
    whole = [
        index
        for index in indexes
        if index["unique"] and index.get("dialect_options", {}).get(f"{dialect}_where") is None
    ]
    sets += [{str(name) for name in index["column_names"]} for index in whole]
    return sets


def _is_demanded(dialect: str, column: sa.Column[Any]) -> bool:
    """True when a row without a value for it is refused. SQLite generates the values of an integer primary key."""
    is_filled = column.server_default is not None or column.identity is not None or column.computed is not None
    return not (column.nullable or is_filled or (column.primary_key and dialect == "sqlite"))
