"""When nothing circles in a loop any more: rounds of probes between its subtasks. Pure.

Channels keep their order, so a probe comes behind every record that was sent before it. With the end of input on every
channel from outside the loop, rounds begin:

    a subtask sends probe r     when every forward channel from inside the loop has brought probe r,
                                and, at a head, every back edge has brought probe r - 1

A round of a head is *quiet* when no record came over its back edges between its probe r - 1 and its probe r; the first
one never is. What a record of before probe r - 1 has led to comes back before probe r - 1 does, hence in round r at the
latest; in a round that is quiet at every head nothing new is sent on. So after one round that was quiet everywhere the
loop is empty, for good. A head counts for how many rounds in a row all that it has heard of were quiet: with each round
it hears from heads one more back edge away, itself included. No head is more than twice the number of head vertices
away (each once before a change of lane, each once behind it; subtasks that no way joins have nothing to do with each
other). With one quiet round more than that it knows of a round in which every head was quiet.

A channel that has ended brings every probe. Rounds are no part of snapshots: a restored attempt begins anew, and what
it replays comes over the back edges like any record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from lockgate_proto.messages import LoopProbe

from taskmanager.task.errors import IllegalTransition

_FOREVER = 1 << 30


@dataclass(frozen=True, slots=True)
class SendProbe:
    """Send it to every subtask of the loop that this one sends records to."""

    probe: LoopProbe


@dataclass(frozen=True, slots=True)
class LoopOver:
    """Nothing comes over the back edges any more: to be treated as the end of their input. Heads only, once."""


LoopEffect = SendProbe | LoopOver


class LoopRounds:
    """One subtask of a loop.

    outside, inside, feedback: its input channels from outside the loop, forward ones from inside, and back edges. Heads
    have back edges. head_count: vertices of the loop that have some.
    """

    def __init__(
        self, outside: Collection[int], inside: Collection[int], feedback: Collection[int], head_count: int
    ) -> None:
        self._outside = set(outside)
        self._inside = {channel: _Probes() for channel in inside}
        self._feedback = {channel: _Probes() for channel in feedback}
        self._counts = bool(self._feedback)  # a head, whose loop may still hold something
        self._enough = 2 * head_count + 1
        self._round = 0  # of the last probe sent
        self._quiet = 0  # rounds in a row
        self._came_back = False

    def records(self, channel: int) -> None:
        """Records have come. Raises IllegalTransition for some over a back edge when the loop was found to be empty."""
        if channel in self._feedback:
            if not self._counts:
                raise IllegalTransition(f"records came over back edge {channel} when nothing circled any more")
            self._came_back = True

    def probed(self, channel: int, probe: LoopProbe) -> list[LoopEffect]:
        """A probe has come on a channel from inside the loop."""
        known = self._inside.get(channel) or self._feedback.get(channel)
        if known is None:
            raise IllegalTransition(f"probe {probe.round} came on channel {channel}, which is not of the loop")
        known.add(channel, probe)
        return self._proceed()

    def ended(self, channel: int) -> list[LoopEffect]:
        """No record follows on a channel."""
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
                found.append(LoopOver())
        return found

    def _is_next_due(self) -> bool:
        if self._outside or not (self._counts or any(not one.has_ended for one in self._inside.values())):
            return False  # where all of them have ended, so does this subtask, which says more than a probe
        is_back = not self._counts or not self._round or all(one.is_there for one in self._feedback.values())
        return is_back and all(one.is_there for one in self._inside.values())

    def _next(self) -> LoopProbe:
        quiet = min((one.take() for one in self._inside.values()), default=_FOREVER)
        if self._counts:
            if self._round:
                heard = [one.take() for one in self._feedback.values()]
                self._quiet = 0 if self._came_back else 1 + min(self._quiet, *heard)
            quiet = min(quiet, self._quiet)
        self._round, self._came_back = self._round + 1, False
        return LoopProbe(self._round, quiet)


class _Probes:
    """What one channel has brought and was not answered yet. A sender may be ahead by a round."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()
        self._last = 0
        self.has_ended = False

    @property
    def is_there(self) -> bool:
        """Whether the next probe has come."""
        return bool(self._waiting) or self.has_ended

    def add(self, channel: int, probe: LoopProbe) -> None:
        """The next one."""
        if probe.round != self._last + 1:
            raise IllegalTransition(f"probe {probe.round} came on channel {channel} behind probe {self._last}")
        self._last = probe.round
        self._waiting.append(probe.quiet_rounds)

    def take(self) -> int:
        """How many quiet rounds the next one tells of."""
        return self._waiting.popleft() if self._waiting else _FOREVER
