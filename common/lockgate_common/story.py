"""The history of a state machine, its transitions, and the error of an illegal one. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(RuntimeError):
    """A machine got an event, or made a transition, that its table does not allow. The message includes the history."""


class Story:
    """The last events and transitions of one machine, oldest first. Bounded."""

    def __init__(self, subject: str, length: int = 40) -> None:
        self._subject = subject
        self._lines: deque[str] = deque(maxlen=length)

    def note(self, text: str, now_ms: int | None = None) -> None:
        """Adds an entry. now_ms: monotonic, if the machine has it."""
        self._lines.append(text if now_ms is None else f"{now_ms} ms: {text}")

    def lines(self) -> tuple[str, ...]:
        """The entries, oldest first."""
        return tuple(self._lines)

    def move(self, allowed: Mapping[S, Set[S]], before: S, after: S, now_ms: int | None = None) -> S:
        """Returns `after` if the table allows it. Raises IllegalTransition with the whole history."""
        if after not in allowed[before]:
            raise IllegalTransition(self.describe(f"{before.name} -> {after.name} is not allowed"))
        self.note(f"{before.name} -> {after.name}", now_ms)
        return after

    def describe(self, what: str) -> str:
        """`what`, followed by the history."""
        return "\n  ".join([f"{self._subject}: {what}. What happened before:", *(self._lines or ["nothing"])])
