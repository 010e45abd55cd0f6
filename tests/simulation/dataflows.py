"""Hypothesis strategies: dataflows of random shape, and what happens to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import assume
from hypothesis import strategies as st
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.validate import validate
from lockgate_proto.loops import behind, spread_of
from lockgate_proto.messages import CheckpointMode, Edge, Partitioning, Vertex

from tests.simulation.flow import SAME, TRANSFORMS
from tests.simulation.job import BY_KEY, SimulatedJob, count, hashed, ledger, source, transform
from tests.simulation.orders import Order
from tests.simulation.scenarios import FAULTS
from tests.simulation.simulation import Scenario
from tests.simulation.taskmanager import TaskPlan

WIDTHS = st.integers(1, 3)
SPREADS = (Partitioning.FORWARD, Partitioning.HASH, Partitioning.REBALANCE, Partitioning.BROADCAST)
MOST_VISITS = 3_000
"""At ledgers and counts together: what goes round and is doubled on the way grows fast."""


@st.composite
def jobs(draw: st.DrawFn, mode: CheckpointMode) -> SimulatedJob:
    """1 to 3 sources, up to 4 transforms and counts behind them, 1 or 2 ledgers, perhaps a table and a loop."""
    sources = [
        source(f"source-{n}", draw(st.integers(1, 3)), draw(st.integers(8, 30)), draw(WIDTHS), discovered=draw(_FLAGS))
        for n in range(draw(st.integers(1, 3)))
    ]
    has_loop = mode is not CheckpointMode.AT_LEAST_ONCE and draw(st.sampled_from((True, True, False)))
    inner = [transform("head", draw(WIDTHS))] if has_loop else []
    inner += [_inner(draw, f"inner-{n}") for n in range(draw(st.sampled_from((0, 1, 2, 3))))]
    sinks = [ledger(f"ledger-{n}", draw(WIDTHS)) for n in range(draw(st.integers(1, 2)))]
    sinks += [count("table", draw(WIDTHS))] if draw(_FLAGS) else []
    edges: list[Edge] = []
    for number, vertex in enumerate([*inner, *sinks]):
        before = [*sources, *inner[:number]]
        picked = draw(st.lists(st.sampled_from(before), min_size=1, max_size=3, unique_by=lambda item: item.id))
        edges += [_edge(draw, item, vertex) for item in picked]
    leads_on = {edge.source for edge in edges}
    edges += [_edge(draw, source, sinks[0]) for source in [*sources, *inner] if source.id not in leads_on]
    edges += _back_edges(draw, inner, edges) if has_loop else []
    job = SimulatedJob(
        "job",
        (*sources, *inner, *sinks),
        tuple(edges),
        interval_ms=draw(st.sampled_from((60, 120, 250))),
        timeout_ms=draw(st.sampled_from((150, 500, 2_000))),
        retained=draw(st.integers(1, 2)),
        mode=mode,
    )
    assert not validate(normalize(job.graph())), validate(normalize(job.graph()))
    assume(sum(found.total() for found in job.model.everything().at.values()) <= MOST_VISITS)
    return job


_FLAGS = st.booleans()


def _inner(draw: st.DrawFn, name: str) -> Vertex:
    queries = st.sampled_from((SAME, *TRANSFORMS))
    return count(name, draw(WIDTHS), shown=False) if draw(_FLAGS) else transform(name, draw(WIDTHS), draw(queries))


def _is_keyed(vertex: Vertex) -> bool:
    return vertex.operators[0].name == "aggregate"


def _edge(draw: st.DrawFn, before: Vertex, vertex: Vertex) -> Edge:
    if _is_keyed(vertex):
        return hashed(before.id, vertex.id)
    return _spread(draw, before, vertex, SPREADS)


def _spread(draw: st.DrawFn, before: Vertex, vertex: Vertex, spreads: Sequence[Partitioning]) -> Edge:
    is_lane = before.parallelism == vertex.parallelism
    spread = draw(st.sampled_from([spread for spread in spreads if is_lane or spread is not Partitioning.FORWARD]))
    return Edge(before.id, vertex.id, spread, BY_KEY if spread is Partitioning.HASH else ())


def _back_edges(draw: st.DrawFn, inner: Sequence[Vertex], edges: Sequence[Edge]) -> list[Edge]:
    """One or two that lead to a transform, from itself or from what its records come to."""
    head = draw(st.sampled_from([vertex for vertex in inner if not _is_keyed(vertex)]))
    reached = behind(edges, head.id)
    tails = [vertex for vertex in inner if vertex.id in reached]
    picked = draw(st.lists(st.sampled_from(tails), min_size=1, max_size=2, unique_by=lambda item: item.id))
    spreads = [_spread(draw, item, head, SPREADS[:3]) for item in picked]
    return [replace(spread, partitioning=Partitioning.FEEDBACK, feedback=spread.partitioning) for spread in spreads]


@st.composite
def scenarios(draw: st.DrawFn, mode: CheckpointMode, patience_ms: int = 0) -> Scenario:
    """A dataflow, faults of coordinators, task managers and the network, and rescales. The seed: the interleaving."""
    job = draw(jobs(mode))
    faults = draw(st.lists(st.tuples(st.integers(50, 1_200), st.sampled_from(sorted(FAULTS))), min_size=1, max_size=5))
    rare = st.sampled_from((0.0, 0.0, 0.02))
    return Scenario(
        draw(st.integers(0, 2**32 - 1)),
        task_managers=draw(st.integers(2, 3)),
        faults=tuple(faults),
        plan=TaskPlan(draw(rare), draw(rare), draw(rare) / 4, draw(st.sampled_from((0.0, 0.1))), quiet_after_ms=6_000),
        mode=mode,
        orders=tuple((at, _rescale(draw, job)) for at in draw(st.lists(st.integers(100, 900), min_size=1, max_size=2))),
        at_a_time=1 if mode is CheckpointMode.STOP_THE_WORLD else draw(st.integers(1, 3)),
        job=job,
        patience_ms=patience_ms,
    )


def _rescale(draw: st.DrawFn, job: SimulatedJob) -> Order:
    """Of one vertex, often a keyed one, and of those that lanes join to it."""
    keyed = [vertex for vertex in job.vertices if _is_keyed(vertex)]
    vertex = draw(st.sampled_from(keyed if keyed and draw(_FLAGS) else job.vertices))
    names = {vertex.id}
    lanes = [{edge.source, edge.target} for edge in job.edges if spread_of(edge) is Partitioning.FORWARD]
    while more := {name for lane in lanes if lane & names for name in lane} - names:
        names |= more
    return Order(
        draw(st.sampled_from([number for number in range(1, 5) if number != vertex.parallelism])), tuple(sorted(names))
    )
