"""A leader whose thread of decisions is stuck must not keep its place: its heartbeats and its session go on alone."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable

from coordinator.runtime.actor import Actor

log = logging.getLogger(__name__)

LIMIT_S = 10.0  # calls take milliseconds
_LOOKS = 10  # within the limit


class Watchdog:
    """Asks the actor again and again whether it still gets to its calls.

    asked --an answer--> pause --> asked
      +-----no answer in `limit_s`--> on_stuck, once
    """

    def __init__(self, actor: Actor, on_stuck: Callable[[], None], limit_s: float | None = None) -> None:
        """limit_s: LIMIT_S unless told. on_stuck: called on the watchdog's thread, after the story was logged."""
        self._actor = actor
        self._on_stuck = on_stuck
        self._limit_s = LIMIT_S if limit_s is None else limit_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)

    def start(self) -> None:
        """Starts to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; before the actor is stopped."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._limit_s / _LOOKS):
            answered = threading.Event()
            if not self._actor.tell(answered.set):
                return  # it was stopped
            if not self._is_answered(answered):
                where = _stack_of(self._actor.ident)
                log.critical("the thread that decides has been stuck for %g s, and is at:\n%s", self._limit_s, where)
                self._on_stuck()
                return

    def _is_answered(self, answered: threading.Event) -> bool:
        """Looks several times: a process that was frozen as a whole, say by SIGSTOP, misses only one of them."""
        return any(answered.wait(self._limit_s / _LOOKS) or self._stopping.is_set() for _ in range(_LOOKS))


def end_process() -> None:
    """At once: whoever stands by finds the port closed and takes over, and a supervisor starts this one anew."""
    logging.shutdown()
    os._exit(1)


def _stack_of(thread: int | None) -> str:
    frame = sys._current_frames().get(thread or 0)
    return "".join(traceback.format_stack(frame)) if frame is not None else "(nowhere: it has ended)"
