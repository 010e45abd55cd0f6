"""Broadcast state: each rule has a graph that breaks it, and the sentence says how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from lockgate_coordinator.graph.changelog import added_up
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.reshape import reshape_problems
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointMode,
    CheckpointOptions,
    ConsoleSink,
    Edge,
    EventTime,
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    ObjectState,
    Operator,
    Partitioning,
    RecordCall,
    RecordFunction,
    SqlTransform,
    TumblingWindow,
    Vertex,
    VertexParallelism,
    Window,
)

FORWARD, HASH, REBALANCE, BROADCAST, FEEDBACK = (
    Partitioning.FORWARD,
    Partitioning.HASH,
    Partitioning.REBALANCE,
    Partitioning.BROADCAST,
    Partitioning.FEEDBACK,
)
SCORE = Operator("score", kind=RecordFunction(b"x", "f", RecordCall.FILTER, state=ObjectState.OBJECT_STATE_BROADCAST))
PRINT = Operator("print", kind=ConsoleSink())
COUNT = (Aggregate("n", AggregateFunction.COUNT),)


def source(name: str, parallelism: int, *more: Operator) -> Vertex:
    return Vertex(name, parallelism=parallelism, operators=(Operator(name, kind=GeneratorSource()), *more))


RECORDS, MODELS = source("records", 2), source("models", 1)
SCORED = Vertex("v", parallelism=2, operators=(SCORE, PRINT))
EDGES = (Edge("records", "v", FORWARD), Edge("models", "v", BROADCAST))


def graph(*vertices: Vertex, edges: tuple[Edge, ...] = EDGES, mode: CheckpointMode | None = None) -> JobGraph:
    options = None if mode is None else CheckpointOptions(mode=mode)
    return JobGraph("job", vertices or (RECORDS, MODELS, SCORED), edges, options)


@pytest.mark.parametrize("mode", [None, CheckpointMode.EXACTLY_ONCE, CheckpointMode.STOP_THE_WORLD])
def test_one_sender_and_aligned_barriers_are_enough(mode: CheckpointMode | None) -> None:
    assert validate(graph(mode=mode)) == ()
    for spread in (REBALANCE, HASH):
        edge = Edge("records", "v", spread, ("k",) if spread is HASH else ())
        assert validate(graph(edges=(edge, EDGES[1]))) == ()


def _not_first() -> JobGraph:
    behind = Vertex("v", parallelism=2, operators=(Operator("all", kind=SqlTransform("SELECT 1")), SCORE, PRINT))
    return graph(RECORDS, MODELS, behind)


def _two_senders() -> JobGraph:
    more = (*EDGES, Edge("others", "v", BROADCAST))
    return graph(RECORDS, MODELS, source("others", 1), SCORED, edges=more)


def _in_a_loop() -> JobGraph:
    head = Vertex("head", parallelism=2, operators=(Operator("head", kind=SqlTransform("SELECT * FROM input")),))
    out = Vertex("out", parallelism=2, operators=(PRINT,))
    edges = (
        Edge("records", "head", FORWARD),
        Edge("head", "v", FORWARD),
        EDGES[1],
        Edge("v", "head", FEEDBACK),
        Edge("v", "out", FORWARD),
    )
    return graph(RECORDS, MODELS, head, replace(SCORED, operators=(SCORE,)), out, edges=edges)


BROKEN: dict[str, tuple[Callable[[], JobGraph], str]] = {
    "not first": (_not_first, "and so must be the first operator of its vertex, where both its inputs arrive."),
    "no models": (lambda: graph(RECORDS, SCORED, edges=EDGES[:1]), "and no BROADCAST edge, on which its records come"),
    "no records": (lambda: graph(MODELS, SCORED, edges=EDGES[1:]), "and no other input: add an edge that is not"),
    "two senders": (_two_senders, "from 2 BROADCAST edges (models, others), whose records would come in another order"),
    "a wide sender": (
        lambda: graph(RECORDS, replace(MODELS, parallelism=2), SCORED),
        "from vertex 'models' with parallelism 2, whose records would come in another order in each subtask",
    ),
    "a loop": (_in_a_loop, "is in a loop, where that is not supported"),
    "unaligned": (lambda: graph(mode=CheckpointMode.UNALIGNED), "the job's checkpoint mode is UNALIGNED, in which a"),
    "at least once": (lambda: graph(mode=CheckpointMode.AT_LEAST_ONCE), "checkpoint mode is AT_LEAST_ONCE, in which"),
    "at most once": (lambda: graph(mode=CheckpointMode.AT_MOST_ONCE), "AT_MOST_ONCE, in which a restart loses"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_rule_has_its_sentence(name: str) -> None:
    make, text = BROKEN[name]
    (problem,) = validate(make())
    assert problem.startswith("Operator 'score' has broadcast state")
    assert text in problem


def test_a_rescale_of_the_sender_is_refused_and_one_of_the_others_is_not() -> None:
    wide = normalize(graph(edges=(Edge("records", "v", REBALANCE), EDGES[1])))
    assert reshape_problems(wide, [VertexParallelism("v", 5)]) == ()
    (problem,) = reshape_problems(wide, [VertexParallelism("models", 2)])
    assert "from vertex 'models' with parallelism 2" in problem


def _windowed(*of_models: Operator) -> JobGraph:
    at = Operator("at", kind=EventTime("sequence", "at"))
    window = Window(TumblingWindow(1_000), "at")
    counts = Vertex("counts", operators=(Operator("counts", kind=KeyedAggregate(("k",), COUNT, window)), PRINT))
    edges = (*EDGES, Edge("v", "counts", HASH, ("k",)))
    vertices = (source("records", 2, at), source("models", 1, *of_models), replace(SCORED, operators=(SCORE,)))
    return graph(*vertices, replace(counts, parallelism=2), edges=edges)


def test_windows_behind_it_need_no_event_time_of_the_models() -> None:
    assert validate(_windowed()) == ()
    plain = replace(SCORE, kind=replace(SCORE.kind, state=ObjectState.OBJECT_STATE_UNSPECIFIED))
    vertices = [replace(item, operators=(plain,)) if item.id == "v" else item for item in _windowed().vertices]
    assert any("source 'models' before it declares no event time" in text for text in validate(
        replace(_windowed(), vertices=tuple(vertices))
    ))  # fmt: skip


def test_a_changelog_that_becomes_state_is_not_added_up() -> None:
    best = Vertex("best", parallelism=1, operators=(Operator("best", kind=KeyedAggregate(("k",), COUNT)),))
    counts = Vertex("counts", parallelism=2, operators=(Operator("counts", kind=KeyedAggregate(("k",), COUNT)), PRINT))
    edges = (
        EDGES[0],
        Edge("models", "best", HASH, ("k",)),
        Edge("best", "v", BROADCAST),
        Edge("v", "counts", HASH, ("k",)),
    )
    job = graph(RECORDS, MODELS, best, replace(SCORED, operators=(SCORE,)), counts, edges=edges)
    assert validate(job) == ()
    assert list(added_up(normalize(job))) == []
