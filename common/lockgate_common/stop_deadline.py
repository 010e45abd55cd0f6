"""A process that was asked to stop ends, whatever a storage, a JVM or a library makes it wait for."""

from __future__ import annotations

import faulthandler
import logging
import os
from contextlib import AbstractContextManager

from lockgate_common.overtime import overtime

log = logging.getLogger(__name__)


def ends_within(seconds: float) -> AbstractContextManager[None]:
    """The block gets so many seconds. Then the stack of every thread goes to stderr and the process ends, status 1."""
    return overtime(seconds, lambda: _end(seconds))


def _end(seconds: float) -> None:
    log.critical(
        "this process has not stopped within %g s and ends now; the stacks below show what it waited for, such as a "
        "storage that does not answer: check that before the next start",
        seconds,
    )
    faulthandler.dump_traceback()
    logging.shutdown()
    os._exit(1)
