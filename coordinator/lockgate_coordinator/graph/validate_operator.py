"""Validates single operators, wherever they are in the graph."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    ConsoleSink,
    CountWindow,
    DeclaredState,
    Deduplicate,
    DeltaSink,
    EventTime,
    FileFormat,
    FileSink,
    FileSource,
    ForeachBatchSink,
    GeneratorSource,
    IntervalJoin,
    KafkaSink,
    KafkaSource,
    KeyedAggregate,
    KeyedProcess,
    Operator,
    PythonSink,
    PythonSource,
    PythonTransform,
    RecordCall,
    RecordFunction,
    SocketSource,
    SqlSink,
    SqlTransform,
    SqlWriteMode,
    StateShape,
    WindowProcess,
)
from lockgate_proto.reserved import is_reserved

from lockgate_coordinator.graph.bounds import LEAST_RATE, MAX_DURATION_MS
from lockgate_coordinator.graph.validate_count import count_problems
from lockgate_coordinator.graph.validate_event_time import contents_problems, declaration_problems, window_problems
from lockgate_coordinator.graph.validate_join import join_problems
from lockgate_coordinator.graph.validate_kafka import sink_problems, source_problems

_DATABASES = ("sqlite", "postgresql")
# A column may be called `distinct`: then an operator follows it. Task managers look at what Spark makes of the text.
_QUANTIFIED = re.compile(
    r"\s*DISTINCT(\s*[(`\"']|\s+(?!(AND|BETWEEN|COLLATE|DIV|I?LIKE|IN|IS|NOT|OR|REGEXP|RLIKE)\b)\w)", re.IGNORECASE
)


def operator_problems(operator: Operator) -> Iterator[str]:
    """Every problem of the operator's own settings, as sentences."""
    if operator.kind is None:
        yield f"Operator '{operator.id}' has no kind: it is neither source, transform, aggregate nor sink."
        return
    for text in _CHECKS[type(operator.kind)](operator.kind):
        yield f"Operator '{operator.id}' {text}"


def _file_source(source: FileSource) -> Iterator[str]:
    if not source.path:
        yield "reads files but has no path."
    if source.format is FileFormat.FILE_FORMAT_UNSPECIFIED:
        yield "reads files without a format: choose TEXT, CSV, JSON_LINES or PARQUET."
    if source.format in (FileFormat.CSV, FileFormat.JSON_LINES) and not source.schema.strip():
        yield f"reads {source.format.name} and needs a schema, for example 'word STRING, n BIGINT'."
    if source.poll_interval_ms < 0:
        yield f"has a poll interval of {source.poll_interval_ms} ms: it cannot be negative."


def _generator(source: GeneratorSource) -> Iterator[str]:
    if source.partitions < 0:
        yield f"generates {source.partitions} partitions: at least 1 is needed, 0 means the parallelism."
    if source.rows_per_partition < 0:
        yield f"generates {source.rows_per_partition} rows per partition: 0 means unbounded."
    if not math.isfinite(source.rows_per_second) or source.rows_per_second < 0:
        yield f"generates {source.rows_per_second} rows per second: 0 means as fast as possible."
    elif 0 < source.rows_per_second < LEAST_RATE:
        yield (
            f"generates {source.rows_per_second} rows per second: at least {LEAST_RATE} are needed; 0 stands for as "
            f"fast as it goes."
        )


def _python_source(source: PythonSource) -> Iterator[str]:
    if not source.source:
        yield "reads from a source of your own but has no source."
    if not source.schema.strip():
        yield "reads from a source of your own and needs its schema, for example 'word STRING, n BIGINT'."
    if source.poll_interval_ms < 0:
        yield f"has a poll interval of {source.poll_interval_ms} ms: it cannot be negative."


def _socket_source(source: SocketSource) -> Iterator[str]:
    if not source.host:
        yield "reads from a socket but names no host."
    if not 1 <= source.port <= 65_535:
        yield f"reads from a socket at port {source.port}: it must be between 1 and 65535."


def _python_sink(sink: PythonSink) -> Iterator[str]:
    if not sink.sink:
        yield "writes to a sink of your own but has no sink."


def _sql(transform: SqlTransform) -> Iterator[str]:
    if not transform.query.strip():
        yield "has an empty SQL query."


def _function(kind: PythonTransform | ForeachBatchSink) -> Iterator[str]:
    if not kind.function:
        yield "has no function."


def _record_function(kind: RecordFunction) -> Iterator[str]:
    if not kind.function:
        yield "has no function."
    if kind.call is RecordCall.RECORD_CALL_UNSPECIFIED:
        yield "does not say how its function is called: choose MAP, FLAT_MAP or FILTER."
    elif kind.call is RecordCall.FILTER:
        if kind.schema.strip():
            yield "filters records and has a schema: leave it out, because the records stay as they are."
    elif not kind.schema.strip():
        yield "needs the schema of what its function returns, for example 'word STRING, n BIGINT'."


def _keyed_aggregate(kind: KeyedAggregate) -> Iterator[str]:
    if not kind.keys or not all(kind.keys):
        yield "aggregates by key but names no keys."
    if not kind.aggregates:
        yield "aggregates nothing: add at least one of count, sum, min, max, avg."
    yield from _columns([*kind.keys, *(aggregate.output for aggregate in kind.aggregates)])
    for position, aggregate in enumerate(kind.aggregates):
        yield from _aggregate(position, aggregate)
    yield from window_problems(kind)


def _count_window(kind: CountWindow) -> Iterator[str]:
    if not kind.keys or not all(kind.keys):
        yield "counts windows by key but names no keys."
    yield from count_problems(kind)
    bounds = ("window_start", "window_end") if kind.aggregates else ()
    yield from _columns([*kind.keys, *bounds, *(aggregate.output for aggregate in kind.aggregates)])
    for position, aggregate in enumerate(kind.aggregates):
        yield from _aggregate(position, aggregate)


def _columns(names: Sequence[str]) -> Iterator[str]:
    """The problems of keys and results together."""
    for name, count in Counter(name.casefold() for name in names if name).items():
        if count > 1:
            yield f"would have {count} result columns named '{name}' (keys and aggregates together)."
    yield from _reserved(names)


def _aggregate(position: int, aggregate: Aggregate) -> Iterator[str]:
    name = f"'{aggregate.output}'" if aggregate.output else f"number {position + 1}"
    if not aggregate.output:
        yield f"has an aggregate without an output name ({name})."
    if aggregate.function is AggregateFunction.AGGREGATE_FUNCTION_UNSPECIFIED:
        yield f"has an aggregate without a function ({name}): choose COUNT, SUM, MIN, MAX or AVG."
    elif aggregate.function is not AggregateFunction.COUNT and not aggregate.input.strip():
        yield f"has a {aggregate.function.name} of nothing ({name}): it needs an input expression."
    elif _QUANTIFIED.match(aggregate.input):
        yield (
            f"has DISTINCT inside an aggregate ({name}: {aggregate.input.strip()!r}), which cannot be computed in "
            "parts that are merged: deduplicate by key and value first, then aggregate."
        )


def _reserved(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        if is_reserved(name, is_key=True):
            yield f"has a key or result named '{name}', which is reserved: choose another name."


def _keyed_process(kind: KeyedProcess) -> Iterator[str]:
    if not kind.keys or not all(kind.keys):
        yield "processes by key but names no keys."
    if not kind.function:
        yield "has no function."
    yield from _reserved(kind.keys)
    if not kind.schema.strip():
        yield "needs the schema of its function's output, for example 'word STRING, n BIGINT'."
    for name, count in Counter(state.name for state in kind.states).items():
        if count > 1:
            yield f"declares {count} states named '{name}': every name may be used once."
    for state in kind.states:
        for text in _state(state):
            yield f"declares state '{state.name}' {text}"


def _window_process(kind: WindowProcess) -> Iterator[str]:
    if not kind.keys or not all(kind.keys):
        yield "processes windows by key but names no keys."
    if not kind.function:
        yield "has no function."
    yield from _reserved(kind.keys)
    if not kind.schema.strip():
        yield "needs the schema of its function's output, for example 'word STRING, n BIGINT'."
    yield from contents_problems(kind)


def _state(state: DeclaredState) -> Iterator[str]:
    if not state.name.isidentifier():
        yield "with a name that is not an identifier: only letters, digits and _ are allowed."
    if state.shape is StateShape.STATE_SHAPE_UNSPECIFIED:
        yield "without a shape: choose VALUE_STATE, LIST_STATE or MAP_STATE."
    if not state.type.strip():
        yield "without a type: it needs one, for example 'DOUBLE'."
    is_map = state.shape is StateShape.MAP_STATE
    if is_map != bool(state.key_type.strip()):
        yield (
            "of MAP_STATE without a type for its keys."
            if is_map
            else "with a type for keys, but it is not a MAP_STATE."
        )
    if not 0 <= state.ttl_ms <= MAX_DURATION_MS:
        yield f"with ttl_ms {state.ttl_ms}: it must be between 0 and {MAX_DURATION_MS}; 0 means no limit."


def _deduplicate(kind: Deduplicate) -> Iterator[str]:
    if not kind.keys or not all(kind.keys):
        yield "drops duplicates by key but names no keys."
    yield from _reserved(kind.keys)
    if not 0 <= kind.ttl_ms <= MAX_DURATION_MS:
        yield f"has ttl_ms {kind.ttl_ms}: it must be between 0 and {MAX_DURATION_MS}; 0 means no limit."


def _file_sink(sink: FileSink) -> Iterator[str]:
    if not sink.path:
        yield "writes files but has no path."
    if sink.format is FileFormat.TEXT:
        yield "cannot write TEXT: choose PARQUET, CSV or JSON_LINES."
    elif sink.format is FileFormat.FILE_FORMAT_UNSPECIFIED:
        yield "writes files without a format: choose PARQUET, CSV or JSON_LINES."


def _sql_sink(sink: SqlSink) -> Iterator[str]:
    if not sink.url:
        yield "writes to a database but has no url, for example 'sqlite:////tmp/words.db'."
    elif sink.url.partition(":")[0].partition("+")[0] not in _DATABASES:
        yield f"writes to a database that is not supported: its url has to begin with {' or '.join(_DATABASES)}."
    if not sink.table:
        yield "writes to a database but names no table."
    if sink.mode is SqlWriteMode.APPEND:
        if sink.keys:
            yield f"appends every row, so it has no use for key columns ({', '.join(sink.keys)}): leave them out."
    elif not sink.keys or not all(sink.keys):
        yield (
            "writes to a database and needs key columns: rows are inserted or replaced by key. "
            "The mode APPEND inserts every row and needs none."
        )
    for name, count in Counter(key.casefold() for key in sink.keys).items():
        if count > 1:
            yield f"names the key column '{name}' {count} times."


def _delta_sink(sink: DeltaSink) -> Iterator[str]:
    if not sink.uri:
        yield "writes to a Delta table but has no uri, for example 's3://bucket/orders'."


def _console_sink(sink: ConsoleSink) -> Iterator[str]:
    if sink.rows < 0:
        yield f"prints {sink.rows} rows a batch: it cannot be negative."


_CHECKS: Mapping[type[Any], Callable[[Any], Iterator[str]]] = {
    FileSource: _file_source,
    GeneratorSource: _generator,
    SqlTransform: _sql,
    PythonTransform: _function,
    RecordFunction: _record_function,
    EventTime: declaration_problems,
    KeyedAggregate: _keyed_aggregate,
    IntervalJoin: join_problems,
    KeyedProcess: _keyed_process,
    WindowProcess: _window_process,
    CountWindow: _count_window,
    Deduplicate: _deduplicate,
    FileSink: _file_sink,
    SqlSink: _sql_sink,
    ConsoleSink: _console_sink,
    ForeachBatchSink: _function,
    PythonSource: _python_source,
    PythonSink: _python_sink,
    SocketSource: _socket_source,
    KafkaSource: source_problems,
    KafkaSink: sink_problems,
    DeltaSink: _delta_sink,
}
