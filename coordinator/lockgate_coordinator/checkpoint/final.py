"""The checkpoint that ends an attempt: its purpose and its progress.

    NONE --the sources stop reading--> DRAINING --input ended--> WANTED --begun--> UNDER_WAY --complete--> TAKEN
     +---asked for, or input ended-------------------------------> WANTED
     +---the attempt started from it---------------------------------------------------------------------> TAKEN

When it is aborted or withdrawn it goes back to NONE, or to WANTED once the input has ended. No other checkpoint begins
while the sources stop reading, and from UNDER_WAY on.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from lockgate_common.story import Story
from lockgate_proto.messages import CheckpointKind


class Purpose(Enum):
    """Why an attempt ends."""

    RESCALE = auto()  # another one follows, at another parallelism
    STOP = auto()  # the job ends, although its sources could read on
    END_OF_INPUT = auto()  # the job ends: there is nothing left to read, or its sources were drained


class FinalState(Enum):
    """The states in the drawing above."""

    NONE = "NONE"
    DRAINING = "DRAINING"
    WANTED = "WANTED"
    UNDER_WAY = "UNDER_WAY"
    TAKEN = "TAKEN"


ALLOWED: Mapping[FinalState, frozenset[FinalState]] = {
    FinalState.NONE: frozenset(FinalState) - {FinalState.NONE},
    FinalState.DRAINING: frozenset({FinalState.WANTED}),
    FinalState.WANTED: frozenset({FinalState.NONE, FinalState.WANTED, FinalState.UNDER_WAY}),
    FinalState.UNDER_WAY: frozenset({FinalState.NONE, FinalState.WANTED, FinalState.TAKEN}),
    FinalState.TAKEN: frozenset({FinalState.NONE, FinalState.WANTED}),  # only of a rescale, which may prove impossible
}


class FinalCheckpoint:
    """For one attempt. Only the CheckpointCoordinator changes it."""

    def __init__(self, attempt: str = "no attempt") -> None:
        """attempt: named in the story of an error."""
        self.state = FinalState.NONE
        self.purpose: Purpose | None = None
        self.checkpoint_id = 0  # of the one that is under way or taken
        self.was_restored = False  # the attempt started from it, so every subtask that has started has shown it
        self._end_kind: CheckpointKind | None = None  # of the checkpoint at the end of the input, once that is there
        self._story = Story(f"the final checkpoint of {attempt}")

    @property
    def is_open(self) -> bool:
        """No final checkpoint is planned: checkpoints begin as they are due."""
        return self.state is FinalState.NONE

    @property
    def holds_back(self) -> bool:
        """No checkpoint may begin: the final one is complete or in progress, or the sources are draining before it."""
        return self.state in (FinalState.DRAINING, FinalState.UNDER_WAY, FinalState.TAKEN)

    @property
    def awaits_terminal(self) -> bool:
        """The next checkpoint is the one at the end of the input."""
        return self.state is FinalState.WANTED and self.purpose is Purpose.END_OF_INPUT

    @property
    def ends_job(self) -> bool:
        """It is complete: the job ends as soon as every subtask has committed it."""
        return self.state is FinalState.TAKEN and self.purpose is not Purpose.RESCALE

    @property
    def kind(self) -> CheckpointKind:
        """The kind under which it is retained."""
        if self.purpose is Purpose.END_OF_INPUT and self._end_kind is not None:
            return self._end_kind
        return CheckpointKind.CHECKPOINT if self.purpose is Purpose.RESCALE else CheckpointKind.SAVEPOINT

    def restored(self, checkpoint_id: int, now_ms: int) -> None:
        """The attempt starts from the savepoint of a stop, and only has to commit it."""
        self.purpose, self.checkpoint_id, self.was_restored = Purpose.STOP, checkpoint_id, True
        self._move(FinalState.TAKEN, now_ms)

    def draining(self, now_ms: int) -> bool:
        """The sources are draining; False when another end is closer."""
        if not self.is_open:
            return False
        self.purpose = Purpose.END_OF_INPUT
        self._move(FinalState.DRAINING, now_ms)
        return True

    def wanted(self, purpose: Purpose, now_ms: int) -> None:
        """A request for it is in the queue."""
        if self.is_open:
            self.purpose = purpose
            self._move(FinalState.WANTED, now_ms)

    def input_ended(self, kind: CheckpointKind, now_ms: int) -> None:
        """The input has ended. A final checkpoint in progress for another purpose comes first."""
        self._end_kind = kind
        if self.state not in (FinalState.UNDER_WAY, FinalState.TAKEN):
            self.purpose = Purpose.END_OF_INPUT
            self._move(FinalState.WANTED, now_ms)

    def begun(self, checkpoint_id: int, purpose: Purpose, now_ms: int) -> None:
        """Its id is known."""
        self.purpose, self.checkpoint_id = purpose, checkpoint_id
        self._move(FinalState.UNDER_WAY, now_ms)

    def completed(self, checkpoint_id: int, now_ms: int) -> None:
        """A checkpoint of the attempt is durable, possibly this one."""
        if self.state is FinalState.UNDER_WAY and checkpoint_id == self.checkpoint_id:
            self._move(FinalState.TAKEN, now_ms)

    def given_up(self, checkpoint_id: int, now_ms: int) -> None:
        """A checkpoint of the attempt was aborted, possibly this one."""
        if self.state is FinalState.UNDER_WAY and checkpoint_id == self.checkpoint_id:
            self._reopen(now_ms)

    def dropped(self, now_ms: int) -> None:
        """A request for it was withdrawn, or aborted before it began."""
        if self.purpose in (Purpose.STOP, Purpose.RESCALE) and not self.ends_job:
            self._reopen(now_ms)

    def _reopen(self, now_ms: int) -> None:
        has_input = self._end_kind is None
        self.purpose, self.checkpoint_id = None if has_input else Purpose.END_OF_INPUT, 0
        self._move(FinalState.NONE if has_input else FinalState.WANTED, now_ms)

    def _move(self, state: FinalState, now_ms: int) -> None:
        self.state = self._story.move(ALLOWED, self.state, state, now_ms)
