"""The end of subtasks that were cancelled: they are interrupted until their threads have ended.

An interruption stops what runs at that moment. A subtask that was just about to start a Spark job has asked before
whether it may, and starts the job after the interruption.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Interruptible(Protocol):
    """A subtask; SubtaskTask has this shape."""

    def interrupt(self) -> None:
        """Stops what runs at this moment. Never raises."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Waits for the thread. False when it is still there."""
        ...


def end_in_background(tasks: Sequence[Interruptible], name: str) -> None:
    """Returns at once. tasks: cancelled, and interrupted once."""
    threading.Thread(target=_end, args=(tuple(tasks),), name=f"end-{name}", daemon=True).start()


def _end(tasks: Sequence[Interruptible]) -> None:
    pause_s = FIRST_PAUSE_S
    while tasks:
        until = time.monotonic() + pause_s
        tasks = [one for one in tasks if not one.join(max(0.0, until - time.monotonic()))]
        for one in tasks:
            one.interrupt()
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
