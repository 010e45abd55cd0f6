r"""CSV as in RFC 4180: a header, texts in quotes, quotes doubled, NULL as an empty field.

An empty text is `""`. In a file with one column, where an empty field is an empty line, NULL is `"\N"`. Numbers, dates
and timestamps are written so that Spark reads them back, for all years.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from lockgate_taskmanager.spark.sinks.value_text import date_text, float_text, is_special, timestamp_text, within_years

_NO_VALUE = "\\N"


def write(table: pa.Table, stream: pa.NativeFile) -> None:
    """Writes the header and the lines of `table`."""
    for position, name in enumerate(table.column_names):
        column = table.column(position)
        text = [_as_text(chunk) for chunk in column.chunks] if _needs_text(column) else None
        if text:
            table = table.set_column(position, name, pa.chunked_array(text, pa.string()))
    if table.num_columns == 1 and table.column(0).null_count:
        only = table.column(0).cast(pa.string())
        table = table.set_column(0, table.column_names[0], pc.fill_null(only, _NO_VALUE))
    pacsv.write_csv(table, stream)


def _needs_text(column: pa.ChunkedArray) -> bool:
    """Whether Arrow's text form of some value is one that Spark does not read back."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(is_special(column)).as_py())
    return (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) and not all(map(within_years, column.chunks))


def _as_text(column: pa.Array) -> pa.Array:
    if pa.types.is_floating(column.type):
        return float_text(column)
    return date_text(column) if pa.types.is_date(column.type) else timestamp_text(column)
