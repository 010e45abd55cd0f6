"""How far event time has come in a windowed state."""

from __future__ import annotations

from collections.abc import Iterable

from taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK


class EventClock:
    """Two watermarks in milliseconds, which only rise.

    now: what has fired and what is late goes by it. before_end: the same but for the end of the input, and what a
    snapshot tells. A job that was drained may be started again, or restarted, and then reads what its sources had left.
    The end of the input purges every window, so none can fire a second time for records it has told already.
    """

    def __init__(self) -> None:
        self.now = self.before_end = MIN_WATERMARK

    def advance(self, watermark: int) -> None:
        """Event time has come to `watermark`; MAX_WATERMARK at the end of the input."""
        self.now = max(watermark, self.now)
        if self.now != MAX_WATERMARK:
            self.before_end = self.now

    def restore(self, watermarks: Iterable[int]) -> None:
        """Of several the least counts: none of their records is then taken for late that was not."""
        self.now = self.before_end = min(watermarks, default=MIN_WATERMARK)
