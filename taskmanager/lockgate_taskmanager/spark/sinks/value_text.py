"""Plain values as text that Spark's readers of CSV and JSON parse to the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = Any  # numpy.ndarray
_DAY_US = 86_400_000_000
# Arrow's own text is correct for these years only; outside them it is wrong or missing.
_FIRST_DAY, _LAST_DAY = -719_528, 2_932_896  # 0000-01-01 and 9999-12-31
_SPECIAL = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "-0": "-0.0"}


def float_text(column: pa.Array) -> pa.Array:
    """The shortest text that parses to the same number; a negative zero keeps its sign."""
    text = column.cast(pa.string())
    for found, written in _SPECIAL.items():
        text = pc.if_else(pc.equal(text, found), written, text)
    return text


def is_special(column: pa.Array) -> pa.Array:
    """True where a number cannot be written in JSON: NaN and infinities."""
    return pc.invert(pc.is_finite(column))


def date_text(column: pa.Array) -> pa.Array:
    """`2026-01-02`; years beyond 9999 have more digits and a sign."""
    return _in_years(column, _day_text)


def timestamp_text(column: pa.Array) -> pa.Array:
    """`2026-01-02T03:04:05.000006`, with a Z where it is an instant. column: in microseconds."""
    return _in_years(column, _moment_text if column.type.tz is None else _instant_text)


def within_years(column: pa.Array) -> bool:
    """Whether Arrow's own text of every value is correct. column: dates, or timestamps in microseconds."""
    return not _outside(_numbers(column), column.type).any()


def _numbers(column: pa.Array) -> Numbers:
    """Days or microseconds since 1970, 0 for NULL."""
    is_date = pa.types.is_date(column.type)
    numbers = column.cast(pa.int32() if is_date else pa.int64()).fill_null(0)
    return numbers.to_numpy(zero_copy_only=False).astype(np.int64)


def _outside(numbers: Numbers, kind: pa.DataType) -> Numbers:
    unit = 1 if pa.types.is_date(kind) else _DAY_US
    return (numbers < _FIRST_DAY * unit) | (numbers >= (_LAST_DAY + 1) * unit)


def _in_years(column: pa.Array, text_of: Callable[[int], str]) -> pa.Array:
    """Arrow's text; where it is wrong the text from `text_of`, value by value."""
    numbers = _numbers(column)
    outside = _outside(numbers, column.type)
    if outside.any():
        column = pc.if_else(pa.array(outside), pa.scalar(None, column.type), column)
    text = column.cast(pa.string())
    if pa.types.is_timestamp(column.type):
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
    if not outside.any():
        return text
    return pc.replace_with_mask(
        text, pa.array(outside), pa.array([text_of(int(number)) for number in numbers[outside]])
    )


def _day_text(day: int) -> str:
    """The proleptic Gregorian date of a day since 1970: years of 400 begin in March."""
    era, day_of_era = divmod(day + 719_468, 146_097)
    year = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    whole = year + era * 400 + (month <= 2)
    sign = "-" if whole < 0 else "+"
    return f"{sign}{abs(whole):04}-{month:02}-{day_of_year - (153 * shifted + 2) // 5 + 1:02}"


def _moment_text(moment_us: int) -> str:
    day, rest = divmod(moment_us, _DAY_US)
    seconds, micros = divmod(rest, 1_000_000)
    return f"{_day_text(day)}T{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"


def _instant_text(moment_us: int) -> str:
    return _moment_text(moment_us) + "Z"
