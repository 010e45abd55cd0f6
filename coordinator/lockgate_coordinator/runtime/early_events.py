"""Keeps the events of a job that arrive before its JobMaster exists."""

from __future__ import annotations

from lockgate_coordinator.job import events as ev


class EarlyEvents:
    """The events in order. Counters are not kept, because newer ones follow."""

    def __init__(self) -> None:
        self._events: list[tuple[str | None, ev.Event]] = []

    def add(self, event: ev.Event, run_id: str | None = None) -> None:
        """run_id: of the event, if the current run of the job is not known yet."""
        if not (isinstance(event, ev.TaskManagerReport) and isinstance(event.report, ev.CountersReported)):
            self._events.append((run_id, event))

    def take(self, run_id: str) -> tuple[list[ev.Event], list[ev.StillRunning]]:
        """Takes the events of this run, and the attempts of other runs that still run. Call once."""
        events, self._events = self._events, []
        others = [
            still_running
            for of, still_running in events
            if of not in (None, run_id) and isinstance(still_running, ev.StillRunning)
        ]
        return [item for of, item in events if of in (None, run_id)], others
