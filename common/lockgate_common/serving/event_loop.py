"""One thread with an asyncio loop, and bells by which other threads wake coroutines on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_END_S = 5.0


class LoopThread:
    """Owns the loop. `post` and `start_soon` may be called from any thread."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._posted: list[Callable[[], None]] = []
        self._is_awake = False
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def ident(self) -> int | None:
        """The thread's id, for its stack."""
        return self._thread.ident

    def post(self, call: Callable[[], None]) -> bool:
        """Runs `call` on the loop soon, in order. False when the loop has ended. Calls must not raise.

        Many calls posted together wake the loop once: an event of a job may be for thousands of watchers.
        """
        with self._lock:
            if self._is_closed:
                return False
            self._posted.append(call)
            if self._is_awake:
                return True
            self._is_awake = True
        self.loop.call_soon_threadsafe(self._take)
        return True

    tell = post

    def run_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """On the loop: runs `work` to its end, which `close` waits for."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        """Cancels running tasks, waits for them a moment, ends the thread. Idempotent."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(self._end(), self.loop)
        self._thread.join()
        self.loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def _take(self) -> None:
        with self._lock:
            posted, self._posted = self._posted, []
            self._is_awake = False
        for call in posted:
            call()

    async def _end(self) -> None:
        self._take()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S)
        self.loop.stop()


class Bell:
    """Wakes one coroutine. May be rung on any thread, before or during the wait; several rings count as one."""

    def __init__(self, thread: LoopThread) -> None:
        """On any thread."""
        self._thread = thread
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wakes the waiting coroutine."""
        self._thread.post(self._rung.set)

    async def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until it is rung; False after `timeout_s`. The caller then checks what has changed."""
        try:
            await asyncio.wait_for(self._rung.wait(), timeout_s)
        except TimeoutError:
            return False
        self._rung.clear()
        return True


async def settled(answer: Future[T], thread: LoopThread, timeout_s: float | None) -> T:
    """The outcome of another thread's future, which cancelling this does not cancel. Raises TimeoutError."""
    if answer.done():
        return answer.result()
    bell = Bell(thread)
    answer.add_done_callback(lambda _: bell.ring())
    if not answer.done() and not await bell.wait(timeout_s):
        raise TimeoutError
    return answer.result()
