"""Something to do while a block of code takes longer than it should."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def overtime(after_s: float, call: Callable[[], object]) -> Iterator[None]:
    """Makes `call` on a thread of its own if the block takes longer; leaves the block when that has returned."""
    timer = threading.Timer(after_s, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
