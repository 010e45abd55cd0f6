"""A dataflow on the real barrier machines and input gates, one step of one subtask at a time.

The step is chosen outside; what is processed and where it goes, too. Two models build on it: one of layers without
loops (test_snapshot_model.py) and one of loops (test_loop_model.py).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa
from lockgate_proto.messages import Barrier
from lockgate_taskmanager.barrier import events as on
from lockgate_taskmanager.barrier.modes import Barriers
from lockgate_taskmanager.exchange.gate import InputGate, RunningRecording

Record = tuple[int, ...]
P = TypeVar("P", bound=tuple[Any, int])  # a subtask: its vertex or layer, and its number in there
S = TypeVar("S")  # what a subtask remembers of a record


@dataclass
class Snapshot(Generic[P, S]):
    """What each subtask put into one checkpoint."""

    offsets: dict[int, int] = field(default_factory=dict)
    seen: dict[P, list[S]] = field(default_factory=dict)
    recordings: dict[P, RunningRecording | None] = field(default_factory=dict)
    overtaken: dict[tuple[P, P], list[Record]] = field(default_factory=dict)

    def is_complete(self, places: list[P]) -> bool:
        """Whether every subtask has taken part, and its recording is over."""
        is_over = all(recording is None or recording.recording.is_complete for recording in self.recordings.values())
        return is_over and set(self.seen) == set(places)

    def in_flight(self, inputs: dict[P, list[P]]) -> dict[tuple[P, P], list[Record]]:
        """(from, to) to records, the receiver's part before the sender's."""
        found: dict[tuple[P, P], list[Record]] = {}
        for place, running in self.recordings.items():
            for number, tables in (running.recording.channels() if running is not None else {}).items():
                found[inputs[place][number], place] = [record_of(table) for table in tables]
        for ends, records in self.overtaken.items():
            found.setdefault(ends, []).extend(records)
        return found


class SteppedFlow(Generic[P, S]):
    """Subclasses set these: the gates and barriers of subtasks with inputs, what has been queued by a sender and not
    delivered yet, how far each source was read, what each subtask remembers, and the snapshots by checkpoint."""

    gates: dict[P, InputGate]
    barriers: dict[P, Barriers]
    transit: dict[tuple[P, P], deque[Any]]
    offsets: list[int]
    seen: dict[P, list[S]]
    snapshots: dict[int, Snapshot[P, S]]

    def sources(self) -> list[P]:
        """The subtasks without inputs."""
        raise NotImplementedError

    def process(self, place: P, record: Record) -> None:
        """A subtask takes a record."""
        raise NotImplementedError

    def end(self, place: P) -> None:
        """Nothing more comes to a subtask."""
        raise NotImplementedError

    def apply(self, place: P, event: on.Event) -> None:
        """As SubtaskTask does with what the barriers want."""
        gate = self.gates[place]
        for effect in self.barriers[place].handle(event, 0):
            match effect:
                case on.Deliver(_, element):
                    self.process(place, record_of(element))
                case on.Hold(channel):
                    gate.hold(channel)
                case on.Release(channels):
                    gate.release(channels)
                case on.Aligned(barrier):
                    self.freeze(place, barrier, None)
                case on.Overtaken(barrier, _, delivered):
                    self.freeze(place, barrier, delivered)
                case on.AllInputsEnded():
                    self.end(place)
                case on.AlignmentAborted(checkpoint_id):
                    raise AssertionError(f"{checkpoint_id} was lost at {place}")

    def freeze(self, place: P, barrier: Barrier, delivered: frozenset[int] | None) -> None:
        """Takes a subtask's snapshot, records its inputs but `delivered`, sends the barrier on."""
        snapshot = self.snapshots[barrier.checkpoint_id]
        assert place not in snapshot.seen, f"two snapshots of {barrier.checkpoint_id} at {place}"
        snapshot.seen[place] = list(self.seen[place])
        if place in self.sources():
            snapshot.offsets[place[1]] = self.offsets[place[1]]
        is_recording = delivered is not None and place in self.gates
        snapshot.recordings[place] = None
        if is_recording and delivered is not None:
            snapshot.recordings[place] = self.gates[place].record(barrier.checkpoint_id, delivered)
        for ends, queue in self.transit.items():
            if ends[0] == place:
                overtaken = _send(queue, barrier)
                if overtaken is not None:
                    snapshot.overtaken[ends] = overtaken


def _send(queue: deque[Any], barrier: Barrier) -> list[Record] | None:
    """Behind everything, or before all but other barriers. What it has overtaken; None for nothing ever."""
    if not barrier.unaligned:
        queue.append(barrier)
        return None
    last = max((at for at, element in enumerate(queue) if isinstance(element, Barrier)), default=-1)
    behind = [element for at, element in enumerate(queue) if at > last]
    queue.insert(last + 1, barrier)
    return [record_of(element) for element in behind if isinstance(element, pa.Table)]


def table_of(record: Record) -> pa.Table:
    """As it travels."""
    return pa.table({str(number): [value] for number, value in enumerate(record)})


def record_of(table: pa.Table) -> Any:
    """And back."""
    return tuple(column[0].as_py() for column in table.columns)
