"""Fan-out of one job's events and status to any number of watchers, none of which can hold up the job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto

from lockgate_proto.messages import JobEvent, JobStatus, JobUpdate

KEPT_EVENTS = 1000
_BACKLOG = 4 * KEPT_EVENTS


class WatchEnd(Enum):
    """Why a watch is over."""

    JOB_ENDED = auto()
    LEADERSHIP_LOST = auto()
    TOO_SLOW = auto()
    CLOSED = auto()  # by the watcher


class Watcher:
    """One reader of a job's updates. Events are all delivered, in order; of statuses only the newest one waits."""

    def __init__(self, first: JobStatus) -> None:
        self._changed = threading.Condition()
        self._updates: deque[JobUpdate] = deque([JobUpdate(update=first)])
        self._status: JobStatus | None = None
        self.end: WatchEnd | None = None

    def push_event(self, event: JobEvent) -> None:
        """Queues an event; a reader that is thousands behind is let go rather than kept in memory."""
        with self._changed:
            if self.end is None:
                self._updates.append(JobUpdate(update=event))
                if len(self._updates) > _BACKLOG:
                    self.end = WatchEnd.TOO_SLOW
                self._changed.notify_all()

    def push_status(self, status: JobStatus) -> None:
        """Offers a newer status; it replaces one that has not been read yet, and comes after the queued events."""
        with self._changed:
            if self.end is None:
                self._status = status
                self._changed.notify_all()

    def finish(self, end: WatchEnd) -> None:
        """Ends the watch once everything queued has been read (at once when the watcher itself closes)."""
        with self._changed:
            if self.end is None:
                self.end = end
            self._changed.notify_all()

    def updates(self) -> Iterator[JobUpdate]:
        """Blocks for each next update; stops after `finish`, when `end` says why."""
        while (update := self._next()) is not None:
            yield update

    def _next(self) -> JobUpdate | None:
        with self._changed:
            while True:
                if self.end in (WatchEnd.CLOSED, WatchEnd.TOO_SLOW):
                    return None
                if self._updates:
                    return self._updates.popleft()
                if self._status is not None:
                    status, self._status = self._status, None
                    return JobUpdate(update=status)
                if self.end is not None:
                    return None
                self._changed.wait()


class WatchHub:
    """The kept events of one job under this leader, and who watches it. Used on the actor thread only."""

    def __init__(self) -> None:
        self._kept: deque[JobEvent] = deque(maxlen=KEPT_EVENTS)
        self._watchers: list[Watcher] = []
        self._status: JobStatus | None = None

    @property
    def watched(self) -> bool:
        """True while anybody watches: only then is it worth making a status often."""
        return bool(self._watchers)

    def watch(self, status: JobStatus) -> Watcher:
        """A new watcher: the status first, then the kept events, then what happens from now on."""
        watcher = Watcher(status)
        for event in self._kept:
            watcher.push_event(event)
        self.status(status)  # the others must not miss it
        self._watchers.append(watcher)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """The watcher has gone."""
        watcher.finish(WatchEnd.CLOSED)
        if watcher in self._watchers:
            self._watchers.remove(watcher)

    def event(self, event: JobEvent) -> None:
        """Keeps the event and tells every watcher."""
        self._kept.append(event)
        for watcher in self._watchers:
            watcher.push_event(event)

    def status(self, status: JobStatus) -> None:
        """Tells every watcher, unless they know it already."""
        if status != self._status:
            self._status = status
            for watcher in self._watchers:
                watcher.push_status(status)

    def finish(self, end: WatchEnd) -> None:
        """Ends every watch."""
        for watcher in self._watchers:
            watcher.finish(end)
        self._watchers.clear()
