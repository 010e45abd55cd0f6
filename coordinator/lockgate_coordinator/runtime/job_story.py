"""JobStory: the events of one job that this leader keeps. Actor thread only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lockgate_common.clock import unix_us
from lockgate_common.story_log import StoryLog
from lockgate_proto.messages import JobEventKind, KeepCopies, PrepareJob, StoryLine

from lockgate_coordinator.job import effects as do
from lockgate_coordinator.job import events as ev
from lockgate_coordinator.job.story_text import cause_of, effects_of, event_text, reported_cause

KEPT_AFTER_END = 50


class JobStory:
    """Assigns an id to every event that the JobMaster has handled."""

    def __init__(self, coordinator_id: str, token: int, numbers: Iterator[int]) -> None:
        """token: of the grant. numbers: for the events of all jobs of this term."""
        self._log = StoryLog(coordinator_id, f"c{token}", numbers)
        self._state = ""
        self._has_ended = False
        self._requested_by = ""  # the event that requested slots last
        self._timer_set_by = ""

    def handled(self, event: ev.Event, cause_id: str, effects: Sequence[do.Effect]) -> str:
        """The event's id, as the cause of its effects. cause_id: empty if no event of this job caused it.

        Counters and timers without effects get no id: they are frequent, and cause nothing.
        """
        if _is_routine(event) and all(isinstance(effect, do.WakeAt) for effect in effects):
            return self._timer_set_by
        cause_id, text = self._origin(event, cause_id)
        event_id = self._log.add(text, cause_id, effects_of(effects), unix_us=unix_us(), change=self._change(effects))
        for effect in effects:
            if isinstance(effect, do.RequestSlots):
                self._requested_by = event_id
            elif isinstance(effect, do.WakeAt):
                self._timer_set_by = event_id
        return event_id

    def _change(self, effects: Sequence[do.Effect]) -> str:
        """The job's states before and after the event; empty when the state did not change."""
        passed = [
            effect.event.text
            for effect in effects
            if isinstance(effect, do.Emit) and effect.event.kind is JobEventKind.STATE_CHANGED
        ]
        if not passed:
            return ""
        before, self._state = self._state, passed[-1]
        return " -> ".join([before, *passed] if before else passed)

    def failed(self, event: ev.Event, cause_id: str, error: BaseException) -> str:
        """The JobMaster could not handle the event. Returns its id."""
        cause_id, text = self._origin(event, cause_id)
        failure = f"internal error: {type(error).__name__}: {error}"
        return self._log.add(text, cause_id, (failure,), unix_us=unix_us())

    def lines(self) -> tuple[tuple[StoryLine, ...], tuple[str, ...]]:
        """The kept lines, in order, and remarks on missing ones, as sentences."""
        lines = self._log.lines()
        if not self._log.is_cut(len(lines)):
            return lines, ()
        kept = "The job has ended: only" if self._has_ended else "Only"
        return lines, (f"{kept} the newest {len(lines)} of the leader's lines are kept.",)

    def end(self) -> None:
        """The job has ended: keeps only its last events."""
        self._has_ended = True
        self._log.shrink(KEPT_AFTER_END)

    def _origin(self, event: ev.Event, cause_id: str) -> tuple[str, str]:
        """The event's cause, and its text."""
        text = event_text(event)
        if isinstance(event, ev.SlotsOffered | ev.SlotsMissing):
            return self._requested_by or cause_of(event).value, text
        if isinstance(event, ev.Tick) and not cause_id and self._timer_set_by:
            return cause_of(event).value, f"{text}, set by {self._timer_set_by}"
        return cause_id or reported_cause(event) or cause_of(event).value, text


def caused(body: do.ControlBody, cause_id: str) -> do.ControlBody:
    """The message with the id of the event that caused it; none for advice, which has no effects."""
    return body if isinstance(body, PrepareJob | KeepCopies) else replace(body, cause_id=cause_id)


def _is_routine(event: ev.Event) -> bool:
    return isinstance(event, ev.Tick) or (
        isinstance(event, ev.TaskManagerReport) and isinstance(event.report, ev.CountersReported)
    )
