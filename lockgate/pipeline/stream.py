"""Streams: what flows between operators. Each method adds one operator and returns the stream behind it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from lockgate_proto.messages import (
    Aggregate,
    ConsoleSink,
    FileFormat,
    FileSink,
    ForeachBatchSink,
    KeyedAggregate,
    Partitioning,
    PythonTransform,
    SqlSink,
    SqlTransform,
)

from lockgate.functions import AggregateExpression
from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.pickled import describe, pickled
from lockgate.pipeline.plan import Input, Node

if TYPE_CHECKING:
    from lockgate.pipeline.job import Job

T = TypeVar("T", bound="Tunable")


class Tunable:
    """An operator that can be named and sized: a stream right behind it, or a sink."""

    def __init__(self, job: Job, inputs: tuple[Input, ...]) -> None:
        self._job = job
        self._inputs = inputs

    def uid(self: T, operator_id: str) -> T:
        """Fixes the id under which the operator's state is found again, however the pipeline around it changes."""
        self._job._rename(self._node("uid"), checks.identifier(operator_id))
        return self

    def name(self: T, text: str) -> T:
        """How the operator is called in listings."""
        self._node("name").name = checks.text("name", "a name", text, "count words")
        return self

    def parallelism(self: T, subtasks: int) -> T:
        """How many subtasks run the operator; those behind it follow unless they say otherwise."""
        self._node("parallelism").width = checks.whole("parallelism()", "it", subtasks, 1, self._job.max_parallelism)
        return self

    def _node(self, method: str) -> Node:
        if len(self._inputs) != 1 or self._inputs[0].partitioning is not Partitioning.PARTITIONING_UNSPECIFIED:
            raise PipelineError(
                f"{method}() belongs to an operator; call it right after one, such as sql(...).{method}(...)"
            )
        return self._inputs[0].node


class Sink(Tunable):
    """The end of a stream."""


class Stream(Tunable):
    """Rows on their way from one operator to the next."""

    def sql(self, query: str) -> Stream:
        """Transforms every micro-batch with Spark SQL over the relation `input`.

        >>> stream.sql("SELECT explode(split(value, ' ')) AS word FROM input")
        """
        return self._then("sql", SqlTransform(checks.query(query)))

    def select(self, *expressions: str) -> Stream:
        """Keeps or computes columns: `select("word", "length(word) AS n")`."""
        if not expressions:
            raise PipelineError('select() needs at least one expression, such as select("word")')
        listed = ", ".join(checks.text("select", "expressions", one, "length(word) AS n") for one in expressions)
        return self._then("select", SqlTransform(f"SELECT {listed} FROM input"))

    def filter(self, condition: str) -> Stream:
        """Keeps the rows for which an SQL condition is true: `filter("price > 0")`."""
        text = checks.text("filter", "an SQL condition", condition, "price > 0")
        return self._then("filter", SqlTransform(f"SELECT * FROM input WHERE {text}"))

    where = filter

    def transform(self, function: Callable[[Any], Any]) -> Stream:
        """Transforms every micro-batch with a Python function DataFrame -> DataFrame.

        It runs on the task managers and sees one micro-batch at a time: row-wise work only, no totals. The cluster
        takes such jobs from clients that show its secret.
        """
        return self._python("transform", function)

    def map(self, function: Callable[[Any], Any]) -> Stream:
        """The same as `transform`: the function maps a DataFrame to a DataFrame."""
        return self._python("map", function)

    def union(self, *others: Stream) -> Stream:
        """The rows of this and other streams, in any order. Their columns must be the same."""
        if not others:
            raise PipelineError("union() needs at least one other stream")
        inputs = list(self._inputs)
        for other in others:
            if not isinstance(other, Stream):
                raise PipelineError(f"union() takes streams, not {type(other).__name__}")
            if other._job is not self._job:
                raise PipelineError("union() takes streams of the same Job")
            inputs += other._inputs
        if any(one.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED for one in inputs):
            raise PipelineError("union() comes before key_by(), rebalance() and broadcast()")
        if len({one.node.id for one in inputs}) != len(inputs):
            raise PipelineError("union() of a stream with itself; put an operator, such as select('*'), between")
        return Stream(self._job, tuple(inputs))

    def key_by(self, *columns: str) -> KeyedStream:
        """Brings rows with equal values in `columns` to the same subtask of the next operator."""
        names = checks.columns("key_by", columns)
        return KeyedStream(self._job, self._repartitioned("key_by", Partitioning.HASH, names), names)

    def rebalance(self) -> Stream:
        """Spreads the rows evenly over the subtasks of the next operator."""
        return Stream(self._job, self._repartitioned("rebalance", Partitioning.REBALANCE))

    def broadcast(self) -> Stream:
        """Sends every row to every subtask of the next operator."""
        return Stream(self._job, self._repartitioned("broadcast", Partitioning.BROADCAST))

    def aggregate(self, **aggregates: AggregateExpression) -> Stream:
        """Only for keyed streams: raises PipelineError that says so."""
        del aggregates
        raise PipelineError('aggregate() needs a key: key_by("word").aggregate(n=count())')

    def write_sql(self, url: str, table: str, key: str | Iterable[str] | None = None) -> Sink:
        """Upserts every row by `key` into a database table, committed with each checkpoint.

        url: an SQLAlchemy URL; key: one column or several, those of the aggregate before it unless given.
        """
        if key is None:
            names = self._keys_of_aggregate()
        else:
            names = checks.columns("write_sql", (key,) if isinstance(key, str) else key)
        sink = SqlSink(checks.database_url(url), checks.text("write_sql", "a table name", table, "counts"), names)
        return self._end("write_sql", sink)

    def write_parquet(self, path: str | os.PathLike[str]) -> Sink:
        """Writes Parquet files into a folder; a file is seen when its checkpoint is complete, and only then."""
        return self._files("write_parquet", path, FileFormat.PARQUET)

    def write_csv(self, path: str | os.PathLike[str]) -> Sink:
        """Writes CSV files into a folder, exactly once as `write_parquet`."""
        return self._files("write_csv", path, FileFormat.CSV)

    def write_json(self, path: str | os.PathLike[str]) -> Sink:
        """Writes files of JSON lines into a folder, exactly once as `write_parquet`."""
        return self._files("write_json", path, FileFormat.JSON_LINES)

    def print(self, rows: int = 20) -> Sink:
        """Shows at most `rows` rows of every batch on the task manager's own output."""
        return self._end("print", ConsoleSink(checks.whole("print()", "rows", rows, 1)))

    def foreach_batch(self, function: Callable[[Any, int], object]) -> Sink:
        """Calls `function(df, checkpoint_id)` with the rows of each completed checkpoint.

        After a failure it may be called again with the same id and rows: make it idempotent by that id.
        """
        data = pickled("foreach_batch", function, ("df", "checkpoint_id"))
        return self._end("foreach_batch", ForeachBatchSink(data, describe(function)))

    def _then(self, method: str, kind: Any) -> Stream:
        return Stream(self._job, (Input(self._job._add(method, kind, self._inputs)),))

    def _end(self, method: str, kind: Any) -> Sink:
        return Sink(self._job, (Input(self._job._add(method, kind, self._inputs, is_sink=True)),))

    def _python(self, method: str, function: Callable[[Any], Any]) -> Stream:
        return self._then(method, PythonTransform(pickled(method, function, ("df",)), describe(function)))

    def _files(self, method: str, path: str | os.PathLike[str], file_format: FileFormat) -> Sink:
        return self._end(method, FileSink(checks.location(method, path), file_format))

    def _repartitioned(self, method: str, partitioning: Partitioning, keys: tuple[str, ...] = ()) -> tuple[Input, ...]:
        if any(one.partitioning is not Partitioning.PARTITIONING_UNSPECIFIED for one in self._inputs):
            raise PipelineError(f"{method}() right after another repartitioning; keep one of the two")
        return tuple(Input(one.node, partitioning, keys) for one in self._inputs)

    def _keys_of_aggregate(self) -> tuple[str, ...]:
        for one in self._inputs:
            if isinstance(one.node.kind, KeyedAggregate):
                return one.node.kind.keys
        raise PipelineError('write_sql() needs key=: the columns that make a row unique, such as key="word"')


class KeyedStream(Stream):
    """A stream partitioned by key: what `key_by` returns."""

    def __init__(self, job: Job, inputs: tuple[Input, ...], keys: tuple[str, ...]) -> None:
        super().__init__(job, inputs)
        self._keys = keys

    def aggregate(self, **aggregates: AggregateExpression) -> Stream:
        """Keeps aggregates per key and emits the new values of every key that a micro-batch has changed.

        >>> from lockgate import avg, count
        >>> stream.key_by("city").aggregate(n=count(), mean=avg("price"))
        """
        if not aggregates:
            raise PipelineError("aggregate() needs at least one aggregate, such as aggregate(n=count())")
        listed = []
        for output, expression in aggregates.items():
            if not isinstance(expression, AggregateExpression):
                raise PipelineError(
                    f"aggregate({output}=...) takes count(), sum_(), min_(), max_() or avg() from lockgate, "
                    f"not {expression!r}"
                )
            if output in self._keys:
                raise PipelineError(f"aggregate({output}=...) has the name of a key column; choose another")
            listed.append(Aggregate(output, expression.function, expression.input))
        return self._then("aggregate", KeyedAggregate(self._keys, tuple(listed)))
