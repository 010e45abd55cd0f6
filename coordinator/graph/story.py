"""What a state machine remembers of its past, and the error that tells it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from enum import Enum
from typing import TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransition(Exception):
    """A machine was about to do what its transition table forbids: a fault of the machine, never of its input."""


class Story:
    """The last things that happened to one machine, oldest first. Bounded."""

    def __init__(self, subject: str, length: int = 40) -> None:
        self._subject = subject
        self._lines: deque[str] = deque(maxlen=length)

    def note(self, text: str, now_ms: int) -> None:
        """Remembers one thing."""
        self._lines.append(f"{now_ms} ms: {text}")

    def lines(self) -> tuple[str, ...]:
        """What is remembered, oldest first."""
        return tuple(self._lines)

    def move(self, allowed: Mapping[S, Set[S]], before: S, after: S, now_ms: int) -> S:
        """`after`, when the table allows it. Raises IllegalTransition with everything remembered."""
        if after not in allowed[before]:
            raise IllegalTransition(self.told(f"{before.name} -> {after.name} is not allowed"))
        self.note(f"{before.name} -> {after.name}", now_ms)
        return after

    def told(self, what: str) -> str:
        """`what`, and how it came to it."""
        return "\n  ".join([f"{self._subject}: {what}. What happened before:", *(self._lines or ["nothing"])])
