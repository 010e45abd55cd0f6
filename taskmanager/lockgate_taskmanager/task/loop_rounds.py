"""Termination detection for loops: rounds of probes between the subtasks of a loop. Pure.

Channels keep their order, so a probe arrives after every record that was sent before it. With the end of input on every
channel from outside the loop, rounds begin:

    a subtask sends probe r     when every forward channel from inside the loop has delivered probe r,
                                and, at a head, every back edge has delivered probe r - 1

A round of a head is *quiet* when no record arrived over its back edges between its probe r - 1 and its probe r; the
first round never is. What a record sent before probe r - 1 has led to comes back before probe r - 1 does, hence in
round r at the latest; in a round that is quiet at every head nothing new is sent on. So after one round that is quiet
at every head the loop stays empty. A head counts the consecutive rounds in which every head it knows of was
quiet: each round brings information from heads one more back edge away, itself included. No head is further away than
twice the number of head vertices (each at most once before a repartitioning and once after it; subtasks without a path
between them do not affect each other). After one more quiet round than that, there has been a round in which every head
was quiet.

A channel that has ended counts as having delivered every probe. Rounds are not part of snapshots: a restored attempt
starts over, and replayed records arrive over the back edges like any others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from lockgate_common.story import IllegalTransition
from lockgate_proto.messages import LoopProbe

_FOREVER = 1 << 30


@dataclass(frozen=True, slots=True)
class SendProbe:
    """Send it to every subtask of the loop that receives records from this one."""

    probe: LoopProbe


@dataclass(frozen=True, slots=True)
class LoopTerminated:
    """No more records will arrive over the back edges: treat it as the end of their input. Heads only, once."""


LoopEffect = SendProbe | LoopTerminated


class LoopRounds:
    """One subtask of a loop.

    outside, inside, feedback: its input channels from outside the loop, forward ones from inside, and back edges. Heads
    have back edges. head_count: vertices of the loop with back edges.
    """

    def __init__(
        self, outside: Collection[int], inside: Collection[int], feedback: Collection[int], head_count: int
    ) -> None:
        self._outside = set(outside)
        self._inside = {channel: _Probes() for channel in inside}
        self._feedback = {channel: _Probes() for channel in feedback}
        self._counts = bool(self._feedback)  # a head whose loop may still hold records
        self._enough = 2 * head_count + 1
        self._round = 0  # of the last probe sent
        self._quiet = 0  # consecutive rounds
        self._came_back = False

    def records(self, channel: int) -> None:
        """Records have arrived.

        Raises IllegalTransition for records over a back edge after the loop was found to be empty.
        """
        if channel in self._feedback:
            if not self._counts:
                raise IllegalTransition(f"records came over back edge {channel} after the loop was found to be empty")
            self._came_back = True

    def probed(self, channel: int, probe: LoopProbe) -> list[LoopEffect]:
        """A probe has arrived on a channel from inside the loop."""
        known = self._inside.get(channel) or self._feedback.get(channel)
        if known is None:
            raise IllegalTransition(f"probe {probe.round} arrived on channel {channel}, which is not part of the loop")
        known.add(channel, probe)
        return self._proceed()

    def ended(self, channel: int) -> list[LoopEffect]:
        """No more records follow on a channel."""
        self._outside.discard(channel)
        known = self._inside.get(channel) or self._feedback.get(channel)
        if known is not None:
            known.has_ended = True
        return self._proceed()

    def _proceed(self) -> list[LoopEffect]:
        found: list[LoopEffect] = []
        while self._is_next_due():
            found.append(SendProbe(self._next()))
            if self._counts and self._quiet >= self._enough:
                self._counts = False
                found.append(LoopTerminated())
        return found

    def _is_next_due(self) -> bool:
        if self._outside or not (self._counts or any(not inner.has_ended for inner in self._inside.values())):
            return False  # when all of them have ended this subtask ends too, and its end of input replaces the probe
        is_back = not self._counts or not self._round or all(gate.is_there for gate in self._feedback.values())
        return is_back and all(inner.is_there for inner in self._inside.values())

    def _next(self) -> LoopProbe:
        quiet = min((inner.take() for inner in self._inside.values()), default=_FOREVER)
        if self._counts:
            if self._round:
                quiet_counts = [gate.take() for gate in self._feedback.values()]
                self._quiet = 0 if self._came_back else 1 + min(self._quiet, *quiet_counts)
            quiet = min(quiet, self._quiet)
        self._round, self._came_back = self._round + 1, False
        return LoopProbe(self._round, quiet)


class _Probes:
    """The probes of one channel that are not answered yet. A sender may be ahead by one round."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._last = 0
        self.has_ended = False

    @property
    def is_there(self) -> bool:
        """Whether the next probe has arrived."""
        return bool(self._waiting) or self.has_ended

    def add(self, channel: int, probe: LoopProbe) -> None:
        """Adds the next probe."""
        if probe.round != self._last + 1:
            raise IllegalTransition(f"probe {probe.round} arrived on channel {channel} after probe {self._last}")
        self._last = probe.round
        self._waiting.append(probe.quiet_rounds)

    def take(self) -> int:
        """Takes the next probe; returns how many quiet rounds it reports."""
        return self._waiting.popleft() if self._waiting else _FOREVER
