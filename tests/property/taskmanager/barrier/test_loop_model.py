"""Loops under random schedules: snapshots of cyclic dataflows, their restore, and the end, against a naive model.

The dataflow runs on the real barrier machines, input gates and probes, one step of one subtask at a time, in an order
that Hypothesis chooses. The model knows neither channels nor barriers: it follows one record after the other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.loops import is_feedback, loop_of, spread_of
from lockgate_proto.messages import (
    Barrier,
    CheckpointMode,
    Edge,
    EndOfInput,
    JobGraph,
    Partitioning,
    SubtaskId,
    Vertex,
)
from lockgate_taskmanager.barrier import events as on
from lockgate_taskmanager.barrier.modes import barriers_for
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.loop_part import LoopPart, loop_part_of
from lockgate_taskmanager.runtime.output_set import OutputSet
from lockgate_taskmanager.runtime.subtask_input import barrier_event

from tests.property.taskmanager.barrier.flow import Snapshot, SteppedFlow, table_of

Place = tuple[str, int]
Record = tuple[int, int, int]  # source, sequence, hops to go
Visit = tuple[str, Record]
Ends = tuple[Place, Place]

SOURCE, SINK = "source", "sink"
QUEUE = 2  # elements in a channel's queue, and on its way
HOPS = 5

# Forward ways and back edges between the vertices of the loop; which of them read from outside.
SHAPES: dict[str, tuple[str, str, str]] = {
    "itself": ("", "aa", "a"),
    "simple": ("ab", "ba", "a"),
    "long": ("ab bc", "ca", "a"),
    "two back edges": ("ab bc", "ba ca", "a"),
    "input in the middle": ("ab bc", "ca", "ac"),
    "nested": ("ab bc cd", "cb da", "a"),
    "crossed": ("ax by", "xb ya", "ab"),
    "two rings": ("ab ac", "ba ca", "a"),
}
BACK = Partitioning.FEEDBACK


@st.composite
def _graphs(draw: st.DrawFn) -> JobGraph:
    forward, back, fed = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    names = sorted({name for name in forward + back if name != " "})
    widths = {name: draw(st.integers(1, 2)) for name in (SOURCE, *names)} | {SINK: 1}

    def spread(text: str, other: str) -> Partitioning:
        is_equal = widths[text] == widths[other]
        return Partitioning.FORWARD if is_equal and draw(st.booleans()) else Partitioning.HASH

    edges = [Edge(SOURCE, name, spread(SOURCE, name)) for name in fed]
    edges += [Edge(item, other, spread(item, other)) for item, other in forward.split()]
    edges += [Edge(item, other, BACK, feedback=spread(item, other)) for item, other in back.split()]
    edges += [Edge(name, SINK, Partitioning.HASH) for name in names]
    return JobGraph(
        vertices=tuple(Vertex(name, parallelism=width) for name, width in widths.items()), edges=tuple(edges)
    )


def _onwards(graph: JobGraph, name: str, record: Record) -> tuple[Edge, Record] | None:
    """The way that a record takes out of a vertex; None at the end."""
    source, sequence, hops = record
    if name == SOURCE:
        ways = [edge for edge in graph.edges if edge.source == SOURCE]
        return ways[(source + sequence) % len(ways)], record
    if name == SINK:
        return None
    inside = loop_of(graph, name)
    ways = [edge for edge in graph.edges if edge.source == name and (edge.target in inside) == (hops > 0)]
    return ways[(source * 5 + sequence * 3 + hops) % len(ways)], (source, sequence, max(0, hops - 1))


def _visits(graph: JobGraph, name: str, record: Record) -> Iterator[Visit]:
    """The naive model: everything that comes of a record which is about to be processed in a vertex."""
    yield name, record
    following = _onwards(graph, name, record)
    if following is not None:
        yield from _visits(graph, following[0].target, following[1])


class Flow(SteppedFlow[Place, Visit]):
    """A whole dataflow. `transit` holds what a sender has queued and the network has not delivered yet."""

    def __init__(self, graph: JobGraph, rows: int, mode: CheckpointMode, hops: int = HOPS) -> None:
        self.graph, self.rows, self.mode, self.hops = graph, rows, mode, hops
        self.widths = {vertex.id: vertex.parallelism for vertex in graph.vertices}
        self.places = [(name, index) for name, width in self.widths.items() for index in range(width)]
        self.inputs = {place: self._inputs(place) for place in self.places}
        fed = [place for place in self.places if self.inputs[place]]
        self.loops: dict[Place, LoopPart | None] = {place: self._loop(place) for place in fed}
        self.gates = {place: self._gate(place) for place in fed}
        self.barriers = {place: barriers_for(mode, len(self.inputs[place]), self._back(place)) for place in fed}
        self.transit: dict[Ends, deque[Any]] = {
            (input_, place): deque() for place in fed for input_ in self.inputs[place]
        }
        self.offsets = [0] * self.widths[SOURCE]
        self.ended: set[Place] = set()
        self.seen: dict[Place, list[Visit]] = {place: [] for place in self.places}
        self.snapshots: dict[int, Snapshot[Place, Visit]] = {}

    def _inputs(self, place: Place) -> list[Place]:
        found: dict[Place, None] = {}
        for edge in self.graph.edges:
            if edge.target == place[0]:
                is_lane = spread_of(edge) is Partitioning.FORWARD
                for index in (place[1],) if is_lane else range(self.widths[edge.source]):
                    found[edge.source, index] = None
        return list(found)

    def _loop(self, place: Place) -> LoopPart | None:
        return loop_part_of(self.graph, SubtaskId(None, *place), [ChannelId(*input_) for input_ in self.inputs[place]])

    def _back(self, place: Place) -> frozenset[int]:
        loop = self.loops[place]
        return loop.feedback if loop is not None else frozenset()

    def _gate(self, place: Place) -> InputGate:
        return InputGate(
            [ChannelId(*input_) for input_ in self.inputs[place]],
            max_elements=QUEUE,
            on_barrier=lambda barrier: self.apply(place, on.BarrierOvertakes(barrier)),
            feedback=self._back(place),
        )

    def steps(self) -> list[tuple[str, Any]]:
        """Everything that may happen next. What could block in a real sender is not offered."""
        found: list[tuple[str, Any]] = [("deliver", ends) for ends, queue in self.transit.items() if self._may_go(ends)]
        found += [("take", place) for place, gate in self.gates.items() if gate.has_ready() and self._has_room(place)]
        found += [("read", place) for place in self.sources() if place not in self.ended and self._has_room(place)]
        return found

    def _may_go(self, ends: Ends) -> bool:
        queue = self.transit[ends]
        is_urgent = bool(queue) and isinstance(queue[0], Barrier) and queue[0].unaligned
        return bool(queue) and (is_urgent or self.gates[ends[1]].has_room(self.inputs[ends[1]].index(ends[0])))

    def _has_room(self, place: Place) -> bool:
        return all(len(queue) < QUEUE for ends, queue in self.transit.items() if ends[0] == place)

    def sources(self) -> list[Place]:
        return [place for place in self.places if place[0] == SOURCE]

    def step(self, kind: str, what: Any) -> None:
        if kind == "deliver":
            sender, receiver = what
            number = self.inputs[receiver].index(sender)
            self.gates[receiver].put(number, self.transit[what].popleft(), may_overflow=True)
        elif kind == "read":
            self._read(what)
        else:
            for channel, element in self.gates[what].poll(0, 1):
                loop = self.loops[what]
                outputs = cast("OutputSet", _Outputs(self, what))
                if loop is None or not loop.takes(channel, element, outputs, lambda event: self.apply(what, event)):
                    self.apply(what, barrier_event(channel, element))

    def trigger(self, checkpoint_id: int) -> None:
        self.snapshots[checkpoint_id] = Snapshot()
        for place in self.sources():
            self.freeze(place, Barrier(checkpoint_id, unaligned=self.mode is CheckpointMode.UNALIGNED), None)

    def is_complete(self, checkpoint_id: int) -> bool:
        return self.snapshots[checkpoint_id].is_complete(self.places)

    def _read(self, place: Place) -> None:
        index, sequence = place[1], self.offsets[place[1]]
        if sequence == self.rows:
            self.end(place)
            return
        self.offsets[index] += 1
        self.process(place, (index, sequence, self._hops(index, sequence)))

    def _hops(self, index: int, sequence: int) -> int:
        return self.hops - (index * 3 + sequence * 7) % (HOPS + 1)

    def end(self, place: Place) -> None:
        self.ended.add(place)
        self.send(place, {edge.target for edge in self.graph.edges}, EndOfInput())

    def send(self, place: Place, vertices: Collection[str], element: Element) -> None:
        for ends, queue in self.transit.items():
            if ends[0] == place and ends[1][0] in vertices:
                queue.append(element)

    def process(self, place: Place, record: Record) -> None:
        self.seen[place].append((place[0], record))
        following = _onwards(self.graph, place[0], record)
        if following is not None:
            edge, moved = following
            is_lane = spread_of(edge) is Partitioning.FORWARD
            index = place[1] if is_lane else sum(moved) % self.widths[edge.target]
            self.transit[place, (edge.target, index)].append(table_of(moved))

    def in_flight(self, snapshot: Snapshot[Place, Visit]) -> dict[Ends, list[Record]]:
        return snapshot.in_flight(self.inputs)

    def restored(self, snapshot: Snapshot[Place, Visit]) -> Flow:
        """Another one that goes on from the snapshot."""
        flow = Flow(self.graph, self.rows, self.mode, self.hops)
        flow.offsets = [snapshot.offsets[index] for index in range(self.widths[SOURCE])]
        flow.seen = {place: list(visits) for place, visits in snapshot.seen.items()}
        for (sender, receiver), records in self.in_flight(snapshot).items():
            flow.gates[receiver].restore(flow.inputs[receiver].index(sender), [table_of(record) for record in records])
        return flow

    def visits(self) -> Counter[Visit]:
        return Counter(visit for visits in self.seen.values() for visit in visits)

    def expected(self, offsets: Collection[tuple[int, int]]) -> Counter[Visit]:
        """By the model: all visits that the records below the offsets lead to."""
        rows = ((item, row, self._hops(item, row)) for item, offset in offsets for row in range(offset))
        return Counter(visit for record in rows for visit in _visits(self.graph, SOURCE, record))


@dataclass
class _Outputs:
    """What a LoopPart sends its probes with."""

    flow: Flow
    place: Place

    def send_within(self, vertices: Collection[str], element: Element) -> None:
        self.flow.send(self.place, vertices, element)


def _run(flow: Flow, data: st.DataObject, checkpoints: int) -> None:
    """Random steps to the end, with checkpoints at any time, also when the input has ended long ago."""
    number = 0
    while True:
        steps = flow.steps()
        is_free = number < checkpoints and (not number or flow.is_complete(number))
        if is_free and (not steps or data.draw(st.integers(0, 9)) == 0):
            number += 1
            flow.trigger(number)
        elif steps:
            flow.step(*data.draw(st.sampled_from(steps)))
        else:
            break
    assert flow.ended == set(flow.places), "the loop has not ended, or blocks itself"
    assert number == checkpoints
    assert all(flow.is_complete(snapshot) for snapshot in flow.snapshots)


def _check(flow: Flow) -> None:
    """The whole result, and every snapshot: its states, and what its logs lead to."""
    assert flow.visits() == flow.expected([(index, flow.rows) for index in range(flow.widths[SOURCE])])
    for snapshot in flow.snapshots.values():
        found = Counter(visit for visits in snapshot.seen.values() for visit in visits)
        for (_, (name, _)), records in flow.in_flight(snapshot).items():
            found.update(visit for record in records for visit in _visits(flow.graph, name, record))
        assert found == flow.expected(snapshot.offsets.items())


MODES = pytest.mark.parametrize("mode", [CheckpointMode.EXACTLY_ONCE, CheckpointMode.UNALIGNED])


@MODES
@settings(max_examples=60, deadline=None)
@given(_graphs(), st.integers(1, 4), st.data())
def test_a_snapshot_with_its_logs_is_a_consistent_cut_and_the_loop_ends(
    mode: CheckpointMode, graph: JobGraph, rows: int, data: st.DataObject
) -> None:
    flow = Flow(graph, rows, mode)
    _run(flow, data, checkpoints=3)
    _check(flow)


@MODES
@settings(max_examples=60, deadline=None)
@given(_graphs(), st.integers(1, 3), st.data())
def test_a_run_from_a_snapshot_has_the_same_result(
    mode: CheckpointMode, graph: JobGraph, rows: int, data: st.DataObject
) -> None:
    before = Flow(graph, rows, mode)
    _run(before, data, checkpoints=2)
    flow = before.restored(before.snapshots[data.draw(st.integers(1, 2))])
    _run(flow, data, checkpoints=1)
    _check(flow)


@settings(max_examples=80, deadline=None)
@given(_graphs(), st.data())
def test_a_loop_ends_only_when_no_record_circulates(graph: JobGraph, data: st.DataObject) -> None:
    """Few records that go round for long after the input has ended: many rounds are quiet at some heads only."""
    flow = Flow(graph, 1, CheckpointMode.EXACTLY_ONCE, hops=4 * HOPS)
    _run(flow, data, checkpoints=0)
    _check(flow)


@settings(max_examples=60, deadline=None)
@given(_graphs(), st.integers(1, 4), st.data())
def test_an_aligned_snapshot_holds_records_of_back_edges_and_of_no_other_channel(
    graph: JobGraph, rows: int, data: st.DataObject
) -> None:
    flow = Flow(graph, rows, CheckpointMode.EXACTLY_ONCE)
    _run(flow, data, checkpoints=2)
    back = {(edge.source, edge.target) for edge in graph.edges if is_feedback(edge)}
    for snapshot in flow.snapshots.values():
        assert {(sender[0], receiver[0]) for sender, receiver in flow.in_flight(snapshot)} <= back
