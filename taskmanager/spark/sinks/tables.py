"""Database tables that fit Arrow schemas: made when missing, checked when there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, ProgrammingError, SQLAlchemyError

from taskmanager.task.program import UserError

_LEDGER = "lockgate_commits"


def ledger(metadata: sa.MetaData) -> sa.Table:
    """The table that says up to which checkpoint a sink's output is in the database."""
    names = ("job", "run", "operator")
    return sa.Table(
        _LEDGER,
        metadata,
        *[sa.Column(name, sa.String(255), primary_key=True) for name in names],
        sa.Column("subtask", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("checkpoint", sa.BigInteger, nullable=False),
    )


def ensure(engine: sa.Engine, table: sa.Table) -> None:
    """Creates the table unless it is there; another subtask may be doing the same."""
    for last_try in (False, False, True):
        try:
            table.create(engine, checkfirst=True)
            return
        except (OperationalError, ProgrammingError, sa.exc.IntegrityError):
            if last_try and not sa.inspect(engine).has_table(table.name, schema=table.schema):
                raise


def target(engine: sa.Engine, name: str, schema: pa.Schema, keys: Sequence[str], where: str) -> sa.Table:
    """The sink's table, created or checked. Raises UserError when it does not fit."""
    missing = [key for key in keys if key not in schema.names]
    if missing:
        columns = ", ".join(schema.names)
        raise UserError(f"{where}: unknown key column '{missing[0]}'; the columns are: {columns}")
    namespace, _, plain = name.rpartition(".")
    metadata = sa.MetaData()
    wanted = sa.Table(plain, metadata, *_columns(schema, keys, where), schema=namespace or None)
    ensure(engine, wanted)
    found = sa.Table(plain, sa.MetaData(), schema=namespace or None, autoload_with=engine)
    _check(engine, wanted, found, keys, where)
    return wanted


def _columns(schema: pa.Schema, keys: Sequence[str], where: str) -> list[sa.Column[Any]]:
    return [
        sa.Column(
            field.name,
            _sql_type(field, where),
            primary_key=field.name in keys,
            autoincrement=False,
            nullable=field.name not in keys,
        )
        for field in schema
    ]


def _sql_type(field: pa.Field, where: str) -> Any:
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
            names = ", ".join(one.name for one in found.columns)
            raise UserError(f"{title} has no column '{column.name}'; its columns are: {names}")
        theirs = found.columns[column.name].type
        if not _fits(column.type, theirs):
            raise UserError(f"{title} has column '{column.name}' as {theirs}, but the rows have {column.type}; cast it")
    for column in found.columns:
        demanded = not column.nullable and column.server_default is None and not column.primary_key
        if demanded and column.name not in wanted.columns:
            raise UserError(f"{title} demands a value for column '{column.name}', which the rows do not have")
    if set(keys) not in _unique_sets(engine, found):
        raise UserError(
            f"{title} has no primary key or unique constraint on ({', '.join(keys)}), which the upsert needs"
        )


def _unique_sets(engine: sa.Engine, table: sa.Table) -> list[set[str]]:
    inspector = sa.inspect(engine)
    sets = [{column.name for column in table.primary_key.columns}]
    sets += [set(one["column_names"]) for one in inspector.get_unique_constraints(table.name, schema=table.schema)]
    # SQLAlchemy does not see every inline UNIQUE of SQLite; the index behind it is there
    automatic = {"include_auto_indexes": True} if engine.dialect.name == "sqlite" else {}
    indexes = inspector.get_indexes(table.name, schema=table.schema, **automatic)
    sets += [{str(name) for name in one["column_names"]} for one in indexes if one["unique"]]
    return sets


def _fits(ours: Any, theirs: Any) -> bool:
    """True unless the two types clearly hold different things; databases convert within a family."""
    families = (
        (sa.Integer, sa.Numeric, sa.Boolean),
        (sa.Float, sa.Numeric),
        (sa.String,),
        (sa.Date, sa.DateTime),
        (sa.LargeBinary,),
    )
    if isinstance(theirs, sa.types.NullType):
        return True
    return any(isinstance(ours, family) and isinstance(theirs, family) for family in families)


def reason(error: SQLAlchemyError) -> str:
    """The database's own words, one line."""
    origin = getattr(error, "orig", None)
    return str(origin or error).strip().splitlines()[0]
