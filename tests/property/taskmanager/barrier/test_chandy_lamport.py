"""K. M. Chandy, L. Lamport, "Distributed Snapshots: Determining Global States of Distributed Systems" (1985).

Their processes p, q and r exchange money over channels that keep the order. Markers are our unaligned barriers: what a
process does on one is decided by the BarrierHandler of the system, and channel states are kept by its ChannelRecording.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lockgate_proto.messages import Barrier
from lockgate_taskmanager.barrier.events import (
    BarrierArrived,
    BarrierOvertakes,
    Deliver,
    Effect,
    ElementArrived,
    Overtaken,
)
from lockgate_taskmanager.barrier.handler import BarrierHandler
from lockgate_taskmanager.barrier.recording import ChannelRecording

PROCESSES = "pqr"
CHANNELS = tuple(permutations(PROCESSES, 2))
MARKER = Barrier(1, unaligned=True)
START = 10

Channel = tuple[str, str]
Step = tuple[str, Channel, int]
"""What happens: "send" or "receive", where, and the amount that a send takes at most."""

steps = st.lists(
    st.tuples(st.sampled_from(["send", "receive"]), st.sampled_from(CHANNELS), st.integers(1, 4)), max_size=60
)


@dataclass
class Recorded:
    """The part of the snapshot that one process records, and how many of its own events came before."""

    money: int
    channels: ChannelRecording


@dataclass
class Ledger:
    """Three processes and their channels. `events`: sends and receives of money in the order in which they happened."""

    forwards_at_once: bool = True  # False breaks the sending rule: a message may go before the marker
    money: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PROCESSES, START))
    queues: dict[Channel, deque[int | Barrier]] = field(
        default_factory=lambda: {channel: deque() for channel in CHANNELS}
    )
    recorded: dict[str, Recorded] = field(default_factory=dict)
    events: list[tuple[Step, bool]] = field(default_factory=list)  # with: before its process recorded its state

    def __post_init__(self) -> None:
        self.inputs = {name: [channel for channel in CHANNELS if channel[1] == name] for name in PROCESSES}
        self.handlers = {name: BarrierHandler(len(self.inputs[name])) for name in PROCESSES}
        self.late_markers: list[Channel] = []

    def begin(self, name: str) -> None:
        """A process records its state of its own accord."""
        self._apply(name, self.handlers[name].handle(BarrierOvertakes(MARKER), 0))

    def step(self, kind: str, channel: Channel, amount: int) -> None:
        """Sends money if there is any, or receives whatever comes next on the channel."""
        if kind == "send":
            self._send(channel, min(amount, self.money[channel[0]]))
        elif self.queues[channel]:
            self._receive(channel)

    def settle(self) -> None:
        """Everything arrives."""
        self._send_late_markers()
        while any(self.queues.values()):
            for channel in CHANNELS:
                self.step("receive", channel, 0)
            self._send_late_markers()

    def _send(self, channel: Channel, amount: int) -> None:
        if amount:
            self.events.append((("send", channel, amount), channel[0] not in self.recorded))
            self.money[channel[0]] -= amount
            self.queues[channel].append(amount)

    def _receive(self, channel: Channel) -> None:
        name, element = channel[1], self.queues[channel].popleft()
        number = self.inputs[name].index(channel)
        if name in self.recorded:
            self.recorded[name].channels.arrived(number, element, 1)
        if isinstance(element, Barrier):
            self._apply(name, self.handlers[name].handle(BarrierArrived(number, element), 0))
        else:
            assert self.handlers[name].handle(ElementArrived(number, element), 0) == [Deliver(number, element)]
            self.events.append((("receive", channel, element), name not in self.recorded))
            self.money[name] += element

    def _apply(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Overtaken)
            channels = ChannelRecording(1, len(self.inputs[name]), effect.delivered)
            self.recorded[name] = Recorded(self.money[name], channels)
            self.late_markers += [channel for channel in CHANNELS if channel[0] == name]
        if self.forwards_at_once:
            self._send_late_markers()

    def _send_late_markers(self) -> None:
        for channel in self.late_markers:
            self.queues[channel].append(MARKER)
        self.late_markers.clear()

    def snapshot(self) -> tuple[dict[str, int], dict[Channel, list[int]]]:
        """The recorded states of processes and channels."""
        states = {name: self.recorded[name].money for name in PROCESSES}
        found = {name: self.recorded[name].channels.channels() for name in PROCESSES}
        return states, {
            channel: list(found[channel[1]].get(self.inputs[channel[1]].index(channel), ())) for channel in CHANNELS
        }


def replay(events: list[Step]) -> tuple[dict[str, int], dict[Channel, list[int]]]:
    """The state after these events; asserts that each of them can happen in this order."""
    money, queues = dict.fromkeys(PROCESSES, START), {channel: deque[int]() for channel in CHANNELS}
    for kind, channel, amount in events:
        if kind == "send":
            assert money[channel[0]] >= amount
            money[channel[0]] -= amount
            queues[channel].append(amount)
        else:
            assert queues[channel], "a message is received that was not sent"
            assert queues[channel].popleft() == amount
            money[channel[1]] += amount
    return money, {channel: list(queue) for channel, queue in queues.items()}


def lived(before: list[Step], after: list[Step], begins: str, *, forwards_at_once: bool = True) -> Ledger:
    """Some steps, a process that begins a snapshot, further steps, and all messages arrive."""
    ledger = Ledger(forwards_at_once)
    for step in before:
        ledger.step(*step)
    ledger.begin(begins)
    for step in after:
        ledger.step(*step)
    ledger.settle()
    return ledger


@given(steps, steps, st.sampled_from(PROCESSES))
def test_chandy_and_lamports_example_with_three_processes(before: list[Step], after: list[Step], begins: str) -> None:
    """No money is lost or made: what processes and channels have recorded adds up to what there is."""
    states, channels = lived(before, after, begins).snapshot()
    assert sum(states.values()) + sum(map(sum, channels.values())) == START * len(PROCESSES)


@given(steps, steps, st.sampled_from(PROCESSES))
def test_the_recorded_state_is_reachable_and_the_final_state_is_reachable_from_it(
    before: list[Step], after: list[Step], begins: str
) -> None:
    """Their Theorem 1: events of before the recording may be moved in front of all others, and the state between the
    two parts is the recorded one, though it may never have been there.
    """
    ledger = lived(before, after, begins)
    early = [step for step, is_before in ledger.events if is_before]
    late = [step for step, is_before in ledger.events if not is_before]
    assert replay(early) == ledger.snapshot()
    assert replay(early + late) == (ledger.money, {channel: [] for channel in CHANNELS})


@given(steps, steps, st.sampled_from(PROCESSES))
def test_the_algorithm_ends_every_process_and_every_channel_is_recorded_once(
    before: list[Step], after: list[Step], begins: str
) -> None:
    ledger = lived(before, after, begins)
    assert set(ledger.recorded) == set(PROCESSES)
    assert all(part.channels.is_complete for part in ledger.recorded.values())


@given(steps, st.sampled_from(PROCESSES), st.sampled_from(PROCESSES))
def test_several_processes_may_begin_the_same_snapshot(after: list[Step], one: str, other: str) -> None:
    ledger = Ledger()
    ledger.begin(one)
    ledger.begin(other)
    for step in after:
        ledger.step(*step)
    ledger.settle()
    states, channels = ledger.snapshot()
    assert sum(states.values()) + sum(map(sum, channels.values())) == START * len(PROCESSES)


def test_a_message_that_overtakes_the_marker_of_its_sender_breaks_the_cut() -> None:
    """The sending rule is needed: with it switched off the oracle above notices."""
    ledger = lived([], [("send", ("p", "q"), 3), ("receive", ("p", "q"), 0)], "p", forwards_at_once=False)
    states, channels = ledger.snapshot()
    assert sum(states.values()) + sum(map(sum, channels.values())) > START * len(PROCESSES)
    with pytest.raises(AssertionError, match="not sent"):
        replay([step for step, is_before in ledger.events if is_before])
