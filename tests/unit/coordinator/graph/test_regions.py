"""Whether the slots of a job depend on each other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.regions import connection
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    Edge,
    ForeachBatchSink,
    JobGraph,
    ObjectState,
    Operator,
    Partitioning,
    PythonSink,
    RecordFunction,
    Vertex,
)

from tests.unit.coordinator.jobs import forward, tiny, word_count


def with_operator(operator: Operator) -> JobGraph:
    """The forward-only job with one more operator in its second vertex."""
    graph = forward()
    last = graph.vertices[1]
    return replace(graph, vertices=(graph.vertices[0], replace(last, operators=(operator, *last.operators))))


def test_the_slots_of_a_job_whose_records_only_go_forward_are_independent() -> None:
    assert connection(normalize(forward())) == ""


@pytest.mark.parametrize(
    ("graph", "why"),
    [
        (word_count(), "every subtask of 'count' reads from every subtask of 'read'"),
        (tiny(), "it has one slot"),
        (
            replace(forward(), checkpoints=CheckpointOptions(mode=CheckpointMode.AT_MOST_ONCE)),
            "its checkpoints are AT_MOST_ONCE",
        ),
        (
            with_operator(Operator("shout", kind=ForeachBatchSink())),
            "the code of sink 'shout' may fence off all calls with a lower number of the attempt",
        ),
        (
            with_operator(Operator("own", kind=PythonSink())),
            "the code of sink 'own' may fence off all calls with a lower number of the attempt",
        ),
        (
            with_operator(Operator("rules", kind=RecordFunction(state=ObjectState.OBJECT_STATE_UNION))),
            "the subtasks of 'rules' share the state of its object",
        ),
    ],
)
def test_what_connects_the_slots_of_a_job_is_named(graph: JobGraph, why: str) -> None:
    assert connection(graph) == why


@pytest.mark.parametrize("spread", [Partitioning.HASH, Partitioning.REBALANCE, Partitioning.BROADCAST])
def test_one_edge_over_which_records_cross_connects_all_slots(spread: Partitioning) -> None:
    graph = forward()
    other = Vertex(
        id="other", parallelism=2, operators=(Operator(id="more", kind=graph.vertices[1].operators[0].kind),)
    )
    edges = (*graph.edges, Edge("read", "other", spread))
    assert "'other'" in connection(replace(graph, vertices=(*graph.vertices, other), edges=edges))
