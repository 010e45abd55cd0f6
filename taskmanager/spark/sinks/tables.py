"""Database tables that fit Arrow schemas: made when missing, checked when there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import OperationalError, ProgrammingError

from taskmanager.task.program import UserError

_LEDGER = "lockgate_commits"
SQLITE_DIGITS = 15
"""Of a DECIMAL that SQLite's numbers keep apart and give back; longer ones are kept as text there."""


def split(name: str) -> tuple[str | None, str]:
    """Schema (None: the connection's own) and plain name of a table called `schema.name` or `name`."""
    namespace, _, plain = name.rpartition(".")
    return namespace or None, plain


def ledger(metadata: sa.MetaData, namespace: str | None) -> sa.Table:
    """The table that says up to which checkpoint a sink's output is in the database; in the schema of the output."""
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
    """Creates the table unless it is there; another subtask may be doing the same."""
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
    wanted = sa.Table(plain, sa.MetaData(), *_columns(schema, keys, where, dialect), schema=namespace)
    ensure(engine, wanted)
    found = sa.Table(plain, sa.MetaData(), schema=namespace, autoload_with=engine)
    _check_digits(dialect, schema, found, f"{where}: the table {wanted.fullname}")
    _check(engine, wanted, found, keys, where)
    return wanted


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
            names = ", ".join(one.name for one in found.columns)
            raise UserError(f"{title} has no column '{column.name}'; its columns are: {names}")
        theirs = found.columns[column.name].type
        if not _fits(engine.dialect.name, column.type, theirs):
            raise UserError(f"{title} has column '{column.name}' as {theirs}, but the rows have {column.type}; cast it")
    for column in found.columns:
        if column.name not in wanted.columns and _is_demanded(engine.dialect.name, column):
            raise UserError(f"{title} demands a value for column '{column.name}', which the rows do not have")
    if keys and set(keys) not in _unique_sets(engine, found):
        raise UserError(
            f"{title} has no primary key or unique constraint on ({', '.join(keys)}), which the upsert needs"
        )


def _check_digits(dialect: str, schema: pa.Schema, found: sa.Table, title: str) -> None:
    """Raises UserError when a column would round DECIMAL: two keys might become one."""
    for field in schema:
        if field.name not in found.columns or not pa.types.is_decimal(field.type):
            continue
        theirs, digits, scale = found.columns[field.name].type, field.type.precision, field.type.scale
        if dialect == "sqlite":
            rounds = digits > SQLITE_DIGITS and not isinstance(theirs, sa.String | sa.types.NullType)
        elif isinstance(theirs, sa.Float):
            rounds = digits > SQLITE_DIGITS
        else:
            rounds = isinstance(theirs, sa.Numeric) and theirs.scale is not None and theirs.scale < scale
        if rounds:
            wanted = "TEXT" if dialect == "sqlite" else f"NUMERIC({digits}, {scale})"
            raise UserError(
                f"{title} has column '{field.name}' as {theirs}, which rounds the rows' DECIMAL({digits},{scale}):"
                f" make the column {wanted}, or cast to DECIMAL with fewer digits"
            )


def _unique_sets(engine: sa.Engine, table: sa.Table) -> list[set[str]]:
    inspector = sa.inspect(engine)
    sets = [{column.name for column in table.primary_key.columns}]
    sets += [set(one["column_names"]) for one in inspector.get_unique_constraints(table.name, schema=table.schema)]
    # SQLAlchemy does not see every inline UNIQUE of SQLite; the index behind it is there
    automatic = {"include_auto_indexes": True} if engine.dialect.name == "sqlite" else {}
    indexes = inspector.get_indexes(table.name, schema=table.schema, **automatic)
    whole = [one for one in indexes if one["unique"] and not one.get("dialect_options", {}).get("postgresql_where")]
    sets += [{str(name) for name in one["column_names"]} for one in whole]
    return sets


def _is_demanded(dialect: str, column: sa.Column[Any]) -> bool:
    """True when a row without a value for it is refused. SQLite numbers an integer primary key by itself."""
    is_filled = column.server_default is not None or column.identity is not None or column.computed is not None
    return not (column.nullable or is_filled or (column.primary_key and dialect == "sqlite"))


# Pairs of (ours, theirs) that the database converts without loss, or refuses with a sentence where a value does not fit
_NUMBERS = (sa.Integer, sa.Numeric, sa.Float)
_LOOSE = (  # SQLite keeps nearly every value as it is, whatever the column is declared as
    ((*_NUMBERS, sa.Boolean), (*_NUMBERS, sa.Boolean)),
    ((sa.String,), (sa.String,)),
    ((sa.Date, sa.DateTime), (sa.Date, sa.DateTime)),
    ((sa.LargeBinary,), (sa.LargeBinary,)),
)
_STRICT = (  # PostgreSQL would round numbers and cut timestamps off, and refuses the rest row by row
    ((sa.Boolean,), (sa.Boolean,)),
    ((sa.Integer,), _NUMBERS),
    ((sa.Float, sa.Numeric), (sa.Float, sa.Numeric)),
    ((sa.String,), (sa.String,)),
    ((sa.Date,), (sa.Date, sa.DateTime)),
    ((sa.DateTime,), (sa.DateTime,)),
    ((sa.LargeBinary,), (sa.LargeBinary,)),
)


def _fits(dialect: str, ours: Any, theirs: Any) -> bool:
    """True unless the two types clearly hold different things."""
    if isinstance(theirs, sa.types.NullType):
        return True
    if dialect == "postgresql" and isinstance(theirs, postgresql.ENUM):
        return False
    pairs = _STRICT if dialect == "postgresql" else _LOOSE
    return any(isinstance(ours, mine) and isinstance(theirs, other) for mine, other in pairs)
