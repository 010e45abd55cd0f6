"""A process that is slow, as on a host that is overbooked: most of the time it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator

_STOPPED_S, _RUNS_S = 0.16, 0.04


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Everything in the process group `pid` is slowed down to a fifth, until the block is left or the group is gone."""
    done = threading.Event()

    def run() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not done.is_set():
                os.killpg(pid, signal.SIGSTOP)
                done.wait(_STOPPED_S)
                os.killpg(pid, signal.SIGCONT)
                done.wait(_RUNS_S)

    thread = threading.Thread(target=run, name="slows", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
