"""What happens to a job before its JobMaster is there to hear of it."""

from __future__ import annotations

from lockgate_coordinator.job import events as ev


class EarlyEvents:
    """In order. Counters are not kept: newer ones come."""

    def __init__(self) -> None:
        self._events: list[tuple[str | None, ev.Event]] = []

    def add(self, event: ev.Event, run_id: str | None = None) -> None:
        """run_id: of the event, where it is not known yet which run of the job counts."""
        if not (isinstance(event, ev.TaskManagerReport) and isinstance(event.report, ev.CountersReported)):
            self._events.append((run_id, event))

    def take(self, run_id: str) -> tuple[list[ev.Event], list[ev.StillRunning]]:
        """Once: those of this run, and what still runs of other ones."""
        events, self._events = self._events, []
        others = [
            still_running
            for of, still_running in events
            if of not in (None, run_id) and isinstance(still_running, ev.StillRunning)
        ]
        return [item for of, item in events if of in (None, run_id)], others
