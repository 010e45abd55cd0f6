"""Named points at which a chaos test makes this process die, as if the power had gone.

Inert unless `LOCKGATE_FAULT` is set: `name` kills at the first passage of that point, `name:3` at the third.
"""

from __future__ import annotations

import logging
import os
import signal
import threading

log = logging.getLogger(__name__)

VARIABLE = "LOCKGATE_FAULT"
POINTS = ("on-deploy", "before-upload", "after-upload", "before-ack", "before-commit", "after-commit")

_lock = threading.Lock()
_passed: dict[str, int] = {}


def point(name: str) -> None:
    """Kills this process with SIGKILL when the environment asks for it here; else does nothing."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    target, _, number = wanted.partition(":")
    if target != name:
        return
    with _lock:
        _passed[name] = _passed.get(name, 0) + 1
        is_reached = _passed[name] >= int(number or "1")
    if is_reached:
        log.warning("fault point %s reached: this process kills itself (%s=%s)", name, VARIABLE, wanted)
        os.kill(os.getpid(), signal.SIGKILL)
