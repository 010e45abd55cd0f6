"""The limit that an object sets for its own state."""

from __future__ import annotations

from dataclasses import dataclass

from lockgate_taskmanager.task.program import StateRefused


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """Of one object. where: the operator in messages; most_bytes: 0 for no limit."""

    where: str
    most_bytes: int

    def require(self, size_bytes: int) -> None:
        """Raises StateRefused. size_bytes: of what is known of a state that is being stored."""
        if 0 < self.most_bytes < size_bytes:
            raise StateRefused(
                f"{self.where}: its state has {size_bytes:,} bytes or more, and its max_state_bytes is"
                f" {self.most_bytes:,}; remove what is not needed from it, or raise the limit"
            )
