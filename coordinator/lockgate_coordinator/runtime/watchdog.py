"""Ends a leader that makes no progress: its ZooKeeper session would keep its leadership alive."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

LIMIT_S = 10.0  # calls take milliseconds
_LOOKS = 10  # checks within the limit


class Watched(Protocol):
    """A thread that runs queued calls: Actor, LoopThread."""

    @property
    def ident(self) -> int | None:
        """The thread's id, for its stack."""
        ...

    def tell(self, call: Callable[[], None]) -> bool:
        """Queues a call. False when the thread has ended."""
        ...


class Watchdog:
    """Checks repeatedly that a thread still runs its calls.

    asked --an answer--> pause --> asked
      +-----no answer in `limit_s`--> on_stuck, once
    """

    def __init__(self, watched: Watched, does: str, on_stuck: Callable[[], None], limit_s: float | None = None) -> None:
        """does: the purpose of the thread, as in "the thread that decides"; limit_s: None for LIMIT_S.

        on_stuck: called on the watchdog's thread, after the stack was logged.
        """
        self._watched = watched
        self._does = does
        self._on_stuck = on_stuck
        self._limit_s = LIMIT_S if limit_s is None else limit_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watchdog of what {does}", daemon=True)

    def start(self) -> None:
        """Starts the checks."""
        self._thread.start()

    def stop(self) -> None:
        """Stops the checks; call it before the actor is stopped."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._limit_s / _LOOKS):
            answered = threading.Event()
            if not self._watched.tell(answered.set):
                return  # it was stopped
            if not self._is_answered(answered):
                where = _stack_of(self._watched.ident)
                message = "the thread that %s has been stuck for %g s, and is at:\n%s"
                log.critical(message, self._does, self._limit_s, where)
                self._on_stuck()
                return

    def _is_answered(self, answered: threading.Event) -> bool:
        """Checks several times: a process that was frozen as a whole, say by SIGSTOP, misses only one of them."""
        return any(answered.wait(self._limit_s / _LOOKS) or self._stopping.is_set() for _ in range(_LOOKS))


def end_process() -> None:
    """Ends the process at once: a standby finds the port closed and takes over, and a supervisor restarts this one."""
    logging.shutdown()
    os._exit(1)


def _stack_of(thread: int | None) -> str:
    frame = sys._current_frames().get(thread or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(nowhere: it has ended)"
