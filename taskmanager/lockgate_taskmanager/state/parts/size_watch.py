"""The size of an object's state: a limit of its own, and a line in the log each time that a large state has doubled."""

from __future__ import annotations

import logging

from lockgate_taskmanager.task.program import StateRefused

LOG = logging.getLogger(__name__)
LARGE_BYTES = 256 << 20
"""From here on a state is named."""


class SizeWatch:
    """Of one object. Used from the threads that store its snapshots."""

    def __init__(self, where: str, subtask: int, most_bytes: int) -> None:
        """where: the operator in messages; most_bytes: 0 for no limit."""
        self._where, self._subtask, self._most_bytes = where, subtask, most_bytes
        self._named_from = LARGE_BYTES

    def require_allowed(self, size_bytes: int) -> None:
        """Raises StateRefused. size_bytes: of what is known of a state that is being stored."""
        if 0 < self._most_bytes < size_bytes:
            raise StateRefused(
                f"{self._where}: its state is larger than its max_state_bytes, {self._most_bytes:,} bytes; remove what"
                " is not needed from it, or raise the limit"
            )

    def stored(self, size_bytes: int) -> None:
        """A whole state of that size is stored."""
        if size_bytes < self._named_from:
            return
        LOG.warning(
            "%s, subtask %d: its state has %d MiB; it is held in memory, and grows with whatever its object adds to it",
            *(self._where, self._subtask, size_bytes >> 20),
        )
        while self._named_from <= size_bytes:
            self._named_from *= 2
