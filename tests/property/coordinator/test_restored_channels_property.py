"""Records in flight at another parallelism: each comes to one subtask, and those of a key stay in order.

The coordinator decides who gets which channel, the task manager which rows of it. Both are asked here.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.job.in_flight import in_flight_misfits
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_proto.messages import (
    ChannelSide,
    ChannelState,
    CheckpointMetadata,
    JobGraph,
    Partitioning,
    StateHandle,
    SubtaskId,
    SubtaskState,
    Watermark,
)
from lockgate_taskmanager.exchange.elements import ChannelId, Element
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.moved_shares import shares_of
from lockgate_taskmanager.state.layout import HASH
from lockgate_taskmanager.state.routing import KeyRouting

from tests.unit.coordinator.jobs import word_count

GROUPS = 7
WIDTHS = st.tuples(st.integers(1, 5), st.integers(1, 5))
ROWS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(-20, 20), st.booleans(), st.booleans()), min_size=1, max_size=40
)
"""(sender, hash of the key, whether the receiver has it already, whether a watermark follows)."""


@dataclass(frozen=True)
class Flight:
    """A snapshot, the elements of each channel state by the name in its handle, and the rows of each in order."""

    metadata: CheckpointMetadata
    elements: dict[str, list[Element]]
    rows: list[tuple[int, int]]  # (hash, number); numbers rise within a channel


def _graph(reading: int, counting: int, partitioning: Partitioning) -> JobGraph:
    made = word_count()
    widths = {"read": reading, "count": counting}
    vertices = tuple(replace(vertex, parallelism=widths[vertex.id], max_parallelism=GROUPS) for vertex in made.vertices)
    if partitioning is Partitioning.REBALANCE:
        vertices = (vertices[0], replace(vertices[1], operators=vertices[1].operators[1:]))
    edge = replace(made.edges[0], partitioning=partitioning)
    return normalize(replace(made, vertices=vertices, edges=(edge,)))


def _flight(graph: JobGraph, rows: list[tuple[int, int, bool, bool]]) -> Flight:
    """What the receiver of a channel has comes before what its sender has."""
    reading, counting = (vertex.parallelism for vertex in graph.vertices)
    routing = KeyRouting(counting, GROUPS)
    elements: defaultdict[str, list[Element]] = defaultdict(list)
    states: dict[tuple[str, int], list[ChannelState]] = defaultdict(list)
    found = []
    for number, (sender, hash_, has_come, has_watermark) in enumerate(sorted(rows, key=lambda row: not row[2])):
        table = pa.table({HASH: [hash_], "number": [number]})
        source, target = sender % reading, int(routing.owners(table)[0])
        name = f"{'in' if has_come else 'out'} {source} {target}"
        if name not in elements:
            here, there = (("count", target), ("read", source)) if has_come else (("read", source), ("count", target))
            side = ChannelSide.INPUT_CHANNEL if has_come else ChannelSide.OUTPUT_CHANNEL
            states[here].append(ChannelState(side, *there, StateHandle(path=name)))
        elements[name] += [table, Watermark(number)] if has_watermark else [table]
        found.append((hash_, number))
    subtasks = [
        SubtaskState(vertex.id, index, channels=tuple(states[vertex.id, index]))
        for vertex in graph.vertices
        for index in range(vertex.parallelism)
    ]
    return Flight(CheckpointMetadata(1, vertices=vertex_shapes(graph), subtasks=tuple(subtasks)), elements, found)


def _processed(graph: JobGraph, flight: Flight) -> dict[int, list[tuple[int, int]]]:
    """What each counting subtask takes from its gate, as its restore puts it there."""
    reading, counting = (vertex.parallelism for vertex in graph.vertices)
    widths = {"read": reading, "count": counting}
    restored = redistribute(graph, flight.metadata)
    assert not any(restored["read", index].channels for index in range(reading)), "a new sender has none of it"
    found: dict[int, list[tuple[int, int]]] = {}
    for index in range(counting):
        gate = InputGate([ChannelId("read", sender) for sender in range(reading)])
        shares = shares_of(graph, SubtaskId(None, "count", index), widths)
        gate.put(0, pa.table({HASH: [0], "number": [-1]}))  # something new
        for state in restored["count", index].channels:
            assert state.moved
            assert state.handle is not None
            channel = gate.index_of(ChannelId(state.vertex_id, state.subtask))
            assert channel is not None
            gate.put_first([(channel, table) for table in shares.of("read", flight.elements[state.handle.path])])
        taken = [element for _, element in itertools.chain(*iter(lambda gate=gate: gate.poll(0), []))]
        assert all(isinstance(element, pa.Table) for element in taken), "watermarks are announced again"
        rows = [(row[HASH], row["number"]) for table in taken for row in table.to_pylist()]
        assert [number for _, number in rows].index(-1) == len(rows) - 1, "what is new comes last"
        found[index] = rows[:-1]
    return found


@given(WIDTHS, WIDTHS, ROWS)
def test_a_row_by_key_comes_to_its_owner_only_and_behind_older_ones_of_its_channel(
    before: tuple[int, int], after: tuple[int, int], rows: list[tuple[int, int, bool, bool]]
) -> None:
    if before == after:
        after = (after[0], after[1] % 5 + 1)
    flight = _flight(_graph(*before, Partitioning.HASH), rows)
    graph = _graph(*after, Partitioning.HASH)
    assert in_flight_misfits(graph, flight.metadata) == ()
    found = _processed(graph, flight)
    assert sorted(row for share in found.values() for row in share) == sorted(flight.rows)
    where = {
        element.column("number")[0].as_py(): name.split(" ", 1)[1]
        for name, elements in flight.elements.items()
        for element in elements
        if isinstance(element, pa.Table)
    }
    for index, share in found.items():
        assert all(hash_ % GROUPS * after[1] // GROUPS == index for hash_, _ in share)
        lanes: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        for hash_, number in share:
            lanes[hash_, where[number]].append(number)
        assert all(numbers == sorted(numbers) for numbers in lanes.values())


@given(WIDTHS, WIDTHS, ROWS)
def test_a_row_in_turn_comes_to_one_subtask(
    before: tuple[int, int], after: tuple[int, int], rows: list[tuple[int, int, bool, bool]]
) -> None:
    if before == after:
        after = (after[0], after[1] % 5 + 1)
    flight = _flight(_graph(*before, Partitioning.REBALANCE), rows)
    graph = _graph(*after, Partitioning.REBALANCE)
    assert in_flight_misfits(graph, flight.metadata) == ()
    found = _processed(graph, flight)
    assert sorted(row for share in found.values() for row in share) == sorted(flight.rows)


@given(WIDTHS, ROWS)
def test_channels_that_are_still_there_get_their_own_rows_back(
    widths: tuple[int, int], rows: list[tuple[int, int, bool, bool]]
) -> None:
    graph = _graph(*widths, Partitioning.HASH)
    flight = _flight(graph, rows)
    restored = redistribute(graph, flight.metadata)
    for then in flight.metadata.subtasks:
        assert set(restored[then.vertex_id, then.subtask].channels) == set(then.channels)
