"""Which checkpoint answers the queries of a job that name none. Pure.

    nothing --asked twice--> opening 7 --opened--> 7 answers --8 completed--> 7 answers, opening 8 --> 8 answers ...

The first query of a checkpoint has to wait until its files are open. So while a job is queried, the reader opens each
new checkpoint in the background, and until it has, the one before it answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from lockgate_proto.messages import CompletedCheckpoint

BEHIND_MS = 5_000
"""The longest for which a checkpoint answers after a newer one was completed."""
LATELY_MS = 10_000
"""Checkpoints are opened in the background while the last two queries are not older than this."""
_MOST_OPERATORS = 100


@dataclass(slots=True)
class _Candidate:
    """A checkpoint that is open, or being opened. newer_ms: when a newer one was completed; None: there is none."""

    checkpoint: CompletedCheckpoint
    operators: frozenset[str]
    newer_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """Asks the reader to open the state of some operators."""

    checkpoint: CompletedCheckpoint
    operators: tuple[str, ...]


@dataclass(slots=True)
class ServedCheckpoints:
    """Those of one run of a job, read by one task manager. Times are monotonic."""

    _newest: CompletedCheckpoint | None = None
    _open: _Candidate | None = None
    _opening: _Candidate | None = None
    _floor: int = 0  # a later answer is of no older checkpoint
    _lost: int = 0  # a file of this one was missing
    _refused: int = 0  # could not be opened
    _operators: set[str] = field(default_factory=set)
    _asked_ms: deque[int] = field(default_factory=lambda: deque(maxlen=2))

    def completed(self, checkpoint: CompletedCheckpoint, now_ms: int) -> None:
        """There is a completed checkpoint. Older ones than are known change nothing."""
        if self._newest is not None and checkpoint.checkpoint_id <= self._newest.checkpoint_id:
            return
        self._newest = checkpoint
        for candidate in (self._open, self._opening):
            if candidate is not None and candidate.newer_ms is None:
                candidate.newer_ms = now_ms

    def choose(self, newest: CompletedCheckpoint, operators: Iterable[str], now_ms: int) -> CompletedCheckpoint:
        """The checkpoint that answers a query of these operators: never an older one than the query before.

        newest: as the query has read it; a newer one may be known by now.
        """
        self.completed(newest, now_ms)
        newest = self._newest or newest
        wanted = set(operators)
        is_over = self.is_over(now_ms) or len(self._operators | wanted) > _MOST_OPERATORS
        self._operators = wanted if is_over else self._operators | wanted
        self._asked_ms.append(now_ms)
        fits = (each for each in (self._open, self._opening) if each is not None and self._may_answer(each, now_ms))
        chosen = next((each.checkpoint for each in fits if wanted <= each.operators), newest)
        self._floor = max(self._floor, chosen.checkpoint_id)
        return chosen

    def next_opening(self, now_ms: int) -> Opening | None:
        """What the reader should open now, one at a time; `opened` or `failed` must follow."""
        newest = self._newest
        if self._opening is not None or newest is None or newest.checkpoint_id == self._refused:
            return None
        if not self.is_queried(now_ms):
            return None
        if self._open is not None and self._open.checkpoint == newest and self._operators <= self._open.operators:
            return None
        self._opening = _Candidate(newest, frozenset(self._operators))
        return Opening(newest, tuple(sorted(self._operators)))

    def opened(self) -> None:
        """The reader has opened what it was asked to."""
        self._open, self._opening = self._opening, None

    def failed(self) -> None:
        """It could not. That checkpoint is not tried again."""
        if self._opening is not None:
            self._refused = self._opening.checkpoint.checkpoint_id
        self._opening = None

    def lost(self, checkpoint: CompletedCheckpoint) -> None:
        """A file of it is missing, and it is not open any more."""
        self._lost = max(self._lost, checkpoint.checkpoint_id)

    def is_queried(self, now_ms: int) -> bool:
        """Whether there were two queries lately. One by hand is not worth it."""
        return len(self._asked_ms) == 2 and now_ms - self._asked_ms[0] <= LATELY_MS

    def is_over(self, now_ms: int) -> bool:
        """Whether there was no query lately: then the newest checkpoint answers, and nothing here matters any more."""
        return not self._asked_ms or now_ms - self._asked_ms[-1] > LATELY_MS

    def _may_answer(self, candidate: _Candidate, now_ms: int) -> bool:
        is_fresh = candidate.newer_ms is None or now_ms - candidate.newer_ms <= BEHIND_MS
        number = candidate.checkpoint.checkpoint_id
        return is_fresh and number >= self._floor and number > self._lost
