"""Whether a job graph contains code, which only callers may submit that may run code as the cluster's user."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any

from lockgate_proto.messages import JobGraph, KafkaSink, KafkaSource, SqlTransform

from lockgate_coordinator.graph.kafka_options import beyond_connecting

# Each pattern takes time in proportion to the text, which may be as long as a message.
_QUERY = re.compile(r"[\s(]*\b(select|with|from|values|table)\b", re.IGNORECASE)
_CALLS_JAVA = re.compile(r"\b(try_reflect|reflect|java_method|identifier)\b", re.IGNORECASE)
_HANDS_ROWS_ON = re.compile(r"\b(transform|map|reduce)\b", re.IGNORECASE)
_USING = re.compile(r"\busing\b", re.IGNORECASE)


def brings_code(graph: JobGraph) -> str:
    """The operator that contains code, as the subject of a sentence; "" for none.

    All bytes in a graph are pickles. SQL counts if it is not a query, or if it could call Java or start programs in
    Spark; a harmless name that looks like this counts as well. Options for Kafka count unless they are known to only
    connect.
    """
    for vertex in graph.vertices:
        for operator in vertex.operators:
            for value in _values(operator):
                if what := _what(value):
                    return f"operator {operator.id!r}, which {what},"
    return ""


def _what(value: Any) -> str:
    match value:
        case bytes() if value:
            return "has a Python function or connector"
        case KafkaSource(options=options) | KafkaSink(options=options) if option := beyond_connecting(options):
            return f"has the Kafka option {option!r}"
        case SqlTransform(query=query) if not _QUERY.match(query):
            return "has SQL that is no query"
        case str() if _CALLS_JAVA.search(value):
            return "calls Java from SQL"
        case str() if (first := _HANDS_ROWS_ON.search(value)) and _USING.search(value, first.end()):
            return "may run a script from SQL"
    return ""


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
