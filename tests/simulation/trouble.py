"""A storage that is away, or slow, for a while; and files in it that can never be read again."""

from __future__ import annotations

from tests.simulation.world import World

AWAY = "the storage is away"
SLOW_MS = 800.0
AT_ONCE = 4
"""So many calls at most wait inside each other: there is one thread here."""


class StorageTrouble:
    """Of one storage, for everybody who uses it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._fails_until = self._slow_until = 0.0
        self._waiting = 0
        self.damaged: set[str] = set()  # paths

    def fail(self, duration_ms: float) -> None:
        """From now on every call fails, for so long."""
        self._world.note("STORAGE", f"is away for {duration_ms:.0f} ms")
        self._fails_until = max(self._fails_until, self._world.now + duration_ms)

    def slow_down(self, duration_ms: float) -> None:
        """From now on every call takes its time, for so long."""
        self._world.note("STORAGE", f"is slow for {duration_ms:.0f} ms")
        self._slow_until = max(self._slow_until, self._world.now + duration_ms)

    @property
    def delay_ms(self) -> float:
        """How much longer a call takes than usual, in a process that goes on meanwhile."""
        return self._world.delay(0, SLOW_MS) if self._world.now < self._slow_until else 0.0

    def wait(self) -> None:
        """A thread of the present process waits for the storage. Raises Crash when the process dies meanwhile."""
        if self._world.now < self._slow_until and self._waiting < AT_ONCE:
            self._waiting += 1
            try:
                self._world.wait(self.delay_ms)
            finally:
                self._waiting -= 1

    def check(self) -> None:
        """Raises OSError while the storage is away."""
        if self._world.now < self._fails_until:
            raise OSError(AWAY)
