"""The source of a simulated vertex: it reads its splits, a few records at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from lockgate_common.backlog import Backlog
from lockgate_proto.messages import SplitRange, SplitState
from lockgate_taskmanager.spark.sources.reading import Reading
from lockgate_taskmanager.task.program import Exhausted, Idle

LARGEST_BATCH = 6


class SimulatedSource:
    """A Source. most: so many splits at most are in one batch."""

    def __init__(self, choice: Random, most: int) -> None:
        self._choice, self._most = choice, most
        self._splits: dict[str, SplitState] = {}
        self.complete = False

    def spec(self) -> None:
        return

    def assign(self, splits: Sequence[SplitState], complete: bool) -> None:
        for split in splits:
            if split.split in self._splits:
                raise AssertionError(f"split {split.split} was assigned twice")
            self._splits[split.split] = split
        self.complete = self.complete or complete

    def read(self, budget_bytes: int, now_ms: int) -> Reading | Idle | Exhausted:  # noqa: ARG002
        ranges: list[SplitRange] = []
        for _ in range(self._choice.randint(1, self._most) if self._most > 1 else 1):
            open_splits = [split for split in self._splits.values() if split.offset < split.end]
            if open_splits:
                split = open_splits[self._choice.randrange(len(open_splits))]
                end = min(split.end, split.offset + self._choice.randint(2, LARGEST_BATCH * self._most))
                self._splits[split.split] = replace(split, offset=end)
                ranges.append(SplitRange(split.split, split.offset, end))
        if not ranges:
            return Exhausted() if self.complete else Idle(50)
        return Reading(None, 0, 0, full=False, ranges=tuple(ranges))  # type: ignore[arg-type]

    def splits(self) -> tuple[SplitState, ...]:
        return tuple(self._splits.values())

    def backlog(self, now_ms: int) -> Sequence[str]:  # noqa: ARG002
        return ()

    def unread(self, now_ms: int) -> Backlog:  # noqa: ARG002
        return Backlog()

    def close(self) -> None: ...
