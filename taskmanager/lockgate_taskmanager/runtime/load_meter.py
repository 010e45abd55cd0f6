"""How busy a subtask was in the last seconds, and how far it has come in event time: for heartbeats and metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from lockgate_common.backlog import Backlog
from lockgate_common.clock import unix_ms
from lockgate_proto.messages import SubtaskLoad, Watermark

from lockgate_taskmanager.runtime.time_shares import Share, TimeShares
from lockgate_taskmanager.task.watermarks import MAX_WATERMARK, MIN_WATERMARK

_WINDOW_NS = 3_000_000_000
_STEP_NS = 500_000_000  # between two marks: the window begins at one
_TOLD_NS = 900_000_000  # between two loads in heartbeats: what a report costs the leader is time of its own

_NOTHING = Watermark(MIN_WATERMARK)


class LoadMeter:
    """The subtask's thread notes watermarks and, of a source, what waits. Another one, of the heartbeats, asks for
    the load.
    """

    def __init__(self, shares: TimeShares) -> None:
        """shares: the time that it has spent so far."""
        self.watermark = _NOTHING  # replaced as a whole, so that any thread may read it
        self._shares = shares
        self._told_ns: int | None = None
        self._looked_ns: int | None = None
        self.backlog = Backlog()  # replaced as a whole, too
        self._marks: deque[tuple[int, dict[Share, float]]] = deque([(time.monotonic_ns(), shares.seconds())])

    def passed(self, watermark: Watermark) -> None:
        """Event time has reached it, and so have all that the subtask has put out."""
        self.watermark = watermark

    def polled(self, backlog: Callable[[], Backlog]) -> None:
        """A source was polled. backlog: what it left, asked once a second."""
        now_ns = time.monotonic_ns()
        if self._looked_ns is None or now_ns - self._looked_ns >= _TOLD_NS:
            self._looked_ns, self.backlog = now_ns, backlog()

    @property
    def watermark_ms(self) -> int | None:
        """None without event time, before its first record, and after the end of the input."""
        time_ms = self.watermark.event_time_ms
        return None if time_ms in (MIN_WATERMARK, MAX_WATERMARK) else time_ms

    @property
    def behind_ms(self) -> int | None:
        """As `watermark_ms`, of what may lag: None while it is idle, too, since others do not wait for it then."""
        return None if self.watermark.idle else self.watermark_ms

    def load(self) -> SubtaskLoad:
        """At present."""
        now_ns, spent = time.monotonic_ns(), self._shares.seconds()
        while len(self._marks) > 1 and now_ns - self._marks[1][0] >= _WINDOW_NS:
            self._marks.popleft()
        before = self._marks[0][1]
        if now_ns - self._marks[-1][0] >= _STEP_NS:
            self._marks.append((now_ns, spent))
        risen = {share: seconds - before[share] for share, seconds in spent.items()}
        total = sum(risen.values()) or 1.0
        reached, behind, waiting = self.watermark_ms, self.behind_ms, self.backlog
        return SubtaskLoad(
            busy_permille=int(1_000 * risen[Share.BUSY] / total),
            backpressured_permille=int(1_000 * risen[Share.BACKPRESSURED] / total),
            watermark_unix_ms=reached or 0,
            lag_ms=unix_ms() - behind if behind is not None else 0,
            has_watermark=reached is not None,
            has_lag=behind is not None,
            backlog_records=waiting.records or 0,
            backlog_bytes=waiting.bytes or 0,
            backlog_splits=waiting.splits or 0,
            has_backlog_records=waiting.records is not None,
            has_backlog_bytes=waiting.bytes is not None,
            has_backlog_splits=waiting.splits is not None,
        )

    def news(self) -> SubtaskLoad | None:
        """As `load`, for a heartbeat; None when one was sent within the last second."""
        now_ns = time.monotonic_ns()
        if self._told_ns is not None and now_ns - self._told_ns < _TOLD_NS:
            return None
        self._told_ns = now_ns
        return self.load()
