"""Loops in job graphs: what may be one, and who takes up what circled in a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.graph.validate import validate
from lockgate_coordinator.job.in_flight import holds_in_flight, in_flight_misfits
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_proto.loops import loops, spread_of
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    ChannelSide,
    ChannelState,
    CheckpointMetadata,
    CheckpointMode,
    CheckpointOptions,
    ConsoleSink,
    CountWindow,
    Deduplicate,
    Edge,
    EventTime,
    GeneratorSource,
    IntervalJoin,
    JobGraph,
    KeyedAggregate,
    KeyedProcess,
    MemoryBackend,
    Operator,
    Partitioning,
    SqlTransform,
    StateBackend,
    SubtaskState,
    TumblingWindow,
    Vertex,
    Window,
    WindowProcess,
)

FORWARD, HASH, REBALANCE, BROADCAST, FEEDBACK = (
    Partitioning.FORWARD,
    Partitioning.HASH,
    Partitioning.REBALANCE,
    Partitioning.BROADCAST,
    Partitioning.FEEDBACK,
)
SQL = SqlTransform("SELECT * FROM input")
COUNTED = KeyedAggregate(("k",), (Aggregate("n", AggregateFunction.COUNT),))
WINDOWED = replace(COUNTED, window=Window(TumblingWindow(1000), "t"))
BY_CLOCK = replace(WINDOWED, window=Window(TumblingWindow(1000), processing_time=True))
BACK = Edge("tail", "head", FEEDBACK)


def _vertex(name: str, kind: Any, parallelism: int = 2) -> Vertex:
    return Vertex(name, name, parallelism, 0, (Operator(f"{name}-1", name, kind),))


def _loop(back: Edge = BACK, width: int = 2) -> JobGraph:
    kinds = {"source": GeneratorSource(), "head": SQL, "tail": SQL, "sink": ConsoleSink()}
    edges = (Edge("source", "head", FORWARD), Edge("head", "tail", FORWARD), back, Edge("tail", "sink", REBALANCE))
    return JobGraph(vertices=tuple(_vertex(name, kind, width) for name, kind in kinds.items()), edges=edges)


def _with(graph: JobGraph, vertex: Vertex) -> JobGraph:
    return replace(graph, vertices=tuple(vertex if item.id == vertex.id else item for item in graph.vertices))


def test_a_loop_is_a_cycle_of_records() -> None:
    graph = _loop()
    assert validate(graph) == ()
    assert loops(graph) == (frozenset({"head", "tail"}),)
    assert loops(replace(graph, edges=tuple(edge for edge in graph.edges if edge != BACK))) == ()


@pytest.mark.parametrize(
    ("edge", "spread"),
    [
        (BACK, FORWARD),
        (replace(BACK, keys=("k",)), HASH),
        (replace(BACK, feedback=REBALANCE), REBALANCE),
        (Edge("a", "b", BROADCAST), BROADCAST),
    ],
)
def test_how_a_back_edge_spreads_its_records(edge: Edge, spread: Partitioning) -> None:
    assert spread_of(edge) is spread
    if edge.source == "tail":
        graph = normalize(_loop(edge))
        assert [edge.feedback for edge in graph.edges if edge.partitioning is FEEDBACK] == [spread]
        assert validate(graph) == ()


def _mode(mode: CheckpointMode) -> Callable[[JobGraph], JobGraph]:
    return lambda graph: replace(graph, checkpoints=CheckpointOptions(mode=mode))


WRONG: dict[str, tuple[Callable[[JobGraph], JobGraph], str]] = {
    "a back edge that closes nothing": (
        lambda graph: replace(graph, edges=(*graph.edges, Edge("source", "sink", FEEDBACK))),
        "The edge source -> sink is FEEDBACK, but no records come from 'sink' to 'source': it closes no loop.",
    ),
    "a cycle of other edges": (
        lambda graph: replace(graph, edges=tuple(replace(edge, partitioning=FORWARD) for edge in graph.edges)),
        "The vertices head, tail form a cycle: the edge that closes a loop has to be FEEDBACK.",
    ),
    "broadcast": (
        lambda _: _loop(replace(BACK, feedback=BROADCAST)),
        "The edge tail -> head is FEEDBACK by BROADCAST: it must be FORWARD, HASH or REBALANCE.",
    ),
    "forward between unequal vertices": (
        lambda graph: _with(graph, _vertex("head", SQL, 1)),
        "The edge tail -> head is FORWARD, but the parallelism differs (2 and 1): make them equal or use REBALANCE.",
    ),
    "no input from outside": (
        lambda graph: replace(graph, edges=(Edge("source", "sink", FORWARD), *graph.edges[1:])),
        "No edge enters the loop of head, tail: it needs an input from outside.",
    ),
    "no way out": (
        lambda graph: replace(graph, edges=(*graph.edges[:3], Edge("source", "sink", FORWARD))),
        "No edge leaves the loop of head, tail: its results would be lost.",
    ),
    "a window inside": (
        lambda graph: _with(graph, _vertex("tail", WINDOWED)),
        "Operator 'tail-1' is in the loop of head, tail: its windows need a watermark, and none passes through a loop, "
        "because a record may return at any age; put it in front of the loop.",
    ),
    "a window of processing time inside": (
        lambda graph: _with(graph, _vertex("tail", BY_CLOCK)),
        "Operator 'tail-1' is in the loop of head, tail: its windows emit when the clock has reached their ends, and "
        "by then the loop may have been found empty and ended; put it behind the loop.",
    ),
    "timers inside": (
        lambda graph: _with(graph, _vertex("tail", KeyedProcess(("k",), b"x"))),
        "Operator 'tail-1' is in the loop of head, tail: its function may set timers, and when one fires the loop may "
        "have been found empty and ended; use a function without on_timer, or put it behind the loop.",
    ),
    "a join inside": (
        lambda graph: _with(graph, _vertex("tail", IntervalJoin())),
        "Operator 'tail-1' is in the loop of head, tail: it needs a watermark to forget old records, and none passes "
        "through a loop; put it in front of the loop.",
    ),
    "event time inside": (
        lambda graph: _with(graph, _vertex("tail", EventTime("t"))),
        "Operator 'tail-1' is in the loop of head, tail: it declares event time, and a watermark does not hold for "
        "records that return at any age; declare it behind the source.",
    ),
    "a source inside": (
        lambda graph: _with(graph, _vertex("tail", GeneratorSource())),
        "Operator 'tail-1' is in the loop of head, tail: it reads from outside, so the loop would not be empty before "
        "it ends; put it in front of the loop.",
    ),
    "a sink inside": (
        lambda graph: _with(graph, _vertex("tail", ConsoleSink())),
        "Operator 'tail-1' is in the loop of head, tail: nothing returns from a sink; put it behind the loop.",
    ),
    "a window behind": (
        lambda graph: _with(graph, _vertex("sink", WINDOWED)),
        "Operator 'sink-1' needs event time, but is behind the loop of head, tail, through which no watermark "
        "passes: put it in front.",
    ),
    "a join behind": (
        lambda graph: _with(graph, _vertex("sink", IntervalJoin())),
        "Operator 'sink-1' needs event time, but is behind the loop of head, tail, through which no watermark "
        "passes: put it in front.",
    ),
    "a function of windows behind": (
        lambda graph: _with(graph, _vertex("sink", WindowProcess(window=Window(TumblingWindow(5), "at")))),
        "Operator 'sink-1' needs event time, but is behind the loop of head, tail, through which no watermark "
        "passes: put it in front.",
    ),
    "keyed state at the head": (
        lambda graph: _with(graph, _vertex("head", COUNTED)),
        "The loop goes back to 'head-1', which is not a transform: put one in front of it, for example the SQL "
        "'SELECT * FROM input', and connect the back edge to it.",
    ),
    "at least once": (
        _mode(CheckpointMode.AT_LEAST_ONCE),
        "The job has a loop, and checkpoints at least once: a loop needs EXACTLY_ONCE or UNALIGNED.",
    ),
    "at most once": (
        _mode(CheckpointMode.AT_MOST_ONCE),
        "The job has a loop, and checkpoints at most once: a snapshot holds the records that circulate, and a restart "
        "would process them again; use EXACTLY_ONCE or UNALIGNED.",
    ),
    "a side output": (
        lambda _: _loop(replace(BACK, side_output="late")),
        "The edge tail -> head is FEEDBACK of the side output 'late': only results can go back.",
    ),
    "feedback said of another edge": (
        lambda graph: replace(graph, edges=(replace(graph.edges[0], feedback=HASH), *graph.edges[1:])),
        "The edge source -> head sets `feedback`, but is FORWARD: leave `feedback` out.",
    ),
    "too much state in messages": (
        lambda graph: replace(graph, state_backend=StateBackend(MemoryBackend(20 << 20))),
        "The memory backend's max_state_bytes is 20971520: it must be between 0 (for 16 MiB) and 16777216, because the "
        "state travels inside messages, in a loop with the same amount of records in flight. Use the filesystem "
        "backend for more.",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_problems_of_a_loop_are_reported_in_a_sentence(name: str) -> None:
    change, sentence = WRONG[name]
    assert sentence in validate(change(_loop()))


@pytest.mark.parametrize(
    "kind",
    [
        COUNTED,
        CountWindow(("k",), 3, 3, COUNTED.aggregates),
        Deduplicate(("k",)),
        KeyedProcess(("k",), b"x", schema="k INT", without_timers=True),
    ],
)
def test_keyed_operators_that_only_answer_records_may_be_inside(kind: Any) -> None:
    graph = _with(_loop(), _vertex("tail", kind))
    by_key = Edge("head", "tail", HASH, ("k",))
    assert validate(replace(graph, edges=(graph.edges[0], by_key, *graph.edges[2:]))) == ()


@pytest.mark.parametrize("mode", [CheckpointMode.UNALIGNED, CheckpointMode.STOP_THE_WORLD])
def test_loops_in_the_other_modes(mode: CheckpointMode) -> None:
    assert validate(_mode(mode)(_loop())) == ()


def test_windows_of_processing_time_may_be_behind_a_loop() -> None:
    graph = _with(_loop(), _vertex("sink", BY_CLOCK))
    assert not [problem for problem in validate(graph) if "event time" in problem]


def _log(sender: int) -> ChannelState:
    return ChannelState(ChannelSide.INPUT_CHANNEL, "tail", sender, elements=1, feedback=True)


def _snapshot(graph: JobGraph, logs: dict[int, tuple[int, ...]]) -> CheckpointMetadata:
    graph = normalize(graph)
    subtasks = [
        SubtaskState(
            vertex.id, index, channels=tuple(_log(log) for log in logs.get(index, ())) if vertex.id == "head" else ()
        )
        for vertex in graph.vertices
        for index in range(vertex.parallelism)
    ]
    return CheckpointMetadata(format_version=1, vertices=vertex_shapes(graph), subtasks=tuple(subtasks))


@pytest.mark.parametrize("spread", [FORWARD, REBALANCE])
@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_circulating_records_are_restored_once_at_any_parallelism(spread: Partitioning, width: int) -> None:
    back = replace(BACK, feedback=spread)
    senders = {0: (0,), 1: (1,), 2: (2,)} if spread is FORWARD else {0: (0, 2), 2: (0, 1, 2)}
    snapshot = _snapshot(_loop(back, 3), senders)
    now = normalize(_loop(back, width))
    assert in_flight_misfits(now, snapshot) == ()
    assert not holds_in_flight(snapshot)
    restored = redistribute(now, snapshot)
    found = {key: subtask_state.channels for key, subtask_state in restored.items() if subtask_state.channels}
    assert sum(len(item) for item in found.values()) == sum(len(sender) for sender in senders.values())
    for (vertex, index), channels in found.items():
        assert (vertex, index < width) == ("head", True)
        assert all(channel.subtask == index if spread is FORWARD else channel.subtask < width for channel in channels)
    if width == 3:
        assert {key[1]: tuple(channel.subtask for channel in channels) for key, channels in found.items()} == senders


def test_a_graph_without_the_back_edge_cannot_take_it_up() -> None:
    graph = _loop()
    snapshot = _snapshot(graph, {1: (1,)})
    straight = normalize(replace(graph, edges=tuple(edge for edge in graph.edges if edge != BACK)))
    assert in_flight_misfits(straight, snapshot) == (
        "The snapshot contains records that were returning from 'tail' to 'head' in a loop, and the job has no "
        "FEEDBACK edge between these vertices: leave the loop as it was.",
    )
    assert in_flight_misfits(straight, _snapshot(graph, {})) == (), "after the loop was found to be empty just then"
