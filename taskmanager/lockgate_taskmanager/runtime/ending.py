"""Ends cancelled subtasks: they are interrupted until their threads have ended.

An interruption stops what is running at that moment. A subtask that is about to start a Spark job may have passed its
cancellation check already, and then starts the job after the interruption.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Interruptible(Protocol):
    """A subtask, or threads that work for some; SubtaskTask and BackgroundThreads have this shape."""

    def interrupt(self) -> None:
        """Stops what is running at this moment. Never raises."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Waits for the end. False on timeout."""
        ...


def end_in_background(tasks: Sequence[Interruptible], name: str) -> None:
    """Returns at once. tasks: already cancelled, and interrupted once."""
    if not tasks:
        return
    threading.Thread(target=_end, args=(tuple(tasks),), name=f"end-{name}", daemon=True).start()


def _end(tasks: Sequence[Interruptible]) -> None:
    pause_s = FIRST_PAUSE_S
    while tasks:
        until = time.monotonic() + pause_s
        tasks = [task for task in tasks if not task.join(max(0.0, until - time.monotonic()))]
        for task in tasks:
            task.interrupt()
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
