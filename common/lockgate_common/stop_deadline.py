"""A process that was asked to stop ends, whatever a storage, a JVM or a library makes it wait for."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import threading
from collections.abc import Iterator

log = logging.getLogger(__name__)


@contextlib.contextmanager
def ends_within(seconds: float) -> Iterator[None]:
    """The block gets so many seconds. Then the stack of every thread goes to stderr and the process ends, status 1."""
    timer = threading.Timer(seconds, _end, (seconds,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(seconds: float) -> None:
    log.critical("this process has not stopped within %g s; it ends now, with every thread where it is", seconds)
    faulthandler.dump_traceback()
    logging.shutdown()
    os._exit(1)
