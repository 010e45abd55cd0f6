"""Snapshots of random dataflows, in every mode and under every interleaving, against a naive model.

The dataflow runs on the real barrier machines and input gates, one step of one subtask at a time, in an order that
Hypothesis chooses. The model has no barriers and no queues: it sends the records below the snapshot's offsets through
the graph one by one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lockgate_proto.messages import Barrier, CheckpointMode, EndOfInput
from lockgate_taskmanager.barrier import events as on
from lockgate_taskmanager.barrier.modes import barriers_for
from lockgate_taskmanager.exchange.elements import ChannelId
from lockgate_taskmanager.exchange.gate import InputGate
from lockgate_taskmanager.runtime.subtask_input import barrier_event

from tests.property.taskmanager.barrier.flow import Snapshot, SteppedFlow, table_of

EXACTLY_ONCE, AT_LEAST_ONCE, UNALIGNED = (
    CheckpointMode.EXACTLY_ONCE,
    CheckpointMode.AT_LEAST_ONCE,
    CheckpointMode.UNALIGNED,
)
Record = tuple[int, int]  # (source, sequence)
Place = tuple[int, int]  # (layer, subtask)


@dataclass(frozen=True)
class Plan:
    """layers: how many subtasks each has, sources first. Every subtask sends to every one of the next layer."""

    layers: tuple[int, ...]
    rows: int

    def sources(self) -> list[Place]:
        return [(0, index) for index in range(self.layers[0])]

    def next(self, place: Place, record: Record) -> Place | None:
        """Where a subtask sends a record; None at the sinks."""
        layer = place[0] + 1
        return (
            None if layer == len(self.layers) else (layer, (record[0] + record[1] * (layer + 2)) % self.layers[layer])
        )

    def sink_of(self, place: Place, record: Record) -> tuple[Place, Record]:
        """The naive model: where a record that is about to be processed at `place` ends."""
        following = self.next(place, record)
        return (place, record) if following is None else self.sink_of(following, record)


class Flow(SteppedFlow[Place, Record]):
    """A whole dataflow. `transit` holds what a sender has queued and the network has not delivered yet."""

    def __init__(self, plan: Plan, mode: CheckpointMode) -> None:
        self.plan, self.mode = plan, mode
        self.places = [(layer, index) for layer, count in enumerate(plan.layers) for index in range(count)]
        self.inputs = {place: [(place[0] - 1, i) for i in range(plan.layers[place[0] - 1])] for place in self.places}
        self.inputs |= {place: [] for place in plan.sources()}
        self.gates = {place: self._gate(place) for place in self.places if place[0]}
        self.barriers = {place: barriers_for(mode, len(self.inputs[place])) for place in self.gates}
        self.transit: dict[tuple[Place, Place], deque[Any]] = {
            (input_, place): deque() for place in self.gates for input_ in self.inputs[place]
        }
        self.offsets = [0] * plan.layers[0]
        self.ended: set[Place] = set()
        self.seen: dict[Place, list[Record]] = {place: [] for place in self.places}
        self.snapshots: dict[int, Snapshot[Place, Record]] = {}

    def _gate(self, place: Place) -> InputGate:
        ids = [ChannelId(str(layer), index) for layer, index in self.inputs[place]]
        return InputGate(ids, on_barrier=lambda barrier: self.apply(place, on.BarrierOvertakes(barrier)))

    def steps(self) -> list[tuple[str, Any]]:
        """Everything that may happen next."""
        found: list[tuple[str, Any]] = [("deliver", ends) for ends, queue in self.transit.items() if queue]
        found += [("take", place) for place, gate in self.gates.items() if gate.has_ready()]
        found += [("read", index) for (_, index) in self.plan.sources() if (0, index) not in self.ended]
        return found

    def step(self, kind: str, what: Any) -> None:
        if kind == "deliver":
            sender, receiver = what
            self.gates[receiver].put(sender[1], self.transit[what].popleft(), may_overflow=True)
        elif kind == "read":
            self._read(what)
        else:
            for channel, element in self.gates[what].poll(0, 1):
                self.apply(what, barrier_event(channel, element))

    def trigger(self, checkpoint_id: int, unaligned: bool) -> None:
        """To the sources; an unaligned one reaches inner subtasks too, each when its step comes."""
        barrier = Barrier(checkpoint_id, unaligned=unaligned)
        self.snapshots.setdefault(checkpoint_id, Snapshot())
        for place in self.plan.sources():
            if place[1] not in self.snapshots[checkpoint_id].offsets:
                self.freeze(place, barrier, None)

    def overtake(self, place: Place, checkpoint_id: int) -> None:
        """The leader's word reaches an inner subtask."""
        self.apply(place, on.BarrierOvertakes(Barrier(checkpoint_id, unaligned=True)))

    def is_complete(self, checkpoint_id: int) -> bool:
        return self.snapshots[checkpoint_id].is_complete(self.places)

    def sources(self) -> list[Place]:
        return self.plan.sources()

    def end(self, place: Place) -> None:
        self.ended.add(place)
        for ends, queue in self.transit.items():
            if ends[0] == place:
                queue.append(EndOfInput())

    def _read(self, index: int) -> None:
        place, sequence = (0, index), self.offsets[index]
        if sequence == self.plan.rows:
            self.end(place)
            return
        self.offsets[index] += 1
        self.process(place, (index, sequence))

    def process(self, place: Place, record: Record) -> None:
        self.seen[place].append(record)
        following = self.plan.next(place, record)
        if following is not None:
            self.transit[place, following].append(table_of(record))

    def restore(self, snapshot: Snapshot[Place, Record]) -> None:
        """Goes on from the state and the offsets of a snapshot."""
        self.offsets = [snapshot.offsets[index] for index in range(self.plan.layers[0])]
        self.seen = {place: list(records) for place, records in snapshot.seen.items()}

    def restore_in_flight(self, snapshot: Snapshot[Place, Record], channels: dict[Place, list[Place]]) -> None:
        """Puts back what was in flight, at the receivers."""
        for (sender, receiver), records in snapshot.in_flight(channels).items():
            self.gates[receiver].restore(sender[1], [table_of(record) for record in records])

    def sinks(self) -> Counter[tuple[Place, Record]]:
        last = len(self.plan.layers) - 1
        return Counter((place, record) for place in self.places if place[0] == last for record in self.seen[place])


PLANS = st.builds(Plan, st.lists(st.integers(1, 3), min_size=2, max_size=4).map(tuple), st.integers(2, 8))


def _run(flow: Flow, data: st.DataObject, checkpoints: int, *, patience: bool = False) -> None:
    """Random steps to the end of the input, with checkpoints in between; patience: aligned first, then unaligned."""
    unaligned = flow.mode is UNALIGNED
    pending: list[Place] = []
    turning, number = 0, 0
    while True:
        steps = flow.steps()
        if number < checkpoints and (not number or flow.is_complete(number)) and data.draw(st.integers(0, 4)) == 0:
            number += 1
            flow.trigger(number, unaligned and not patience)
            turning = number if unaligned else 0
            pending = list(flow.gates) if unaligned else []
            continue
        if turning and pending and data.draw(st.booleans()):
            flow.overtake(pending.pop(data.draw(st.integers(0, len(pending) - 1))), turning)
            continue
        if not steps:
            if pending:
                flow.overtake(pending.pop(), turning)
            elif number < checkpoints:
                assert not number or flow.is_complete(number)
            else:
                break
            continue
        flow.step(*data.draw(st.sampled_from(steps)))
    assert flow.is_complete(number)


def _everything(plan: Plan, offsets: Iterable[tuple[int, int]]) -> Counter[tuple[Place, Record]]:
    return Counter(plan.sink_of((0, item), (item, row)) for item, offset in offsets for row in range(offset))


def _cut(flow: Flow, snapshot: Snapshot[Place, Record]) -> Counter[tuple[Place, Record]]:
    """Where the records of a snapshot end, when what was in flight is sent through the graph one by one."""
    plan = flow.plan
    last = len(plan.layers) - 1
    found = Counter(
        (place, record) for place, records in snapshot.seen.items() if place[0] == last for record in records
    )
    for (_, receiver), records in snapshot.in_flight(flow.inputs).items():
        found.update(plan.sink_of(receiver, record) for record in records)
    return found


@pytest.mark.parametrize(("mode", "patience"), [(EXACTLY_ONCE, False), (UNALIGNED, False), (UNALIGNED, True)])
@settings(max_examples=80, deadline=None)
@given(PLANS, st.data())
def test_no_record_of_after_the_barrier_is_in_the_state(
    mode: CheckpointMode, patience: bool, plan: Plan, data: st.DataObject
) -> None:
    flow = Flow(plan, mode)
    _run(flow, data, checkpoints=2, patience=patience)
    for snapshot in flow.snapshots.values():
        assert _cut(flow, snapshot) == _everything(plan, snapshot.offsets.items())
    assert flow.sinks() == _everything(plan, ((index, plan.rows) for index in range(plan.layers[0])))


@settings(max_examples=80, deadline=None)
@given(PLANS, st.data())
def test_at_least_once_a_snapshot_lacks_no_record_of_before_the_barrier(plan: Plan, data: st.DataObject) -> None:
    flow = Flow(plan, AT_LEAST_ONCE)
    _run(flow, data, checkpoints=2)
    for snapshot in flow.snapshots.values():
        assert not _everything(plan, snapshot.offsets.items()) - _cut(flow, snapshot)


@settings(max_examples=80, deadline=None)
@given(PLANS, st.data())
def test_a_barrier_never_overtakes_arecord_of(plan: Plan, data: st.DataObject) -> None:
    """Aligned: nothing is ever in flight at a snapshot, because the barrier comes behind all that was sent before."""
    flow = Flow(plan, EXACTLY_ONCE)
    _run(flow, data, checkpoints=2)
    for snapshot in flow.snapshots.values():
        assert not any(snapshot.in_flight(flow.inputs).values())
        for place, records in snapshot.seen.items():
            for upstream in flow.inputs[place]:
                sent = [record for record in snapshot.seen[upstream] if plan.next(upstream, record) == place]
                assert Counter(sent) <= Counter(records)


@pytest.mark.parametrize("patience", [False, True])
@settings(max_examples=80, deadline=None)
@given(PLANS, st.data())
def test_processed_buffers_before_new_input(patience: bool, plan: Plan, data: st.DataObject) -> None:
    """After a restore the records in flight come first, so that those of a source keep their order on every way."""
    before = Flow(plan, UNALIGNED)
    _run(before, data, checkpoints=1, patience=patience)
    flow = Flow(plan, UNALIGNED)
    flow.restore(before.snapshots[1])
    for _ in range(data.draw(st.integers(0, 6))):  # senders may be there before a receiver is
        if new := [step for step in flow.steps() if step[0] != "take"]:
            flow.step(*data.draw(st.sampled_from(new)))
    flow.restore_in_flight(before.snapshots[1], before.inputs)
    while steps := flow.steps():
        flow.step(*data.draw(st.sampled_from(steps)))
    assert flow.sinks() == _everything(plan, ((index, plan.rows) for index in range(plan.layers[0])))
    for place, records in flow.seen.items():
        if place[0] == 1:  # straight from the sources: one channel for each
            for source in range(plan.layers[0]):
                sequences = [sequence for item, sequence in records if item == source]
                assert sequences == sorted(sequences)
