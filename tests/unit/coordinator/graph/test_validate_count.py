"""Count windows: what the leader refuses, in one sentence each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.graph.changelog import added_up
from lockgate_coordinator.graph.code import brings_code
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    ConsoleSink,
    CountWindow,
    Edge,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    Vertex,
)

TOTAL = Aggregate("total", AggregateFunction.SUM, "n")
AGGREGATED = CountWindow(("k",), 10, 5, (TOTAL,))
CALLED = CountWindow(("k",), 10, 5, (), b"function", "f", "k INT")


def graph_of(kind: Any, before: Any = None) -> JobGraph:
    middle = () if before is None else (Vertex("before", parallelism=1, operators=(Operator("before", kind=before),)),)
    return JobGraph(
        name="counts",
        vertices=(
            Vertex("source", parallelism=1, operators=(Operator("source", kind=GeneratorSource(1, 9)),)),
            *middle,
            Vertex(
                "counts", parallelism=1, operators=(Operator("counts", kind=kind), Operator("p", kind=ConsoleSink()))
            ),
        ),
        edges=tuple(
            Edge(source, target, Partitioning.HASH, ("k",))
            for source, target in ([("source", "before"), ("before", "counts")] if middle else [("source", "counts")])
        ),
    )


def test_good_count_windows_have_no_problem() -> None:
    for kind in (AGGREGATED, CALLED, replace(AGGREGATED, size=1, every=1), replace(CALLED, size=1_000_000, every=100)):
        assert validate(graph_of(kind)) == ()
    assert brings_code(graph_of(CALLED))
    assert not brings_code(graph_of(AGGREGATED))


def test_values_that_later_ones_replace_are_not_to_be_counted() -> None:
    assert list(added_up(graph_of(AGGREGATED, KeyedAggregate(("k",), (TOTAL,))))) == [("counts", "before")]
    assert not list(added_up(graph_of(KeyedAggregate(("k",), (TOTAL,)), AGGREGATED))), "results of windows are final"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (replace(AGGREGATED, size=0), "has count windows of 0 records: it must be between 1 and 1000000"),
        (replace(AGGREGATED, every=0), "every must be between 1 and the size"),
        (replace(AGGREGATED, every=11), "of 10 records every 11 records: every must be between 1 and the size"),
        (replace(AGGREGATED, size=20_000, every=1), "would consist of more than 10000 pieces"),
        (replace(AGGREGATED, aggregates=()), "needs either aggregates or a function"),
        (replace(AGGREGATED, function=b"f", schema="k INT"), "needs either aggregates or a function"),
        (replace(CALLED, schema=" "), "needs the schema of its function's output"),
        (replace(AGGREGATED, keys=()), "counts windows by key but names no keys"),
        (replace(AGGREGATED, keys=("other",)), "Count window 'counts' needs HASH input on its keys"),
        (replace(AGGREGATED, aggregates=(replace(TOTAL, output="window_end"),)), "2 result columns named 'window_end'"),
        (replace(AGGREGATED, aggregates=(replace(TOTAL, output="__hash"),)), "named '__hash', which is reserved"),
        (replace(AGGREGATED, aggregates=(replace(TOTAL, input="DISTINCT n"),)), "has DISTINCT inside an aggregate"),
    ],
)
def test_mistakes_are_named(kind: CountWindow, expected: str) -> None:
    problems = validate(graph_of(kind))
    assert any(expected in problem for problem in problems), problems


def test_no_record_is_late_for_a_count_window() -> None:
    graph = graph_of(AGGREGATED)
    late = Vertex("late", parallelism=1, operators=(Operator("late", kind=ConsoleSink()),))
    edge = Edge("counts", "late", Partitioning.REBALANCE, side_output="late")
    problems = validate(replace(graph, vertices=(*graph.vertices, late), edges=(*graph.edges, edge)))
    assert any("does not begin with windows" in problem for problem in problems)
