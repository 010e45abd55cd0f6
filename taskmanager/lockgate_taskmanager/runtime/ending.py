"""Ends cancelled subtasks: they are interrupted until their threads have ended.

An interruption stops what is running at that moment. A subtask that is about to start a Spark job may have passed its
cancellation check already, and then starts the job after the interruption: on a busy machine it plans for hundreds of
milliseconds before. The same subtask of the next attempt waits for its end. So interruptions follow each other closely
at first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

CLOSE_S = 0.9
"""So long interruptions follow closely. After a second they also end the author's code, which may have to clean up."""
SHORT_PAUSE_S, LONG_PAUSE_S = 0.05, 0.75


def pause_s(elapsed_s: float) -> float:
    """Until the next interruption. elapsed_s: since the first."""
    return SHORT_PAUSE_S if elapsed_s < CLOSE_S else LONG_PAUSE_S


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
    began = time.monotonic()
    while tasks:
        now = time.monotonic()
        until = now + pause_s(now - began)
        tasks = [task for task in tasks if not task.join(max(0.0, until - time.monotonic()))]
        for task in tasks:
            task.interrupt()
