"""Fan-out of one job's events and status to any number of watchers, none of which can delay the job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any

from lockgate_common.kept_events import MOST_EVENTS, KeptEvents
from lockgate_proto.messages import JobEvent, JobStatus, JobUpdate
from lockgate_proto.status_changes import change_between

_BACKLOG = MOST_EVENTS + 1_000
_SMALL_SUBTASKS = 500  # of a status that is encoded on the loop: some 500 us


class WatchEnd(Enum):
    """Why a watch is over."""

    JOB_ENDED = auto()
    LEADERSHIP_LOST = auto()
    TOO_SLOW = auto()
    CLOSED = auto()  # by the watcher


@dataclass(eq=False, slots=True)
class SharedUpdate:
    """One update, shared by all watchers that need it.

    make: returns it; called once, by the first stream that sends it
    is_large: whether making and encoding it takes milliseconds
    encoded: its wire form, from then on
    """

    make: Callable[[], JobUpdate]
    is_large: bool = False
    encoded: Any = None


class StatusVersion:
    """One status, and what watchers get of it: all of it, or what is different from another version.

    Its updates are taken on the loop only, and made once, however many watchers there are.
    """

    def __init__(self, number: int, status: JobStatus) -> None:
        """number: of no other version of this job."""
        self.status = status
        self._number = number
        self._is_large = len(status.subtasks) > _SMALL_SUBTASKS
        self._since: dict[int, SharedUpdate] = {}  # by number: versions must not keep each other in memory
        self.whole = SharedUpdate(partial(JobUpdate, status), self._is_large)

    def since(self, before: StatusVersion) -> SharedUpdate:
        """What a watcher gets that has `before`."""
        found = self._since.get(before._number)
        if found is None:
            make = partial(_update_between, before.status, self.status)
            found = self._since[before._number] = SharedUpdate(make, self._is_large)
        return found


class Watcher:
    """One reader of a job's updates. All events are delivered in order; only the newest status is queued."""

    def __init__(self, first: StatusVersion, changes: bool = False) -> None:
        """changes: after the first status it wants what has changed since the one that it has."""
        self._changed = threading.Lock()
        self._changes = changes
        self._updates: deque[SharedUpdate] = deque([first.whole])
        self._sent = first
        self._newest: StatusVersion | None = None
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

    def push_status(self, status: StatusVersion) -> None:
        """Queues a newer status after the queued events; replaces one that has not been read yet."""
        with self._changed:
            if self.end is None:
                self._newest = status
        self.on_change()

    def finish(self, end: WatchEnd) -> None:
        """Ends the watch once everything queued has been read (at once when the watcher itself closes)."""
        with self._changed:
            if self.end is None:
                self.end = end
        self.on_change()

    def take(self) -> SharedUpdate | None:
        """The next update; None when there is none, or the watch is over (see `end`). On the loop."""
        with self._changed:
            if self.end in (WatchEnd.CLOSED, WatchEnd.TOO_SLOW):
                return None
            if self._updates:
                return self._updates.popleft()
            before, newest = self._sent, self._newest
            if newest is None:
                return None
            self._sent, self._newest = newest, None
        return newest.since(before) if self._changes else newest.whole


class WatchHub:
    """The kept events and the watchers of one job under this leader. Used on the actor thread only."""

    def __init__(self) -> None:
        self._kept: KeptEvents[SharedUpdate] = KeptEvents()
        self._watchers: list[Watcher] = []
        self._version: StatusVersion | None = None  # while there are watchers
        self._count = 0  # of versions

    @property
    def watched(self) -> bool:
        """True while there are watchers, for which statuses are created often."""
        return bool(self._watchers)

    def watch(self, status: JobStatus, *, changes: bool = False) -> Watcher:
        """A new watcher: gets the status, then the kept events, then new updates. changes: see Watcher."""
        watcher = Watcher(self._version_of(status), changes)  # the others get this status, too
        for event in self._kept:
            watcher.push_event(event)
        self._watchers.append(watcher)
        return watcher

    def forget(self, watcher: Watcher) -> None:
        """Removes a watcher."""
        watcher.finish(WatchEnd.CLOSED)
        if watcher in self._watchers:
            self._watchers.remove(watcher)
        if not self._watchers:
            self._version = None

    def event(self, event: JobEvent) -> None:
        """Keeps the event and sends it to every watcher."""
        update = SharedUpdate(partial(JobUpdate, event))
        self._kept.add(event, update)
        for watcher in self._watchers:
            watcher.push_event(update)

    def status(self, status: JobStatus) -> None:
        """Sends the status to every watcher, unless it has not changed."""
        if self._watchers:
            self._version_of(status)

    def finish(self, end: WatchEnd) -> None:
        """Ends every watch."""
        for watcher in self._watchers:
            watcher.finish(end)
        self._watchers.clear()
        self._version = None

    def _version_of(self, status: JobStatus) -> StatusVersion:
        """The version with this status. A new one goes to every watcher."""
        if self._version is None or self._version.status != status:
            self._count += 1
            self._version = StatusVersion(self._count, status)
            for watcher in self._watchers:
                watcher.push_status(self._version)
        return self._version


def _update_between(before: JobStatus, after: JobStatus) -> JobUpdate:
    change = change_between(before, after)
    return JobUpdate(after if change is None else change)
