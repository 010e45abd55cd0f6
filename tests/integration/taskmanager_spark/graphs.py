"""Short ways to write job graphs in tests."""

from __future__ import annotations

from typing import Any

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    Edge,
    FileFormat,
    FileSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    SqlTransform,
    Vertex,
)

HASH = Partitioning.HASH


def operators(prefix: str, kinds: tuple[Any, ...]) -> tuple[Operator, ...]:
    """Operators `<prefix>0`, `<prefix>1`, ..."""
    return tuple(Operator(id=f"{prefix}{n}", name=f"{prefix}{n}", kind=kind) for n, kind in enumerate(kinds))


def vertex(name: str, *kinds: Any, parallelism: int = 1) -> Vertex:
    """A vertex of the given operators."""
    return Vertex(id=name, name=name, parallelism=parallelism, operators=operators(name, kinds))


def graph(*vertices: Vertex, edges: tuple[Edge, ...] = ()) -> JobGraph:
    """A graph."""
    return JobGraph(name="test", vertices=vertices, edges=edges)


def text(path: object, **more: Any) -> FileSource:
    """A text source."""
    return FileSource(path=str(path), format=FileFormat.TEXT, **more)


def sql(query: str) -> SqlTransform:
    """An SQL operator."""
    return SqlTransform(query=query)


WORDS = sql("SELECT explode(split(value, ' ')) AS word FROM input")


def count_by(*keys: str) -> KeyedAggregate:
    """count(*) AS n"""
    return aggregate(keys, n=(AggregateFunction.COUNT, ""))


def aggregate(keys: tuple[str, ...], **outputs: tuple[AggregateFunction, str]) -> KeyedAggregate:
    """output=(function, expression)"""
    return KeyedAggregate(keys, tuple(Aggregate(name, *what) for name, what in outputs.items()))
