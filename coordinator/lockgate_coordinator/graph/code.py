"""Whether a job graph contains code, which only callers may submit that may run code as the cluster's user."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from lockgate_proto.messages import DeltaSink, JobGraph, KafkaSink, KafkaSource, SqlSink, SqlTransform

from lockgate_coordinator.graph.kafka_options import beyond_connecting

# Each pattern takes time in proportion to the text, which may be as long as a message.
_QUERY = re.compile(r"[\s(]*\b(select|with|from|values|table)\b", re.IGNORECASE)
_CALLS_JAVA = re.compile(r"\b(try_reflect|reflect|java_method|identifier)\b", re.IGNORECASE)
# Their options or arguments name files: schemas, descriptors, logs.
_READS_FILES = re.compile(
    r"\b((from|to|schema_of)_(avro|xml)|(from|to)_protobuf|python_worker_logs)\b|\.\s*`[^`]*[/:\\]", re.IGNORECASE
)
# A word, and one that has to come somewhere behind it: rows are handed to a script, or written.
_SCRIPTS = ((re.compile(r"\b(transform|map|reduce)\b", re.IGNORECASE), re.compile(r"\busing\b", re.IGNORECASE)),)
_WRITES = tuple(
    (re.compile(rf"\b{first}\b", re.IGNORECASE), re.compile(rf"\b({second})\b", re.IGNORECASE))
    for first, second in (("insert", "into|overwrite"), ("merge", "into|with"), ("delete", "from"), ("update", "set"))
)
_MAY_WRITE = re.compile(r"[\s(]*\b(with|from)\b", re.IGNORECASE)
_VARIABLE = "${"
_WITH_VARIABLES = (KafkaSource, KafkaSink, DeltaSink, SqlSink)  # which replace them themselves


def brings_code(graph: JobGraph) -> str:
    """The operator that contains code, as the subject of a sentence; "" for none.

    All bytes in a graph are pickles. SQL counts if it is not a query, or if it could call Java, start programs in
    Spark, read files by their paths, write, or name variables of a process; a harmless name that looks like this counts
    as well. Options for Kafka count unless they are known to only connect.
    """
    for vertex in graph.vertices:
        for operator in vertex.operators:
            may_name_variables = isinstance(operator.kind, _WITH_VARIABLES)
            for value in _values(operator):
                if what := _what(value) or ("" if may_name_variables else _variable_in(value)):
                    return f"operator {operator.id!r}, which {what},"
    for edge in graph.edges:
        if any(map(_variable_in, _values(edge))):
            return f"the edge from {edge.source!r} to {edge.target!r}, which names a variable,"
    return ""


def _what(value: Any) -> str:
    match value:
        case bytes() if value:
            return "has a Python function or connector"
        case KafkaSource(options=options) | KafkaSink(options=options) if option := beyond_connecting(options):
            return f"has the Kafka option {option!r}"
        case SqlTransform(query=query) if not _QUERY.match(query):
            return "has SQL that is not a query"
        case SqlTransform(query=query) if _MAY_WRITE.match(query) and _follows(query, _WRITES):
            return "has SQL that may write"
        case str() if _CALLS_JAVA.search(value):
            return "calls Java from SQL"
        case str() if _READS_FILES.search(value):
            return "may read files from SQL"
        case str() if _follows(value, _SCRIPTS):
            return "may run a script from SQL"
    return ""


def _follows(text: str, pairs: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]) -> bool:
    """True when both words of a pair are there, in their order."""
    found = ((first.search(text), second) for first, second in pairs)
    return any(start is not None and second.search(text, start.end()) is not None for start, second in found)


def _variable_in(value: Any) -> str:
    """Spark replaces `${env:NAME}` and `${NAME}` in SQL by what this process, or its settings, know by that name."""
    return "names a variable in SQL" if isinstance(value, str) and _VARIABLE in value else ""


def _values(value: Any) -> Iterator[Any]:
    yield value
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _values(getattr(value, field.name))
    elif isinstance(value, tuple):
        for element in value:
            yield from _values(element)
    elif isinstance(value, dict):
        for key, element in value.items():
            yield from _values(key)
            yield from _values(element)
