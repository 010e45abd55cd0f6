"""Server-sent events: what happens, until the page is closed. One blocking thread of the cluster's client a stream."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from typing import Any

from lockgate_common.http.refusal import HttpRefusal
from lockgate_common.kept_events import MOST_EVENTS
from lockgate_proto.messages import JobEvent, JobStatus

from lockgate.client import ClientError
from lockgate.json_shapes import event_json
from lockgate_web.asked import Asked
from lockgate_web.live import live_json
from lockgate_web.status_codes import refusal_of

_BEAT = ": beat\n\n"
_BEAT_S = 1.0  # something is sent at least as often, so that a page notices when its process is frozen
_STATUS_EVERY_S = 0.3
_OVERVIEW_EVERY_S = 1.0
_POLL_MS = 250
_MOST_EVENTS = MOST_EVENTS + 1_000  # not sent yet, of one page: all that the leader keeps come at once

Listing = Callable[[Asked], Any]


def sent(kind: str, value: Any) -> str:
    """One event of a stream."""
    return f"event: {kind}\ndata: {json.dumps(value)}\n\n"


def _failure(refusal: HttpRefusal) -> str:
    return sent("failure", {"status": refusal.status, "error": str(refusal)})


async def overview_events(asked: Asked, overview: Listing, threads: Executor) -> AsyncGenerator[str]:
    """`overview` about once a second, `failure` in place of it; ends when the caller is not let in any more."""
    loop = asyncio.get_running_loop()
    while True:
        call = loop.run_in_executor(threads, overview, asked)
        try:
            while not (await asyncio.wait((call,), timeout=_BEAT_S))[0]:
                yield _BEAT
            yield sent("overview", call.result())
        except ClientError as error:
            refusal = refusal_of(error)
            yield _failure(refusal)
            if refusal.status in (401, 403):
                return
        finally:
            call.cancel()
        await asyncio.sleep(_OVERVIEW_EVERY_S)


class _Mailbox:
    """From the thread of a watch to the loop. Of statuses only the newest counts."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._status: JobStatus | None = None
        self._events: deque[str] = deque(maxlen=_MOST_EVENTS)
        self.closed = threading.Event()
        self.has_ended = False

    def put(self, update: JobStatus | JobEvent) -> None:
        """On the thread."""
        with self._lock:
            if isinstance(update, JobStatus):
                self._status = update
            else:
                self._events.append(sent("event", event_json(update)))
        self._ring()

    def say(self, text: str) -> None:
        """On the thread. text: an event of the stream."""
        with self._lock:
            self._events.append(text)
        self._ring()

    async def wait(self, limit_s: float) -> None:
        """Until there is something, or the time is up."""
        try:
            async with asyncio.timeout(limit_s):
                await self._arrived.wait()
        except TimeoutError:
            return

    def take(self) -> tuple[str, JobStatus | None]:
        """Everything that has arrived."""
        self._arrived.clear()
        with self._lock:
            text, status = "".join(self._events), self._status
            self._events.clear()
            self._status = None
        return text, status

    def _ring(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the server has stopped
            self.closed.set()


async def job_events(asked: Asked, threads: Executor) -> AsyncGenerator[str]:
    """`status`, `event`, `lost` when the leader is, `failure` and `end` at the end."""
    box = _Mailbox()
    watching = asyncio.get_running_loop().run_in_executor(threads, _watch, asked, box)
    try:
        sent_s = 0.0
        while not watching.done():
            await box.wait(_BEAT_S)
            text, status = box.take()
            if status is not None:
                text += sent("status", live_json(status))
            yield text or _BEAT
            pause_s = sent_s + _STATUS_EVERY_S - time.monotonic()
            sent_s = time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
        text, status = box.take()
        text += sent("status", live_json(status)) if status is not None else ""
        yield text + (sent("end", {}) if box.has_ended else "")
    finally:
        box.closed.set()


def _watch(asked: Asked, box: _Mailbox) -> None:
    watch = asked.held.client.watch(asked.key, lambda reason: box.say(sent("lost", {"reason": reason})))
    try:
        while not box.closed.is_set():
            update = watch.poll(_POLL_MS)
            if update is not None:
                box.put(update)
            if watch.ended:
                box.has_ended = True
                return
    except ClientError as error:
        box.say(_failure(refusal_of(error)))
    finally:
        watch.close()
