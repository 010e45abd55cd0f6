"""What clients see of one job: its status and its events. Actor thread only."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Any

from lockgate_common.clock import monotonic_ms
from lockgate_proto.messages import JobStatus

from lockgate_coordinator.runtime.actor import Actor, Timer
from lockgate_coordinator.runtime.watch import WatchEnd, WatchHub

log = logging.getLogger(__name__)

_STATUS_PAUSE_MS = 100  # between two statuses for watchers when nothing but numbers changed


class StatusPublisher:
    """A mistake in making a status is logged and told in it; the job runs on, and so does whoever asked."""

    def __init__(self, actor: Actor, view: Callable[[], JobStatus], first: JobStatus) -> None:
        """view: the status as it is now. first: what is shown when the very first one cannot be made."""
        self.hub = WatchHub()
        self._actor = actor
        self._view = view
        self._last = first
        self._is_over = False
        self._timer: Timer | None = None

    def status(self) -> JobStatus:
        """What clients see now; of a job that has ended always the same."""
        if not self._is_over:
            try:
                self._last = self._view()
            except Exception as error:
                text = f"its state cannot be shown, see the leader's log: {type(error).__name__}: {error}"
                if text != self._last.message:
                    log.exception("job %s: internal error while showing its state", self._last.job_key)
                self._last = dataclasses.replace(self._last, message=text)
        return self._last

    def end(self, **changes: Any) -> None:
        """The job has ended: nothing changes any more. changes: fields that the end has set."""
        self._last = dataclasses.replace(self.status(), **changes)
        self._is_over = True

    def changed(self, *, at_once: bool) -> None:
        """Tells the watchers how it stands: at once after an event, else once in a while."""
        if self._is_over:
            self.hub.status(self._last)
            self.hub.finish(WatchEnd.JOB_ENDED)
        elif self.hub.watched and at_once:
            self.hub.status(self.status())
        elif self.hub.watched and self._timer is None:
            self._timer = self._actor.at(monotonic_ms() + _STATUS_PAUSE_MS, self._changed_late)

    def close(self, end: WatchEnd) -> None:
        """Nothing is told any more."""
        if self._timer is not None:
            self._timer.cancel()
        self.hub.finish(end)

    def _changed_late(self) -> None:
        self._timer = None
        if self.hub.watched:
            self.hub.status(self.status())
