"""How busy the vertices of a job are, and their event time, out of what their subtasks report. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lockgate_proto.messages import SubtaskLoad, SubtaskStatusView


@dataclass(slots=True)
class VertexLoad:
    """Of the subtasks that have reported: shares of the last seconds, on average; the highest share of a busy one.

    watermark_unix_ms: the lowest of those that have something to read; lag_ms: the longest. None: no event time.
    """

    reports: int = 0
    busy: float = 0.0
    backpressured: float = 0.0
    busiest: float = 0.0
    lag_ms: int | None = None
    _working: list[int] = field(default_factory=list)  # watermarks
    _idle: list[int] = field(default_factory=list)

    @property
    def idle(self) -> float:
        """The rest of the time."""
        return 1.0 - self.busy - self.backpressured if self.reports else 0.0

    @property
    def watermark_unix_ms(self) -> int | None:
        """The lowest of subtasks with something to read; of all if there are none; None if none has reported any."""
        return min(self._working or self._idle, default=None)

    def add(self, load: SubtaskLoad) -> None:
        """One more subtask."""
        self.reports += 1
        self.busy += (load.busy_permille / 1000 - self.busy) / self.reports
        self.backpressured += (load.backpressured_permille / 1000 - self.backpressured) / self.reports
        self.busiest = max(self.busiest, load.busy_permille / 1000)
        if load.has_lag:
            self.lag_ms = max(load.lag_ms, self.lag_ms if self.lag_ms is not None else load.lag_ms)
        if load.has_watermark:
            (self._working if load.has_lag else self._idle).append(load.watermark_unix_ms)


def vertex_loads(subtasks: Iterable[SubtaskStatusView]) -> dict[str, VertexLoad]:
    """By vertex id; none for a vertex of which no subtask has reported."""
    found: dict[str, VertexLoad] = {}
    for subtask in subtasks:
        if subtask.load is not None:
            found.setdefault(subtask.vertex_id, VertexLoad()).add(subtask.load)
    return found
