"""foreach_batch: the author's function gets its subtask's rows of a checkpoint once the checkpoint is completed.

After a failure the function may be called again with the same checkpoint id and the same rows, and must ignore the
second call. That is sufficient when one subtask runs the sink, which is what the pipeline builder makes; with several,
each calls with the same id and rows of its own. A job that was scaled down passes all restored rows in one call.

In the checkpoint mode AT_MOST_ONCE it is not called again: rows of a restored checkpoint, for which it may have been
called, are dropped.

Calls of one subtask never overlap, and a function with a parameter `attempt` gets the attempt's number, to fence off
calls of an older attempt in another process. When the function raises, the job restarts: the system that it uses may be
down. An error caused by the rows themselves, such as an invalid query, ends the job when it repeats.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import SinkTransaction
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lockgate_taskmanager.spark.errors import explained, lost_session, on_data, sentence
from lockgate_taskmanager.spark.raised import lasts, raised
from lockgate_taskmanager.spark.sinks.transaction import Pending, RowsPending, Sink, SinkContext, restored_rows
from lockgate_taskmanager.spark.sinks.turns import TURNS
from lockgate_taskmanager.spark.user_code import may_be_ended
from lockgate_taskmanager.task.program import Canceled, DataError, UserCodeFailed

LOG = logging.getLogger(__name__)


class FunctionFailed(UserCodeFailed):
    """The author's function raised; the same call may succeed after a restart."""


def _with_attempt(function: Callable[..., Any], attempt: int) -> Callable[[Any, int], Any]:
    """The function, with the attempt's number bound if it has a parameter of that name."""
    try:
        wants = "attempt" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        wants = False
    return partial(function, attempt=attempt) if wants else function


class ForeachBatchSink(Sink):
    """Calls the author's function when a checkpoint is complete."""

    def __init__(self, context: SinkContext, function: Callable[..., Any], to_frame: Callable[[pa.Table], Any]) -> None:
        """to_frame: makes a Spark DataFrame of a table."""
        super().__init__(context)
        self._function = _with_attempt(function, context.attempt)
        self._to_frame = to_frame
        self._open: list[pa.Table] = []

    def prepare(self, schema: pa.Schema) -> None:
        pass

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._open.append(table)

    def _seal(self, checkpoint_id: int) -> Pending | None:
        tables, self._open = self._open, []
        return RowsPending(self.context, checkpoint_id, pa.concat_tables(tables)) if tables else None

    def _commit(self, pending: Pending) -> None:
        assert isinstance(pending, RowsPending)
        self._call(pending.table, pending.checkpoint_id)

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """Rows that several subtasks have staged for one checkpoint are combined: one call per id."""
        if self.context.is_at_most_once:
            if transactions:
                numbers = sorted({transaction.checkpoint_id for transaction in transactions})
                LOG.warning("%s: no second call for checkpoint %s", self.context.where, ", ".join(map(str, numbers)))
            return
        pieces: dict[int, list[pa.Table]] = {}
        for transaction in sorted(transactions, key=lambda checkpoint: (checkpoint.checkpoint_id, checkpoint.subtask)):
            table = restored_rows(transaction)
            if table is not None:
                pieces.setdefault(transaction.checkpoint_id, []).append(table)
        for checkpoint_id, tables in pieces.items():
            self._call(pa.concat_tables(tables, promote_options="default"), checkpoint_id)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        self.restore((transaction,))

    def _call(self, table: pa.Table, checkpoint_id: int) -> None:
        where = self.context.where
        with TURNS.take(self.context, self.require_live), explained(where, on_records=True):
            frame = self._to_frame(table)
            try:
                with may_be_ended():
                    self._function(frame, checkpoint_id)
            except (Py4JError, Canceled):
                raise
            except PySparkException as error:
                if lost_session(error):
                    raise
                raise on_data(where, sentence(error), error) from error
            except Exception as error:  # the author's code
                text = raised(error)
                if lasts(type(error)):
                    raise DataError(text, where=where) from error
                raise FunctionFailed(f"{where}: {text}") from error
