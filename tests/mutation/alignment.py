"""The BarrierHandler lets a channel that has delivered its barrier run on."""

from __future__ import annotations

from lockgate_taskmanager.barrier.events import Effect, Event, Hold, Release
from lockgate_taskmanager.barrier.handler import BarrierHandler

_handle = BarrierHandler.handle


def _without_holding(self: BarrierHandler, event: Event, now_ms: int) -> list[Effect]:
    self._held = _Nothing(self._held)
    try:
        effects = _handle(self, event, now_ms)
    finally:
        self._held = set(self._held)
    return [effect for effect in effects if not isinstance(effect, Hold | Release)]


class _Nothing(set[int]):
    """A set of held channels that counts them and denies every one."""

    def __contains__(self, _: object) -> bool:
        return False


BarrierHandler.handle = _without_holding  # type: ignore[method-assign]
