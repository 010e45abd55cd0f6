"""The time until Spark is warm: nobody counts on this process yet, so that SIGTERM and SIGINT end it at once.

starting --asked to stop--> undone, as far as that is quick --> the process is gone, exit code 0
   |
   +-----over--> whoever serves is told of the signals
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
    """Takes the signals from `asked` on a thread of its own: the main one may be within Spark for ten seconds."""

    def __init__(self, asked: SimpleQueue[int], leave: Callable[[int], object] = os._exit) -> None:
        """leave: ends the process without asking anybody; what is in Spark cannot be called back from there."""
        self._asked, self._leave = asked, leave
        self._undo: Callable[[], object] | None = None
        self._is_over = False
        self._deciding = threading.Lock()
        self._stop: SimpleQueue[int] = SimpleQueue()
        threading.Thread(target=self._run, name="signals", daemon=True).start()

    def undo_with(self, undo: Callable[[], object]) -> None:
        """What gives back what has been made so far; it gets UNDO_S."""
        self._undo = undo

    def over(self) -> SimpleQueue[int]:
        """The process serves from now on; where its signals arrive. Never returns when it is asked to stop already."""
        with self._deciding:
            self._is_over = True
        return self._stop

    def _run(self) -> None:
        while True:
            number = self._asked.get()
            with self._deciding:  # not given back by one that leaves: nothing else may come of the start
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
        self._leave(0)  # the JVM ends with its standard input
