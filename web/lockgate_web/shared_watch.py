"""One watch of a job for all pages of one caller: a status of 10,000 subtasks is made into text once for them all."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from typing import Any

from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.kept_events import MOST_EVENTS, KeptEvents
from lockgate_proto.messages import JobEvent, JobStatus

from lockgate.client import Client, ClientError
from lockgate.json_shapes import event_json
from lockgate_web.live import live_json
from lockgate_web.status_codes import refusal_of

STATUS_EVERY_S = 0.3
_POLL_MS = 250
_MOST_EVENTS = MOST_EVENTS + 1_000  # not sent yet, of one page: all that the leader keeps come at once


def sent(kind: str, value: Any) -> str:
    """One event of a stream."""
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


def failure(refusal: HttpRefusal) -> str:
    """The event of a stream that says why there is nothing else."""
    return sent("failure", {"status": refusal.status, "error": str(refusal)})


class Mailbox:
    """From the thread of a watch to the loop, for one page. Of statuses only the newest counts."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._status = ""
        self._events: deque[str] = deque(maxlen=_MOST_EVENTS)
        self._end: str | None = None

    def put(self, *events: str, status: str = "", end: str | None = None) -> None:
        """On any thread. All are events of the stream. end: the last one, "" for none; nothing follows."""
        with self._lock:
            self._events.extend(events)
            self._status = status or self._status
            self._end = end if self._end is None else self._end
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            return  # the server has stopped, and with it the watch's client

    async def wait(self, limit_s: float) -> None:
        """Until there is something, or the time is up."""
        try:
            async with asyncio.timeout(limit_s):
                await self._arrived.wait()
        except TimeoutError:
            return

    def take(self) -> tuple[str, bool]:
        """Everything that has arrived, and whether it is the last."""
        self._arrived.clear()
        with self._lock:
            text, self._status = "".join((*self._events, self._status, self._end or "")), ""
            self._events.clear()
            return text, self._end is not None


class SharedWatch:
    """Of one job. `run` on a thread; the rest on any."""

    def __init__(self, client: Client, key: str) -> None:
        self._client, self._key = client, key
        self._lock = threading.Lock()
        self._boxes: list[Mailbox] = []
        self._kept: KeptEvents[str] = KeptEvents()  # for pages that come later
        self._status = ""
        self._is_over = False

    def join(self, box: Mailbox) -> bool:
        """A page gets what the leader keeps, as if the watch were its own. False: the watch is over."""
        with self._lock:
            if self._is_over:
                return False
            self._boxes.append(box)
            box.put(*self._kept, status=self._status)
            return True

    def leave(self, box: Mailbox) -> bool:
        """Whether it was the last page."""
        with self._lock:
            self._boxes.remove(box)
            return not self._boxes

    def run(self) -> None:
        """Until the job has ended, or no page is left."""
        end = ""
        try:
            end = sent("end", {}) if self._watch() else ""
        except ClientError as error:
            self._say(failure(refusal_of(error)))
        finally:
            with self._lock:
                self._is_over = True
                for box in self._boxes:
                    box.put(end=end)

    def _watch(self) -> bool:
        """Whether the job has ended."""
        newest: JobStatus | None = None  # not made into text yet
        due_s = 0.0
        watch = self._client.watch(self._key, lambda reason: self._say(sent("lost", {"reason": reason})))
        try:
            while self._is_wanted() and not watch.ended:
                limit_ms = _POLL_MS if newest is None else max(0.0, due_s - time.monotonic()) * 1_000
                update = watch.poll(limit_ms)
                if isinstance(update, JobEvent):
                    self._keep(update)
                elif update is not None:
                    newest = update
                if newest is not None and (watch.ended or time.monotonic() >= due_s):
                    self._show(newest)
                    newest, due_s = None, time.monotonic() + STATUS_EVERY_S
            return bool(watch.ended)
        finally:
            watch.close()

    def _is_wanted(self) -> bool:
        """False ends it for good."""
        with self._lock:
            self._is_over = not self._boxes
            return not self._is_over

    def _keep(self, event: JobEvent) -> None:
        text = sent("event", event_json(event))
        with self._lock:
            self._kept.add(event, text)
            for box in self._boxes:
                box.put(text)

    def _show(self, status: JobStatus) -> None:
        text = sent("status", live_json(status))
        with self._lock:
            self._status = text
            for box in self._boxes:
                box.put(status=text)

    def _say(self, text: str) -> None:
        """To the pages that are there now."""
        with self._lock:
            for box in self._boxes:
                box.put(text)
