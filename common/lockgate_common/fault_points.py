"""Named points at which a chaos test makes this process die, as if the power had gone, or freeze.

Inert unless `LOCKGATE_FAULT` is set: `name` kills at the first passage of that point, `name:3` at the third, and
`stop:name:3` stops it there with SIGSTOP, until it receives SIGCONT.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Collection

log = logging.getLogger(__name__)

VARIABLE = "LOCKGATE_FAULT"
_STOP = "stop:"


class FaultPoints:
    """The points of one role. Thread-safe."""

    def __init__(self, names: Collection[str]) -> None:
        """names: all fault points of the role; the chaos tests try each of them."""
        self._names = frozenset(names)
        self._lock = threading.Lock()
        self._passed: dict[str, int] = {}

    def point(self, name: str) -> None:
        """Kills or stops this process if the environment asks for it here; otherwise does nothing.

        Raises ValueError for a name that is not among the role's: no test would ever try it.
        """
        if name not in self._names:
            raise ValueError(f"{name!r} is not one of the fault points {', '.join(sorted(self._names))}")
        wanted = os.environ.get(VARIABLE)
        if not wanted:
            return
        is_stop = wanted.startswith(_STOP)
        target, _, number = wanted.removeprefix(_STOP).partition(":")
        if target != name:
            return
        with self._lock:
            passed = self._passed[name] = self._passed.get(name, 0) + 1
        if passed == int(number or "1"):
            deed = "stops" if is_stop else "kills"
            log.warning("fault point %s reached: this process %s itself (%s=%s)", name, deed, VARIABLE, wanted)
            # sent to the process, the signal might reach another thread first, and this one would pass the point
            if is_stop:
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            else:
                os.kill(os.getpid(), signal.SIGKILL)
