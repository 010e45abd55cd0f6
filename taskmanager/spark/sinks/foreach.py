"""foreach_batch: the author's function gets the rows that its subtask has for a checkpoint once that is completed.

After a failure the function may be called again with the same checkpoint id and the same rows; it must take the
second call as done. That tells all of it where one subtask runs the sink, which is what the pipeline builder makes;
with several, each calls with the same id and rows of its own. What a job that was scaled down restores comes in one
call. No two calls of one subtask run at the same time, and a function with a parameter `attempt` gets the attempt's
number, to fence calls of an older one in another process. When the function raises, the job restarts: what it talks to
may be away. What it raises of the rows themselves, a wrong query among it, ends the job when it comes again and again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from lockgate_proto.messages import SinkTransaction
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from taskmanager.spark.errors import LASTING, explained, lost_session, on_data, sentence
from taskmanager.spark.sinks.transaction import Pending, RowsPending, Sink, SinkContext, restored_rows
from taskmanager.spark.sinks.turns import TURNS
from taskmanager.spark.user_code import may_be_ended
from taskmanager.task.program import Canceled, DataError, UserCodeFailed


class FunctionFailed(UserCodeFailed):
    """The author's function raised; the same call may succeed after a restart."""


def _with_attempt(function: Callable[..., Any], attempt: int) -> Callable[[Any, int], Any]:
    """The function, handed the attempt's number if it has a parameter of that name."""
    try:
        wants = "attempt" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # written in C
        wants = False
    return partial(function, attempt=attempt) if wants else function


class ForeachBatchSink(Sink):
    """See the module."""

    def __init__(self, context: SinkContext, function: Callable[..., Any], to_frame: Callable[[pa.Table], Any]) -> None:
        """to_frame: makes a Spark DataFrame of a table."""
        super().__init__(context)
        self._function = _with_attempt(function, context.attempt)
        self._to_frame = to_frame
        self._open: list[pa.Table] = []

    def prepare(self, schema: pa.Schema) -> None:
        """See Sink."""

    def write(self, table: pa.Table) -> None:
        """See Sink."""
        if table.num_rows:
            self._open.append(table)

    def _seal(self, checkpoint_id: int) -> Pending | None:
        tables, self._open = self._open, []
        return RowsPending(self.context, checkpoint_id, pa.concat_tables(tables)) if tables else None

    def _commit(self, pending: Pending) -> None:
        assert isinstance(pending, RowsPending)
        self._call(pending.table, pending.checkpoint_id)

    def restore(self, transactions: Sequence[SinkTransaction]) -> None:
        """See Sink. What several subtasks have staged for one checkpoint comes together: one call for one id."""
        pieces: dict[int, list[pa.Table]] = {}
        for one in sorted(transactions, key=lambda one: (one.checkpoint_id, one.subtask)):
            table = restored_rows(one)
            if table is not None:
                pieces.setdefault(one.checkpoint_id, []).append(table)
        for checkpoint_id, tables in pieces.items():
            self._call(pa.concat_tables(tables, promote_options="default"), checkpoint_id)

    def _commit_restored(self, transaction: SinkTransaction) -> None:
        self.restore((transaction,))

    def _call(self, table: pa.Table, checkpoint_id: int) -> None:
        where = self.context.where
        with TURNS.take(self.context), explained(where, on_records=True):
            frame = self._to_frame(table.combine_chunks())
            try:
                with may_be_ended():
                    self._function(frame, checkpoint_id)
            except (Py4JError, Canceled):
                raise
            except PySparkException as error:
                if lost_session(error):
                    raise
                raise on_data(where, sentence(error), error) from error
            except LASTING as error:
                raise DataError(f"the Python function raised {type(error).__name__}: {error}", where=where) from error
            except Exception as error:  # the author's code
                text = f"{where}: the Python function raised {type(error).__name__}: {error}"
                raise FunctionFailed(text) from error
