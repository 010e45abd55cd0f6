"""The source and sink kinds: one registry entry for each.

Properties that the leader needs as well are in `lockgate_proto.operators`. Transforms are functions in `chain.py`;
operators with keyed state are put together in `engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import pyarrow as pa
from lockgate_proto import messages as m
from lockgate_proto.splits import UNBOUNDED, ending

from lockgate_taskmanager.spark.chain import loaded, named, unpickled
from lockgate_taskmanager.spark.declared import declared_frame
from lockgate_taskmanager.spark.leaf import Session, frame_of, passable_schema
from lockgate_taskmanager.spark.limits import UNLIMITED, Limits
from lockgate_taskmanager.spark.sinks import delta
from lockgate_taskmanager.spark.sinks.console import ConsoleSink
from lockgate_taskmanager.spark.sinks.custom import CustomWriter
from lockgate_taskmanager.spark.sinks.files import FileSink
from lockgate_taskmanager.spark.sinks.foreach import ForeachBatchSink
from lockgate_taskmanager.spark.sinks.kafka import KafkaSink
from lockgate_taskmanager.spark.sinks.kafka_direct import DirectKafkaSink
from lockgate_taskmanager.spark.sinks.transaction import Sink, SinkContext
from lockgate_taskmanager.spark.sources import custom, kafka, listing, sockets
from lockgate_taskmanager.spark.sources.generator import RangeSource
from lockgate_taskmanager.spark.sources.lines import LineSource
from lockgate_taskmanager.spark.sources.parquet import ParquetSource
from lockgate_taskmanager.spark.sources.reading import Source
from lockgate_taskmanager.task.program import UserError

Discovered = tuple[tuple[m.SplitState, ...], bool]
"""The new splits, and whether they are the last ones."""

_SINK_METHODS = ("stage", "commit", "abort", "staged")


@dataclass(frozen=True, slots=True)
class Reader:
    """Arguments for making a source. where: in messages. by_split: event time is tracked by split."""

    session: Session
    where: str
    by_split: bool
    limits: Limits


@dataclass(frozen=True, slots=True)
class Listing:
    """Arguments for listing the splits of a source. known: names; where: in messages."""

    known: Collection[str]
    where: str
    parallelism: int
    limits: Limits


@dataclass(frozen=True, slots=True)
class SourceKind:
    """One kind of source. The first argument of each function is the operator's kind.

    make: raises UserError. discover: raises UserError, Unavailable, ConnectorFailed. gives_tables: it reads Arrow
    tables itself, so that no Spark job has to make one of its content. reopened: splits that another run has begun,
    with the ends that they have now; raises what discover raises.
    """

    make: Callable[[Any, Reader], Source]
    discover: Callable[[Any, Listing], Discovered]
    gives_tables: Callable[[Any], bool]
    reopened: Callable[[Any, Sequence[m.SplitState], Listing], Sequence[m.SplitState]] = lambda _, splits, __: splits


@dataclass(frozen=True, slots=True)
class SinkKind:
    """One kind of sink. make: from the operator's kind; raises UserError.

    warm: loads libraries that are slow to load.
    """

    make: Callable[[SinkContext, Any, Session], Sink]
    warm: Callable[[], None] = lambda: None


def _files(source: m.FileSource, reader: Reader) -> Source:
    if source.format == m.FileFormat.PARQUET:
        declared = _declared(source.schema, reader) if source.schema else None
        return ParquetSource(source, declared, reader.by_split, reader.limits)
    if source.format == m.FileFormat.TEXT:
        return LineSource(source, ("value",), reader.by_split, reader.limits)
    if source.format not in (m.FileFormat.CSV, m.FileFormat.JSON_LINES):
        raise UserError(f"{reader.where} has no file format")
    if not source.schema:
        raise UserError(f"{reader.where}: {source.format.name} needs a schema, for example 'id BIGINT, name STRING'")
    frame = declared_frame(reader.session, source.schema, f"{reader.where}: the schema")
    # values of some columns stay in Spark
    return LineSource(source, frame.columns, reader.by_split, reader.limits)


def _declared(ddl: str, reader: Reader) -> pa.Schema:
    frame = declared_frame(reader.session, ddl, f"{reader.where}: the schema")
    return passable_schema(frame, f"{reader.where}: its schema")


def _partitions(source: m.GeneratorSource, listing: Listing) -> Discovered:
    names, seen = [str(n) for n in range(source.partitions or listing.parallelism)], set(listing.known)
    end = source.rows_per_partition or UNBOUNDED
    return tuple(m.SplitState(split=name, end=end) for name in names if name not in seen), True


def _kafka_sink(context: SinkContext, kind: m.KafkaSink, _session: Session) -> Sink:
    is_loose = kind.mode is m.KafkaWriteMode.KAFKA_AT_LEAST_ONCE
    return DirectKafkaSink(context, kind) if is_loose else KafkaSink(context, kind)


def _sql_sink(context: SinkContext, kind: m.SqlSink, _session: Session) -> Sink:
    from lockgate_taskmanager.spark.sinks.sql import SqlSink  # slow to import: SQLAlchemy

    return SqlSink(context, kind)


def _load_sql() -> None:
    import_module("lockgate_taskmanager.spark.sinks.sql")


SOURCES: Mapping[type, SourceKind] = {
    m.FileSource: SourceKind(
        _files,
        lambda kind, asked: listing.discover(kind, asked.known, asked.limits),
        lambda kind: kind.format == m.FileFormat.PARQUET,
        lambda kind, splits, asked: listing.reopened(kind, splits, asked.limits),
    ),
    m.GeneratorSource: SourceKind(
        lambda kind, reader: RangeSource(kind, reader.by_split),
        _partitions,
        lambda _: False,
        lambda kind, splits, _: [ending(split, kind.rows_per_partition or UNBOUNDED) for split in splits],
    ),
    m.PythonSource: SourceKind(
        lambda kind, reader: custom.CustomReader(kind, _declared(kind.schema, reader), reader.where, reader.by_split),
        lambda kind, asked: custom.discover(kind, asked.known, asked.where),
        lambda _: True,
        lambda kind, splits, asked: custom.reopened(kind, splits, asked.where),
    ),
    m.SocketSource: SourceKind(
        lambda kind, reader: sockets.SocketReader(kind, reader.where),
        lambda kind, asked: sockets.discover(kind, asked.known),
        lambda _: False,
    ),
    m.KafkaSource: SourceKind(
        lambda kind, reader: kafka.KafkaReader(kind, reader.where, reader.by_split, reader.limits),
        lambda kind, asked: kafka.discover(kind, asked.known, asked.where, asked.limits),
        lambda _: True,
        lambda kind, splits, asked: kafka.reopened(kind, splits, asked.where, asked.limits),
    ),
}

SINKS: Mapping[type, SinkKind] = {
    m.FileSink: SinkKind(lambda context, kind, _: FileSink(context, kind)),
    m.SqlSink: SinkKind(_sql_sink, _load_sql),
    m.ConsoleSink: SinkKind(lambda context, kind, _: ConsoleSink(context, kind)),
    m.DeltaSink: SinkKind(lambda context, kind, _: delta.DeltaSink(context, kind), delta.warm),
    m.KafkaSink: SinkKind(_kafka_sink),
    m.PythonSink: SinkKind(
        lambda context, kind, _: CustomWriter(context, loaded(kind.sink, context.where, "its sink", _SINK_METHODS))
    ),
    m.ForeachBatchSink: SinkKind(
        lambda context, kind, session: ForeachBatchSink(
            context, unpickled(kind.function, context.where), partial(frame_of, session)
        )
    ),
}


def source_of(
    operator: m.Operator, session: Session, by_split: bool, limits: Limits = UNLIMITED
) -> tuple[Source, bool]:
    """A reader for one subtask of a source, and whether it returns tables. Raises UserError."""
    entry = SOURCES[type(operator.kind)]
    source = entry.make(operator.kind, Reader(session, named(operator), by_split, limits))
    return source, entry.gives_tables(operator.kind)


def discover(vertex: m.Vertex, known: Collection[str], limits: Limits = UNLIMITED) -> Discovered:
    """The splits of a vertex's source beyond `known`.

    Raises UserError when it has no source, and the errors of sources.
    """
    first = vertex.operators[0] if vertex.operators else m.Operator()
    entry = SOURCES.get(type(first.kind))
    if entry is None:
        raise UserError(f"vertex '{vertex.id}' has no source, so there is nothing to discover")
    return entry.discover(first.kind, Listing(known, named(first), vertex.parallelism or 1, limits))


def reopened(operator: m.Operator, limits: Limits, splits: Sequence[m.SplitState]) -> Sequence[m.SplitState]:
    """Splits that another run of a job has begun, with the ends that they have now. None ends before its offset.

    Raises the errors of sources.
    """
    names = tuple(split.split for split in splits)
    return SOURCES[type(operator.kind)].reopened(operator.kind, splits, Listing(names, named(operator), 1, limits))


def sink_of(operator: m.Operator, context: SinkContext, session: Session) -> Sink:
    """A writer for one subtask of a sink. Raises UserError."""
    return SINKS[type(operator.kind)].make(context, operator.kind, session)


def warm(operator: m.Operator) -> None:
    """Loads libraries that the sink's first commit would otherwise wait for."""
    SINKS[type(operator.kind)].warm()
