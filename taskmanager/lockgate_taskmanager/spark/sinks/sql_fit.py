"""Whether a database column returns every value that is written to it: pure, from two types.

A column that rounds, truncates or pads would merge two keys into one without an error.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

SQLITE_DIGITS = 15
"""Precision of a DECIMAL that SQLite's numbers represent exactly; longer ones are stored as text there."""

_NUMBERS = (sa.Integer, sa.Numeric, sa.Float)
_LOOSE = (  # pairs of (ours, theirs); SQLite stores nearly every value unchanged, whatever the declared type
    ((*_NUMBERS, sa.Boolean), (*_NUMBERS, sa.Boolean)),
    ((sa.String,), (sa.String,)),
    ((sa.Date, sa.DateTime), (sa.Date, sa.DateTime)),
    ((sa.LargeBinary,), (sa.LargeBinary,)),
)
_STRICT = (  # PostgreSQL would truncate timestamps, and refuses the others row by row
    ((sa.Boolean,), (sa.Boolean,)),
    ((sa.Integer,), _NUMBERS),
    ((sa.Float, sa.Numeric), (sa.Float, sa.Numeric)),
    ((sa.String,), (sa.String,)),
    ((sa.Date,), (sa.Date, sa.DateTime)),
    ((sa.DateTime,), (sa.DateTime,)),
    ((sa.LargeBinary,), (sa.LargeBinary,)),
)
_REAL_DIGITS, _DOUBLE_DIGITS = 6, 15  # of a decimal number that a float represents
_REAL_BITS, _DOUBLE_BITS = 24, 53  # of an integer
_MICROSECONDS = 6
_CUT = (sa.CHAR, postgresql.CITEXT)
"""Text types that return trailing spaces, or that compare upper and lower case as one key."""


def fits(dialect: str, ours: Any, theirs: Any) -> bool:
    """True unless the two types clearly hold different values. Both are SQLAlchemy's."""
    if isinstance(theirs, sa.types.NullType):
        return True
    if dialect == postgresql.dialect.name and isinstance(theirs, postgresql.ENUM):
        return False
    pairs = _STRICT if dialect == postgresql.dialect.name else _LOOSE
    return any(isinstance(ours, mine) and isinstance(theirs, other) for mine, other in pairs)


def keeps(dialect: str, kind: pa.DataType, theirs: Any) -> bool:
    """True when every value of `kind` that the column accepts is returned unchanged. theirs: fits, SQLAlchemy's."""
    if isinstance(theirs, sa.types.NullType):  # of an extension: the owner of the column is responsible
        return True
    if dialect != postgresql.dialect.name:
        return _sqlite_keeps(kind, theirs)
    if pa.types.is_decimal(kind):
        return _keeps_decimal(kind, theirs)
    if pa.types.is_integer(kind):
        return not isinstance(theirs, sa.Float) or kind.bit_width <= (_REAL_BITS if _is_real(theirs) else _DOUBLE_BITS)
    if pa.types.is_floating(kind):  # NUMERIC rounds a double to 15 digits, and has no negative zero
        return isinstance(theirs, sa.Float) and (pa.types.is_float32(kind) or not _is_real(theirs))
    if pa.types.is_timestamp(kind):
        precision = getattr(theirs, "precision", None)
        return precision is None or precision >= _MICROSECONDS
    return not isinstance(theirs, _CUT)


def _sqlite_keeps(kind: pa.DataType, theirs: Any) -> bool:
    if pa.types.is_decimal(kind):
        return bool(kind.precision <= SQLITE_DIGITS) or isinstance(theirs, sa.String)
    return not (pa.types.is_int64(kind) and isinstance(theirs, sa.Float))


def _keeps_decimal(kind: pa.DataType, theirs: Any) -> bool:
    if isinstance(theirs, sa.Float):
        return bool(kind.precision <= (_REAL_DIGITS if _is_real(theirs) else _DOUBLE_DIGITS))
    return not isinstance(theirs, sa.Numeric) or theirs.scale is None or theirs.scale >= kind.scale


def _is_real(theirs: Any) -> bool:
    return isinstance(theirs, sa.REAL) or (theirs.precision or _DOUBLE_BITS) <= _REAL_BITS
