"""The restart delay of a dead process. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles the delay at each early death and starts over once a process has run for `stable_after_ms`."""

    delay_ms: int
    max_delay_ms: int
    stable_after_ms: int
    early_deaths: int = 0

    def exited(self, lived_ms: int) -> tuple[Backoff, int]:
        """The backoff after a death at the age of `lived_ms`, and the delay before the next start, in ms."""
        earlier = 0 if lived_ms >= self.stable_after_ms else self.early_deaths
        wait_ms = min(self.max_delay_ms, self.delay_ms * 2 ** min(earlier, 20))
        return replace(self, early_deaths=earlier + 1), wait_ms
