"""Startup, until Spark is warm: nothing depends on this process yet, so SIGTERM and SIGINT end it at once.

starting --asked to stop--> quick clean-up --> exit code 0
   |
   +-----over--> signals are delivered to the running server
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

log = logging.getLogger(__name__)

UNDO_S = 2.0


class Start:
    """Handles the signals from `asked` on a separate thread: the main thread may be inside Spark for ten seconds."""

    def __init__(self, asked: SimpleQueue[int], leave: Callable[[int], object] = os._exit) -> None:
        """leave: ends the process immediately; calls into Spark cannot be interrupted from there."""
        self._asked, self._leave = asked, leave
        self._undo: Callable[[], object] | None = None
        self._is_over = False
        self._deciding = threading.Lock()
        self._stop: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._run, name="signals", daemon=True).start()

    def set_cleanup(self, undo: Callable[[], object]) -> None:
        """Registers the clean-up of what was made so far; it gets UNDO_S."""
        self._undo = undo

    def over(self) -> SimpleQueue[int]:
        """Startup has finished: returns where signals arrive from now on.

        Never returns when a stop was already requested.
        """
        with self._deciding:
            self._is_over = True
        return self._stop

    def _run(self) -> None:
        while True:
            number = self._asked.get()
            with self._deciding:  # never released when the process exits: startup must not continue
                if not self._is_over:
                    self._end()
            self._stop.put(number)

    def _end(self) -> None:
        log.info("asked to stop while Spark starts")
        if self._undo is not None:
            undoing = threading.Thread(target=self._undo, name="undo", daemon=True)
            undoing.start()
            undoing.join(UNDO_S)
        logging.shutdown()
        self._leave(0)  # the JVM ends when its standard input closes
