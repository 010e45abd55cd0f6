"""Fan-out of one job's events and status to any number of watchers, none of which can delay the job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from lockgate_common.kept_events import MOST_EVENTS, KeptEvents
from lockgate_proto.messages import JobEvent, JobStatus, JobUpdate

_BACKLOG = MOST_EVENTS + 1_000


class WatchEnd(Enum):
    """Why a watch is over."""

    JOB_ENDED = auto()
    LEADERSHIP_LOST = auto()
    TOO_SLOW = auto()
    CLOSED = auto()  # by the watcher


@dataclass(eq=False, slots=True)
class SharedUpdate:
    """One update, shared by all watchers.

    encoded: its wire form, made once by the first stream that sends it
    """

    update: JobUpdate
    encoded: Any = None


class Watcher:
    """One reader of a job's updates. All events are delivered in order; only the newest status is queued."""

    def __init__(self, first: SharedUpdate) -> None:
        self._changed = threading.Lock()
        self._updates: deque[SharedUpdate] = deque([first])
        self._status: SharedUpdate | None = None
        self.end: WatchEnd | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called on any thread when there is an update to take, or the watch is over."""

    def push_event(self, event: SharedUpdate) -> None:
        """Queues an event; ends the watch of a reader that is thousands of events behind."""
        with self._changed:
            if self.end is None:
                self._updates.append(event)
                if len(self._updates) > _BACKLOG:
                    self.end = WatchEnd.TOO_SLOW
        self.on_change()

    def push_status(self, status: SharedUpdate) -> None:
        """Queues a newer status after the queued events; replaces one that has not been read yet."""
        with self._changed:
            if self.end is None:
                self._status = status
        self.on_change()

    def finish(self, end: WatchEnd) -> None:
        """Ends the watch once everything queued has been read (at once when the watcher itself closes)."""
        with self._changed:
            if self.end is None:
                self.end = end
        self.on_change()

    def take(self) -> SharedUpdate | None:
        """The next update; None when there is none, or the watch is over (see `end`)."""
        with self._changed:
            if self.end in (WatchEnd.CLOSED, WatchEnd.TOO_SLOW):
                return None
            if self._updates:
                return self._updates.popleft()
            status, self._status = self._status, None
            return status


class WatchHub:
    """The kept events and the watchers of one job under this leader. Used on the actor thread only."""

    def __init__(self) -> None:
        self._kept: KeptEvents[SharedUpdate] = KeptEvents()
        self._watchers: list[Watcher] = []
        self._status: JobStatus | None = None

    @property
    def watched(self) -> bool:
        """True while there are watchers, for which statuses are created often."""
        return bool(self._watchers)

    def watch(self, status: JobStatus) -> Watcher:
        """A new watcher: gets the status, then the kept events, then new updates."""
        watcher = Watcher(SharedUpdate(JobUpdate(update=status)))
        for event in self._kept:
            watcher.push_event(event)
        self.status(status)  # the others must not miss it
        self._watchers.append(watcher)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """Removes a watcher."""
        watcher.finish(WatchEnd.CLOSED)
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def event(self, event: JobEvent) -> None:
        """Keeps the event and sends it to every watcher."""
        update = SharedUpdate(JobUpdate(update=event))
        self._kept.add(event, update)
        for watcher in self._watchers:
            watcher.push_event(update)

    def status(self, status: JobStatus) -> None:
        """Sends the status to every watcher, unless it has not changed."""
        if status != self._status:
            self._status = status
            update = SharedUpdate(JobUpdate(update=status))
            for watcher in self._watchers:
                watcher.push_status(update)

    def finish(self, end: WatchEnd) -> None:
        """Ends every watch."""
        for watcher in self._watchers:
            watcher.finish(end)
        self._watchers.clear()
