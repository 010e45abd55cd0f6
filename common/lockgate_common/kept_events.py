"""Which events of a job are kept for later watchers: the newest of each kind, so that no kind pushes out another. Pure.

A checkpoint a second would otherwise push a takeover out within minutes. Of each kind the first event of an attempt is
kept apart as well: the first checkpoint of an attempt ends its timeline, however many followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge
from operator import itemgetter
from typing import Generic, TypeVar

from lockgate_proto.messages import JobEvent, JobEventKind

KEPT_OF_A_KIND = 200
MOST_EVENTS = 2 * KEPT_OF_A_KIND * len(JobEventKind)

T = TypeVar("T")


class KeptEvents(Generic[T]):
    """T: the form in which an event is kept. most: of a kind that are first in their attempt, and as many others."""

    def __init__(self, most: int = KEPT_OF_A_KIND) -> None:
        self._most = most
        self._kept: dict[tuple[JobEventKind, bool], deque[tuple[int, T]]] = {}
        self._newest: dict[JobEventKind, tuple[int, int]] = {}  # token and attempt of the newest event of each kind
        self._count = 0

    def add(self, event: JobEvent, form: T) -> T | None:
        """Returns what makes room for it, if anything does."""
        attempt = (event.token, event.attempt)
        is_first = self._newest.get(event.kind) != attempt
        self._newest[event.kind] = attempt
        group = self._kept.setdefault((event.kind, is_first), deque())
        group.append((self._count, form))
        self._count += 1
        return group.popleft()[1] if len(group) > self._most else None

    def __iter__(self) -> Iterator[T]:
        """In the order in which they came."""
        return (form for _, form in merge(*self._kept.values(), key=itemgetter(0)))
