"""A time is believed however far ahead of the clock it lies."""

from __future__ import annotations

from lockgate_proto.messages import EventTime
from lockgate_taskmanager.spark import event_time


def _any(_kind: EventTime, _unix_ms: int) -> int | None:
    return None


assert hasattr(event_time, "latest_ms")
event_time.latest_ms = _any
