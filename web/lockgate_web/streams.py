"""Server-sent events: what happens, until the page is closed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Executor
from typing import Any

from lockgate.client import ClientError
from lockgate_web.asked import Asked
from lockgate_web.shared_watch import STATUS_EVERY_S, Mailbox, SharedWatch, failure, sent
from lockgate_web.status_codes import refusal_of

_BEAT = ": beat\n\n"
_BEAT_S = 1.0  # something is sent at least as often, so that a page notices when its process is frozen
_OVERVIEW_EVERY_S = 1.0

Listing = Callable[[Asked], Any]


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
            yield failure(refusal)
            if refusal.status in (401, 403):
                return
        finally:
            call.cancel()
        await asyncio.sleep(_OVERVIEW_EVERY_S)


async def job_events(asked: Asked, threads: Executor) -> AsyncGenerator[str]:
    """`status`, `event`, `lost` when the leader is, `failure` and `end` at the end."""
    watches, box = asked.held.watches, Mailbox()
    watch = watches.get(asked.key)
    if watch is None or not watch.join(box):
        watch = watches[asked.key] = SharedWatch(asked.held.client, asked.key)
        watch.join(box)
        asyncio.get_running_loop().run_in_executor(threads, watch.run)
    try:
        sent_s, is_over = 0.0, False
        while not is_over:
            await box.wait(_BEAT_S)
            text, is_over = box.take()
            yield text or _BEAT
            pause_s = sent_s + STATUS_EVERY_S - time.monotonic()
            sent_s = time.monotonic()
            if pause_s > 0 and not is_over:
                await asyncio.sleep(pause_s)
    finally:
        if watch.leave(box) and watches.get(asked.key) is watch:
            del watches[asked.key]
