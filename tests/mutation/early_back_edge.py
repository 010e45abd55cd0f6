"""A back edge that has brought the barrier before its head's other inputs have goes on being read."""

from __future__ import annotations

from typing import Any

from lockgate_taskmanager.barrier.events import BarrierArrived, Effect, Event
from lockgate_taskmanager.barrier.handler import BarrierHandler

_handle = BarrierHandler.handle


def _unheld(self: Any, event: Event, now_ms: int) -> list[Effect]:
    if isinstance(event, BarrierArrived) and event.channel in self._feedback:
        return []
    return _handle(self, event, now_ms)


BarrierHandler.handle = _unheld  # type: ignore[method-assign]
