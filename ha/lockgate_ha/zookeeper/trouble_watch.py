"""TroubleWatch: why a process that was connected to ZooKeeper has no connection any more, where TLS is the reason."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from lockgate_ha.session import SessionState

logger = logging.getLogger(__name__)

_LOOK_EVERY_S = 1.0
SAY_EVERY_S = 60.0
THREAD = "zookeeper-trouble"


class TroubleWatch:
    """One for all sessions of a process. Before the first connection it is silent: the waiting code reports the reason.

    look: the reason in one sentence, "" when none can be seen; may be slow. A reason counts when it was found twice in
    a row: a server that is just starting or stopping may end a connection in any way.
    tell: called with each reason that counts, before the session is seen to be connected again; must only enqueue.
    """

    def __init__(self, look: Callable[[], str], tell: Callable[[str], None]) -> None:
        self._look = look
        self._tell = tell
        self._lock = threading.Lock()
        self._was_connected = False
        self._logged_s = -SAY_EVERY_S

    def session(self) -> Callable[[SessionState], None]:
        """Of a new session: to be called with each of its states, on any thread; returns at once."""
        over = threading.Event()
        if self._was_connected:
            self._begin(over)

        def observe(state: SessionState) -> None:
            nonlocal over
            with self._lock:
                over.set()
                self._was_connected |= state is SessionState.CONNECTED
            if state is SessionState.SUSPENDED:
                over = threading.Event()
                self._begin(over)

        return observe

    def _begin(self, over: threading.Event) -> None:
        threading.Thread(target=self._watch, args=(over,), name=THREAD, daemon=True).start()

    def _watch(self, over: threading.Event) -> None:
        before, pause_s = "", _LOOK_EVERY_S
        while not over.wait(pause_s):
            found = self._look()
            is_sure = bool(found) and found == before
            if is_sure:
                self._say(found, over)
            before, pause_s = found, SAY_EVERY_S if is_sure else _LOOK_EVERY_S

    def _say(self, why: str, over: threading.Event) -> None:
        with self._lock:
            if over.is_set():
                return
            self._tell(why)
            if time.monotonic() - self._logged_s < SAY_EVERY_S:
                return
            self._logged_s = time.monotonic()
        logger.warning("no connection to ZooKeeper: %s", why)
