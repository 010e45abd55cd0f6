"""Operator settings, and every way to write a stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar

from lockgate_proto.messages import (
    ConsoleSink,
    CountWindow,
    CumulatingWindow,
    DeltaSink,
    EarlyFiringWindow,
    FileFormat,
    FileSink,
    ForeachBatchSink,
    KeyedAggregate,
    Partitioning,
    PythonSink,
    SqlSink,
    SqlWriteMode,
    TriggeredWindow,
    Window,
)
from lockgate_proto.operators import COMMITS_TOPIC

from lockgate.connectors import CustomSink
from lockgate.pipeline import checks, kafka
from lockgate.pipeline.errors import PipelineError
from lockgate.pipeline.habits import Hinting
from lockgate.pipeline.pickled import describe, pickled, pickled_connector
from lockgate.pipeline.plan import Input, Node, Plan

T = TypeVar("T", bound="Tunable")

_WRITE_MODES = {"upsert": SqlWriteMode.UPSERT, "append": SqlWriteMode.APPEND}


class Tunable(Hinting):
    """An operator that can be named and sized: the stream directly behind it, or a sink."""

    def __init__(self, plan: Plan, inputs: tuple[Input, ...]) -> None:
        self._plan = plan
        self._inputs = inputs

    def uid(self: T, operator_id: str) -> T:
        """Fixes the id under which the operator's state is matched, however the pipeline around it changes."""
        self._plan.rename(self._node("uid"), checks.identifier(operator_id))
        return self

    def name(self: T, text: str) -> T:
        """The operator's name in listings."""
        self._node("name").name = checks.text("name", "a name", text, "count words")
        return self

    def parallelism(self: T, subtasks: int) -> T:
        """How many subtasks run the operator; those behind it use the same number by default."""
        self._node("parallelism").width = checks.whole("parallelism()", "it", subtasks, 1, self._plan.max_parallelism)
        return self

    def _node(self, method: str) -> Node:
        input_ = self._inputs[0]
        is_plain = input_.partitioning is Partitioning.PARTITIONING_UNSPECIFIED and not input_.side_output
        if len(self._inputs) != 1 or not is_plain:
            raise PipelineError(
                f"{method}() belongs to an operator; call it right after one, such as sql(...).{method}(...)"
            )
        return self._inputs[0].node


class Sink(Tunable):
    """The end of a stream."""


class Writable(Tunable):
    """A stream with methods for writing it."""

    def write_sql(
        self,
        url: str,
        table: str,
        key: str | Iterable[str] | None = None,
        *,
        mode: Literal["upsert", "append"] = "upsert",
        shared: bool = False,
    ) -> Sink:
        """Writes rows into a database table, committed with each checkpoint, exactly once.

        url: an SQLAlchemy URL, `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/DATABASE`; table: `name` or
        `schema.name`, created when it is missing. mode: "upsert" replaces the row with the same `key` (one column or
        several, by default those of the aggregate before it); "append" inserts every row and takes no key. shared:
        other jobs may write the table at the same time; without it such a job is refused.
        """
        how = checks.one_of("write_sql()", "mode", mode, _WRITE_MODES)
        if how is SqlWriteMode.APPEND:
            if key is not None:
                raise PipelineError('write_sql(mode="append") inserts every row; omit key=')
            names: tuple[str, ...] = ()
        elif key is None:
            names = self._keys_of_aggregate()
        else:
            names = checks.columns("write_sql", (key,) if isinstance(key, str) else key)
        plain = checks.text("write_sql", "a table name", table, "counts")
        return self._end("write_sql", SqlSink(checks.database_url(url), plain, names, how, bool(shared)))

    def write_kafka(
        self,
        servers: str,
        topic: str,
        *,
        key: str | None = None,
        value: str = "value",
        mode: Literal["exactly_once", "at_least_once"] = "exactly_once",
        commits_topic: str = COMMITS_TOPIC,
        options: Mapping[str, Any] | None = None,
    ) -> Sink:
        """Writes rows as records of a Kafka topic that exists, in one Kafka transaction for each checkpoint.

        key, value: columns, STRING or BINARY; other columns are dropped. mode: "at_least_once" writes records as they
        arrive, and some again after a failure. commits_topic: records the commits; created when missing. Readers must
        read committed records only. servers, options: as for `read_kafka`.
        """
        return self._end("write_kafka", kafka.sink(servers, topic, key, value, mode, commits_topic, options))

    def write_parquet(self, path: str | os.PathLike[str], *, shared: bool = False) -> Sink:
        """Writes Parquet files into a folder; a file becomes visible only when its checkpoint is complete.

        shared: other jobs may write the folder at the same time; without it such a job is refused.
        """
        return self._files("write_parquet", path, FileFormat.PARQUET, shared)

    def write_csv(self, path: str | os.PathLike[str], *, shared: bool = False) -> Sink:
        """Writes CSV files with a header into a folder, exactly once as `write_parquet`; read them with
        `CSV_OPTIONS`.
        """
        return self._files("write_csv", path, FileFormat.CSV, shared)

    def write_json(self, path: str | os.PathLike[str], *, shared: bool = False) -> Sink:
        """Writes files of JSON lines into a folder, exactly once as `write_parquet`."""
        return self._files("write_json", path, FileFormat.JSON_LINES, shared)

    def write_delta(
        self, uri: str | os.PathLike[str], *, options: Mapping[str, Any] | None = None, shared: bool = False
    ) -> Sink:
        """Appends every row to a Delta table exactly once: one transaction of each subtask per checkpoint.

        uri: a folder, or a URI of an object store, such as "s3://bucket/orders"; a missing table is created,
        an existing one must have the rows' columns. options: of delta-rs's object store, such as {"AWS_REGION":
        "eu-north-1"}; a value "${NAME}" comes from the task manager's environment. Task managers need the extra
        `lockgate[delta]`. shared: as for `write_parquet`.
        """
        settings = checks.settings("write_delta", options, '{"AWS_REGION": "eu-north-1"}')
        return self._end("write_delta", DeltaSink(checks.location("write_delta", uri), settings, bool(shared)))

    def print(self, rows: int = 20) -> Sink:
        """Prints at most `rows` rows of every batch on the task manager's standard output."""
        return self._end("print", ConsoleSink(checks.whole("print()", "rows", rows, 1)))

    def foreach_batch(self, function: Callable[..., object]) -> Sink:
        """Calls `function(df, checkpoint_id)` with the rows of each completed checkpoint that has any.

        After a failure it may be called again with the same id and rows: make it idempotent by that id. One subtask
        handles all rows. With `.parallelism(n)` each subtask calls it for its own rows, so that one id is passed with
        several sets of rows: then the id alone does not identify repeated calls.

        A function with a parameter named `attempt` gets the number of the calling attempt. It only increases; a call
        with a lower number than seen before comes from a process that was replaced, and should have no effect.
        """
        data = pickled("foreach_batch", function, ("df", "checkpoint_id"), optional=("attempt",))
        sink = self._end("foreach_batch", ForeachBatchSink(data, describe(function)))
        sink._node("foreach_batch").width = 1
        return sink

    def write_to(self, sink: CustomSink) -> Sink:
        """Writes to a custom sink: an instance of a class derived from `lockgate.CustomSink`."""
        return self._end("write_to", PythonSink(pickled_connector("write_to", sink, CustomSink), describe(sink)))

    def _end(self, method: str, kind: Any) -> Sink:
        return Sink(self._plan, (Input(self._plan.add(method, kind, self._inputs, is_sink=True)),))

    def _files(self, method: str, path: str | os.PathLike[str], file_format: FileFormat, shared: bool) -> Sink:
        return self._end(method, FileSink(checks.location(method, path), file_format, bool(shared)))

    def _keys_of_aggregate(self) -> tuple[str, ...]:
        for input_ in self._inputs:
            if isinstance(input_.node.kind, KeyedAggregate):
                _require_whole_results(input_.node.kind.window)
                return (*input_.node.kind.keys, *_names_of(input_.node.kind.window))
            if isinstance(input_.node.kind, CountWindow) and input_.node.kind.aggregates:
                return (*input_.node.kind.keys, "window_end")
        raise PipelineError(
            'write_sql() needs key=: the columns that make a row unique, such as key="word"; '
            'or mode="append", which inserts every row'
        )


def _require_whole_results(window: Window | None) -> None:
    if window is not None and isinstance(window.kind, TriggeredWindow | EarlyFiringWindow) and window.kind.purge:
        raise PipelineError(
            'write_sql() needs mode="append" behind trigger(purge=True): each result holds other records of its '
            "window, so none replaces the one before"
        )


def _names_of(window: Window | None) -> tuple[str, ...]:
    """The columns that distinguish the windows of a key."""
    if window is None:
        return ()
    kind = window.kind
    share_start = kind.is_cumulating if isinstance(kind, EarlyFiringWindow) else isinstance(kind, CumulatingWindow)
    return ("window_start", "window_end") if share_start else ("window_start",)
