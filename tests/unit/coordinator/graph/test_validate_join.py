"""What the leader says of interval joins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.graph.warnings import warnings
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    ConsoleSink,
    Edge,
    EventTime,
    GeneratorSource,
    IntervalJoin,
    JobGraph,
    JoinSide,
    Operator,
    Partitioning,
    SqlSink,
    SqlWriteMode,
    Vertex,
)

JOIN = IntervalJoin(("id",), ("order_id",), "at", "paid_at", -5000, 10_000)
LEFT = Edge("orders", "join", Partitioning.HASH, ("id",), join_side=JoinSide.LEFT)
RIGHT = Edge("payments", "join", Partitioning.HASH, ("order_id",), join_side=JoinSide.RIGHT)


def source(name: str, is_timed: bool = True) -> Vertex:
    time = (Operator(f"{name}-time", kind=EventTime("at", "", 0, 0)),) if is_timed else ()
    return Vertex(name, name, 2, operators=(Operator(f"{name}-source", kind=GeneratorSource(1, 10)), *time))


def joined(*edges: Edge, right: Vertex | None = None, **change: Any) -> JobGraph:
    sink = SqlSink("sqlite:////x.db", "pairs", (), SqlWriteMode.APPEND)
    operators = (Operator("match", kind=replace(JOIN, **change)), Operator("sink", kind=sink))
    join = Vertex("join", "join", 2, operators=operators)
    return JobGraph("joined", (source("orders"), right or source("payments"), join), edges or (LEFT, RIGHT))


def test_a_good_join_has_no_problem() -> None:
    assert validate(joined()) == ()
    assert validate(joined(lower_ms=3000, upper_ms=3000)) == ()
    more = replace(joined(LEFT, RIGHT, replace(LEFT, source="again")))
    assert validate(replace(more, vertices=(*more.vertices, source("again")))) == (), "a side may be a union"


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (joined(left_keys=()), "Operator 'match' joins by key but names no keys of the left side."),
        (joined(right_keys=("a", "b")), "joins 1 key columns (id) with 2 (a, b): both sides need the same number"),
        (joined(right_time=" "), "joins by event time but has none of the right side"),
        (joined(lower_ms=10_001), "joins from 10001 ms to 10000 ms, which is an empty interval"),
        (joined(upper_ms=10**13), "has upper_ms 10000000000000"),
        (joined(LEFT, replace(RIGHT, keys=("id",))), "on the keys of its right side (order_id), in this order"),
        (
            joined(replace(LEFT, partitioning=Partitioning.REBALANCE, keys=()), RIGHT),
            "the edge orders -> join is REBALANCE.",
        ),
        (
            joined(LEFT, replace(RIGHT, join_side=JoinSide.JOIN_SIDE_UNSPECIFIED)),
            "the edge payments -> join does not say which",
        ),
        (joined(LEFT, replace(RIGHT, join_side=JoinSide.LEFT)), "Join 'match' has no input on its right side"),
        (
            joined(right=source("payments", is_timed=False)),
            "Join 'match' goes by event time, but source 'payments-source' before it declares no event time, so that "
            "every record would be kept forever",
        ),
    ],
)
def test_joins_that_cannot_run(graph: JobGraph, expected: str) -> None:
    assert any(expected in problem for problem in validate(graph)), validate(graph)


def test_a_join_comes_first_and_sides_belong_to_joins() -> None:
    graph = joined()
    join = graph.vertices[2]
    late = replace(join, operators=(Operator("show", kind=ConsoleSink()), *join.operators[:1]))
    problems = validate(replace(graph, vertices=(*graph.vertices[:2], late)))
    assert "Join 'match' must be the first operator of its vertex, after a HASH edge." in problems
    assert any("is declared as the left side of a join, but vertex 'join'" in problem for problem in problems)


def test_at_least_once_may_show_pairs_twice() -> None:
    graph = replace(joined(), checkpoints=CheckpointOptions(mode=CheckpointMode.AT_LEAST_ONCE))
    assert "'sink' may permanently show duplicate records" in warnings(graph)[0]
    assert warnings(joined()) == ()
