"""Merges the stories of several processes, whose clocks need not agree. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush

from lockgate_proto.messages import StoryLine


def merged(parts: Sequence[Sequence[StoryLine]]) -> tuple[StoryLine, ...]:
    """All lines, each after its cause, those of one part in their order; otherwise sorted by time.

    parts: the lines of one process each, in the order of its events.
    """
    return tuple(_Merge(parts).lines())


class _Merge:
    """The first remaining line of each part is ready, unless its cause is still to come."""

    def __init__(self, parts: Sequence[Sequence[StoryLine]]) -> None:
        self._parts = parts
        self._next = [0] * len(parts)
        self._to_come = {line.id for part in parts for line in part}
        self._ready: list[tuple[int, int]] = []  # time, part
        self._waiting: dict[str, list[int]] = {}  # parts, by the cause that they wait for

    def lines(self) -> list[StoryLine]:
        for part in range(len(self._parts)):
            self._offer(part)
        merged_lines = []
        while self._ready or self._waiting:
            if not self._ready:  # a cycle of causes, which no machine produces: the received lines are invalid
                self._release(next(iter(self._waiting)))
            part = heappop(self._ready)[1]
            line = self._head(part)
            merged_lines.append(line)
            self._to_come.discard(line.id)
            self._next[part] += 1
            self._release(line.id)
            self._offer(part)
        return merged_lines

    def _head(self, part: int) -> StoryLine:
        return self._parts[part][self._next[part]]

    def _offer(self, part: int) -> None:
        if self._next[part] == len(self._parts[part]):
            return
        cause_id = self._head(part).cause_id
        if cause_id in self._to_come:
            self._waiting.setdefault(cause_id, []).append(part)
        else:
            self._push(part)

    def _release(self, event_id: str) -> None:
        for part in self._waiting.pop(event_id, ()):
            self._push(part)

    def _push(self, part: int) -> None:
        heappush(self._ready, (self._head(part).unix_us, part))
