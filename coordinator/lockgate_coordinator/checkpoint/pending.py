"""A checkpoint in progress.

    RESERVING --trigger--> COLLECTING --last ack--> COLLECTED --> PERSISTING --> COMPLETED
        \\____________________\\________________________\\______________\\______> ABORTED

RESERVING: its id is being written to the counter. COLLECTING: barriers flow, acks come in. COLLECTED: every ack is in;
stays here only while ZooKeeper is suspended. PERSISTING: the outcome is not known; nothing may be restored meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum

from lockgate_common.amounts import listed
from lockgate_common.story import Story
from lockgate_proto.messages import (
    AcknowledgeCheckpoint,
    AttemptId,
    CheckpointKind,
    SubtaskId,
    SubtaskState,
)

from lockgate_coordinator.checkpoint.details import SnapshotDetails
from lockgate_coordinator.checkpoint.events import SubtaskKey


class PendingState(Enum):
    """The states in the drawing above."""

    RESERVING = "RESERVING"
    COLLECTING = "COLLECTING"
    COLLECTED = "COLLECTED"
    PERSISTING = "PERSISTING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


class AckResult(Enum):
    """The result of an acknowledgement; the value is a text for the story."""

    SUCCESS = "taken"
    DUPLICATE = "its subtask has acknowledged already"
    UNKNOWN = "it is not from a subtask of this checkpoint"
    DISCARDED = "the checkpoint is not collecting"


ALLOWED: Mapping[PendingState, frozenset[PendingState]] = {
    PendingState.RESERVING: frozenset({PendingState.COLLECTING, PendingState.ABORTED}),
    PendingState.COLLECTING: frozenset({PendingState.COLLECTED, PendingState.ABORTED}),
    PendingState.COLLECTED: frozenset({PendingState.PERSISTING, PendingState.ABORTED}),
    PendingState.PERSISTING: frozenset({PendingState.COMPLETED, PendingState.ABORTED}),
    PendingState.COMPLETED: frozenset(),
    PendingState.ABORTED: frozenset(),
}


class PendingCheckpoint:
    """Collects one acknowledgement from each subtask of one attempt: a set of subtasks, never a count."""

    def __init__(
        self,
        checkpoint_id: int,
        attempt: AttemptId,
        expected: frozenset[SubtaskKey],
        kind: CheckpointKind,
        *,
        terminal: bool = False,
        request_id: str | None = None,
        deadline_ms: int | None = None,
        completed_id: int = 0,
        places: Sequence[str] = (),
        numbers: Sequence[int] = (),
    ) -> None:
        """request_id: of the client that wants this savepoint. deadline_ms: of a savepoint, else set when triggered.

        completed_id: the newest completed checkpoint when this one began; it may build on that or on a later one; 0: it
        must be full. places: as in SnapshotDetails. numbers: as in AttemptRunning.
        """
        self.checkpoint_id = checkpoint_id
        self.attempt = attempt
        self.expected = expected
        self.kind = kind
        self.terminal = terminal
        self.request_id = request_id
        self.deadline_ms = deadline_ms
        self.completed_id = completed_id
        self.turn_at_ms: int | None = None  # when an aligned one that has taken too long turns unaligned
        self.must_align = False  # what it was requested for needs a snapshot without records in flight
        self.unaligned = False
        self.triggered_ms = 0
        self.collected_ms = 0
        self.state = PendingState.RESERVING
        self._acks: dict[SubtaskKey, AcknowledgeCheckpoint] = {}
        self.details = SnapshotDetails(checkpoint_id, places)
        self._numbers = tuple(numbers)
        self._strangers = 0  # acknowledgements from no subtask of it
        self._story = Story(f"checkpoint {checkpoint_id} of job {attempt.job_key}, attempt {attempt.attempt}")

    def move(self, state: PendingState, now_ms: int) -> None:
        """Moves to `state`. Raises IllegalTransition."""
        self.state = self._story.move(ALLOWED, self.state, state, now_ms)

    def triggered(self, now_ms: int, timeout_ms: int) -> None:
        """The id is durable and the trigger is sent to the sources."""
        self.move(PendingState.COLLECTING, now_ms)
        self.triggered_ms = now_ms
        if self.deadline_ms is None:
            self.deadline_ms = now_ms + timeout_ms

    def acknowledge(self, ack: AcknowledgeCheckpoint, now_ms: int) -> AckResult:
        """Takes one acknowledgement, or returns why it is ignored: late, duplicated, or from another attempt."""
        result, key = self._received(ack)
        if key is None or result is not AckResult.SUCCESS:
            self._strangers += result is AckResult.UNKNOWN
            self._story.note(f"an ack was ignored: {result.value}", now_ms)
            return result
        self._acks[key] = ack
        self.details.add(key, ack, now_ms - self.triggered_ms)
        self._story.note(f"ack of {key[0]}-{key[1]}, {len(self._acks)} of {len(self.expected)}", now_ms)
        if self._acks.keys() == self.expected:
            self.move(PendingState.COLLECTED, now_ms)
            self.collected_ms = now_ms
        return result

    def _received(self, ack: AcknowledgeCheckpoint) -> tuple[AckResult, SubtaskKey | None]:
        key = self.key_of(ack)
        if key is None:
            return AckResult.UNKNOWN, None
        if key in self._acks:
            return AckResult.DUPLICATE, key
        return (AckResult.SUCCESS if self.state is PendingState.COLLECTING else AckResult.DISCARDED), key

    def key_of(self, ack: AcknowledgeCheckpoint) -> SubtaskKey | None:
        """The subtask that acknowledges, None when it is not a subtask of this checkpoint."""
        return self.member(ack.subtask) if ack.checkpoint_id == self.checkpoint_id else None

    def member(self, subtask: SubtaskId | None) -> SubtaskKey | None:
        """The key of a subtask of this checkpoint, in the attempt in which it began; None for any other."""
        if subtask is None or (key := (subtask.vertex_id, subtask.subtask)) not in self.expected:
            return None
        began = self.attempt
        if self._numbers:
            began = replace(began, attempt=self._numbers[subtask.subtask])
        return key if subtask.attempt == began else None

    @property
    def absent(self) -> frozenset[SubtaskKey]:
        """The subtasks that have not acknowledged."""
        return self.expected - self._acks.keys()

    def missing(self) -> str:
        """The names of the first of them, for people, and the number of ignored acknowledgements."""
        names = [f"{vertex}-{index}" for vertex, index in sorted(self.absent)]
        strangers = f" (ignored acknowledgements of other subtasks: {self._strangers})" if self._strangers else ""
        return listed(names) + strangers

    def subtask_states(self) -> tuple[SubtaskState, ...]:
        """One state per expected subtask, in order of vertex id and index."""
        found = ((key, self._acks[key].state) for key in sorted(self.expected))
        return tuple(state or SubtaskState(vertex_id=key[0], subtask=key[1]) for key, state in found)

    @property
    def channel_state_bytes(self) -> int:
        """Size of the elements that unaligned barriers have overtaken."""
        handles = (channel.handle for state in self.subtask_states() for channel in state.channels)
        return sum(handle.size_bytes for handle in handles if handle is not None)

    @property
    def longest_sync_us(self) -> int:
        """Longest synchronous part of any subtask."""
        return max((ack.sync_us for ack in self._acks.values()), default=0)

    @property
    def longest_alignment_ms(self) -> int:
        """Longest alignment of any subtask."""
        return max((ack.alignment_ms for ack in self._acks.values()), default=0)
