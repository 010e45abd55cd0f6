"""A source that starts again while some of those that read its records run on.

Each of them says how far it has had each split. Up to there a split is read in parts that end at these positions, so
that every batch is either new to a receiver or was there before, with all of its records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lockgate_common.backlog import Backlog
from lockgate_proto.messages import SplitState

from lockgate_taskmanager.spark.sources.reading import UNASSIGNED_WAIT_MS, Reading, Source
from lockgate_taskmanager.task.program import Exhausted, Idle, Unavailable

if TYPE_CHECKING:
    from lockgate_taskmanager.spark.leaf import LeafSpec

FOUND_AGAIN_MS = 30_000  # others run on meanwhile without checkpoints


class CatchingUp:
    """The Source of a subtask whose job restarts in part.

    inner: continues where the receivers are, and has all splits from there on. make: another source of the same splits,
    which does not wait where `inner` would read at a pace. received: by receiver, the position that it has reached in
    each split.
    """

    def __init__(self, inner: Source, make: Callable[[], Source], received: Sequence[Mapping[str, int]]) -> None:
        self.inner = inner
        self._make, self._received = make, received
        self._unknown = {name for positions in received for name in positions}
        self._waiting: deque[tuple[SplitState, list[int]]] = deque()  # splits, and where their next parts end
        self._part: Source | None = None
        self._is_complete = False
        self._assigned: set[str] = set()
        self._waits_since_ms: int | None = None

    @property
    def is_behind(self) -> bool:
        """Whether a receiver is ahead of it."""
        return bool(self._unknown or self._waiting)

    @property
    def complete(self) -> bool:
        return self.inner.complete

    def spec(self) -> LeafSpec | None:
        return self.inner.spec()

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        self._is_complete = self._is_complete or complete
        for split in splits:
            if split.split in self._assigned:
                continue
            self._assigned.add(split.split)
            self._unknown.discard(split.split)
            ends = {positions.get(split.split, -1) for positions in self._received}
            ahead = sorted(end for end in ends if end > split.offset)
            if ahead:
                self._waiting.append((split, ahead))
            self.inner.assign((replace(split, offset=ahead[-1]) if ahead else split,), False)
        self.inner.assign((), complete)

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:
        while self._waiting:
            split, ends = self._waiting[0]
            if self._part is None:
                self._part = self._make()
                self._part.spec()
                self._part.assign((replace(split, end=ends[0]),), True)
            found = self._part.read(budget_bytes, now_ms)
            if isinstance(found, Idle):
                return found
            if isinstance(found, Reading):
                has_ended = any(known.end == split.end for known in found.ranges)
                name = split.split
                return replace(found, split="" if has_ended else name, ended=(name,) if has_ended else ())
            self._go_on(split, ends)
        if self._unknown:
            return self._wait(now_ms)
        return self.inner.read(budget_bytes, now_ms)

    def splits(self) -> tuple[SplitState, ...]:
        behind = {split.split: split for split, _ in self._waiting}
        return tuple(behind.get(split.split, split) for split in self.inner.splits())

    def backlog(self, now_ms: int) -> Collection[str]:
        return (*self.inner.backlog(now_ms), *(split.split for split, _ in self._waiting))

    def unread(self, now_ms: int) -> Backlog:
        return self.inner.unread(now_ms)

    def close(self) -> None:
        if self._part is not None:
            self._part.close()
        self.inner.close()

    def _wait(self, now_ms: int) -> Idle:
        """For splits that were found after the checkpoint, until they are found again. Raises Unavailable."""
        self._waits_since_ms = now_ms if self._waits_since_ms is None else self._waits_since_ms
        if self._is_complete or now_ms - self._waits_since_ms > FOUND_AGAIN_MS:
            names = ", ".join(sorted(self._unknown)[:3])
            raise Unavailable(f"splits of which records have been passed on are not found again: {names}")
        return Idle(UNASSIGNED_WAIT_MS)

    def _go_on(self, split: SplitState, ends: list[int]) -> None:
        """A part of the first split is read: the next one follows, if there is one."""
        assert self._part is not None
        self._part.close()
        self._part = None
        self._waiting.popleft()
        reached = replace(split, offset=ends[0])
        if ends[1:]:
            self._waiting.appendleft((reached, ends[1:]))
