"""Lets a process of this machine yield the processors to others.

Linux keeps the niceness of each thread, and a new thread or process inherits that of the one that starts it. Without
privileges it can only rise.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from lockgate_taskmanager.spark.errors import EngineError

_HIGHEST = 19


def raise_niceness(pid: int, niceness: int) -> None:
    """Makes all threads of a process nicer than the calling thread, and those that they start from now on.

    niceness: added to that of the calling thread. Raises EngineError where the system does not do that.
    """
    if not sys.platform.startswith("linux"):
        raise EngineError("spark_niceness needs Linux, which keeps the niceness of each thread: leave it at 0 here")
    wanted = min(_HIGHEST, os.getpriority(os.PRIO_PROCESS, 0) + niceness)
    try:
        while _raised(pid, wanted):  # one that was not nicer yet may have started another meanwhile
            pass
    except OSError as error:
        raise EngineError(f"spark_niceness cannot be set: {error}; leave it at 0 here") from error


def _raised(pid: int, wanted: int) -> bool:
    """Whether a thread was not that nice before."""
    is_new = False
    with suppress(FileNotFoundError):  # the process has ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(ProcessLookupError):  # the thread has ended
                if os.getpriority(os.PRIO_PROCESS, int(thread.name)) < wanted:
                    os.setpriority(os.PRIO_PROCESS, int(thread.name), wanted)
                    is_new = True
    return is_new
