"""StoryLog: what one process remembers of one job, event by event, each with its id and the id of its cause.

The machines are pure and know nothing of it. The shell that hands an event to a machine adds a line when it has the
machine's answer, and before it carries that out, so that every effect can name the event that made it.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

from lockgate_proto.messages import StoryLine

KEPT = 800
KEPT_QUIET = 200
"""Lines from which nothing followed. They are kept apart: thousands of acknowledgements must not push out the rest."""
MAX_TEXT = 300
MAX_EFFECTS = 12


class Outside(StrEnum):
    """Where a chain of causes begins: what no machine has decided."""

    CLIENT = "client"
    LEADERSHIP = "leadership"
    TIMER = "timer"
    ZOOKEEPER = "ZooKeeper"
    TASK_MANAGER = "task manager"
    LEADER = "leader"
    DATA = "data"
    PROGRAM = "program"
    PEER = "peer"
    PROCESS = "process"


class StoryLog:
    """Thread safe and bounded."""

    def __init__(self, process: str, prefix: str, numbers: Iterator[int]) -> None:
        """process: id of the coordinator or task manager. prefix, numbers: of the ids; several logs may share them.

        Prefix and number name one event permanently: a process or a term that starts again has another prefix.
        """
        self._process = process
        self._prefix = prefix
        self._numbers = numbers
        self._lock = threading.Lock()
        self._followed: deque[tuple[int, StoryLine]] = deque(maxlen=KEPT)
        self._quiet: deque[tuple[int, StoryLine]] = deque(maxlen=KEPT_QUIET)
        self._added = 0

    def add(
        self,
        event: str,
        cause_id: str,
        effects: Sequence[str] = (),
        *,
        unix_us: int,
        change: str = "",
        place: str = "",
        attempt: int = 0,
    ) -> str:
        """Remembers an event and returns its id. The arguments are fields of StoryLine."""
        more = len(effects) - MAX_EFFECTS
        listed = (*effects[:MAX_EFFECTS], f"and {more} more") if more > 0 else effects
        with self._lock:
            number = next(self._numbers)
            line = StoryLine(
                f"{self._prefix}-{number}",
                cause_id[:MAX_TEXT],
                unix_us,
                self._process,
                place,
                attempt,
                cut(event),
                change,
                tuple(map(cut, listed)),
            )
            (self._followed if effects or change else self._quiet).append((number, line))
            self._added += 1
        return line.id

    def lines(self, most: int = KEPT + KEPT_QUIET) -> tuple[StoryLine, ...]:
        """The newest ones in the order of the events."""
        with self._lock:
            merged = [line for _, line in heapq.merge(self._followed, self._quiet, key=lambda kept: kept[0])]
        return tuple(merged[-most:]) if most > 0 else ()

    def is_cut(self, line_count: int) -> bool:
        """True when there were more than `line_count` events."""
        return self._added > line_count

    def shrink(self, most: int) -> None:
        """Keeps the newest lines only: nothing more will happen."""
        with self._lock:
            self._followed = deque(self._followed, maxlen=most)
            self._quiet = deque(self._quiet, maxlen=most)


def cut(text: str) -> str:
    """One line of bounded length."""
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 4]} ..."


def grouped(effects: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """`to: what` for every recipient and its message; one line for all recipients of the same message."""
    recipients: dict[str, list[str]] = {}
    for to, what in effects:
        recipients.setdefault(what, []).append(to)
    return tuple(f"{_names(names)}: {what}" if names[0] else what for what, names in recipients.items())


def _names(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
