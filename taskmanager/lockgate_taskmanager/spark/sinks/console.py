"""Prints batches as they arrive, for inspection only; they are printed again after a restart."""

from __future__ import annotations

import sys

import pyarrow as pa
from lockgate_proto.messages import ConsoleSink as ConsoleOptions

from lockgate_taskmanager.spark.sinks.none import NoSink
from lockgate_taskmanager.spark.sinks.transaction import SinkContext

_DEFAULT_ROWS = 20


class ConsoleSink(NoSink):
    """Prints rows as they arrive, and so has nothing to commit."""

    def __init__(self, context: SinkContext, options: ConsoleOptions) -> None:
        super().__init__(context)
        self._rows = options.rows or _DEFAULT_ROWS

    def write(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        rows = table.slice(0, self._rows).to_pandas().to_string(index=False)
        more = table.num_rows - self._rows
        tail = f"\n... {more} more rows" if more > 0 else ""
        title = f"-- {self.context.operator_id}, subtask {self.context.subtask}: {table.num_rows} rows"
        print(f"{title}\n{rows}{tail}", file=sys.stdout, flush=True)
