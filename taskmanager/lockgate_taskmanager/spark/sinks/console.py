"""Prints batches as they arrive, for inspection only; they are printed again after a restart."""

from __future__ import annotations

import sys

import pyarrow as pa
from lockgate_common.printable import printable
from lockgate_proto.messages import ConsoleSink as ConsoleOptions

from lockgate_taskmanager.spark.sinks.none import NoSink
from lockgate_taskmanager.spark.sinks.transaction import SinkContext
from lockgate_taskmanager.spark.sinks.value_text import date_text, timestamp_text

_DEFAULT_ROWS = 20


class ConsoleSink(NoSink):
    """Prints rows as they arrive, and so has nothing to commit."""

    def __init__(self, context: SinkContext, options: ConsoleOptions) -> None:
        super().__init__(context)
        self._rows = options.rows or _DEFAULT_ROWS

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        more = table.num_rows - self._rows
        tail = f"\n... {more} more rows" if more > 0 else ""
        title = f"-- {self.context.operator_id}, subtask {self.context.subtask}: {table.num_rows} rows"
        print(f"{title}\n{_grid(table.slice(0, self._rows))}{tail}", file=sys.stdout, flush=True)


def _grid(table: pa.Table) -> str:
    """A line with the names of the columns and one for each row, aligned to the right."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        cells = [_on_one_line(text) for text in (name, *map(_text, column))]
        width = max(map(len, cells))
        columns.append([cell.rjust(width) for cell in cells])
    return "\n".join(map(" ".join, zip(*columns, strict=True)))


def _on_one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _text(value: pa.Scalar) -> str:
    """As in Spark's `show`. Python has no dates beyond 9999, and pandas makes whole numbers beside a NULL inexact."""
    kind = value.type
    if not value.is_valid:
        return "NULL"
    if pa.types.is_date(kind):
        return str(date_text(pa.array([value]))[0])
    if pa.types.is_timestamp(kind):
        return str(timestamp_text(pa.array([value]))[0])
    if pa.types.is_map(kind):
        keys, items = value.values.flatten()
        return "{" + ", ".join(f"{_text(key)} -> {_text(item)}" for key, item in zip(keys, items, strict=True)) + "}"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(_text(value[number]) for number in range(kind.num_fields)) + "}"
    if pa.types.is_list(kind):
        return "[" + ", ".join(map(_text, value.values)) + "]"
    return str(value.as_py())
