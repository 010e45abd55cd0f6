"""Named points at which a chaos test makes this process die, as if the power had gone, or freeze.

Inert unless `LOCKGATE_FAULT` is set: `name` kills at the first passage of that point, `name:3` at the third, and
`stop:name:3` stops it there with SIGSTOP, until it receives SIGCONT. With `@FOLDER` in its place, each process looks
into the file of that folder whose name is its process id, where the same may be written while it runs: `plant`.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Collection
from pathlib import Path

log = logging.getLogger(__name__)

VARIABLE = "LOCKGATE_FAULT"
_STOP = "stop:"
_FOLDER = "@"


def folder_variable(folder: Path) -> str:
    """The value of the variable that lets faults be planted in processes that run."""
    return f"{_FOLDER}{folder}"


def plant(folder: Path, pid: int, fault: str | None) -> None:
    """Plants a fault in a process that has such a folder, in place of any other; passages count from now on.

    None takes it out again. The folder must lie on the same file system as its parent.
    """
    if fault is None:
        (folder / str(pid)).unlink(missing_ok=True)
    else:
        fresh = folder.with_name(f"{folder.name}.{pid}")
        fresh.write_text(fault, encoding="utf-8")
        fresh.replace(folder / str(pid))
    os.utime(folder)  # of two changes within one tick of the file system's clock the second would not be seen


class FaultPoints:
    """The points of one role. Thread-safe."""

    def __init__(self, names: Collection[str]) -> None:
        """names: all fault points of the role; the chaos tests try each of them."""
        self._names = frozenset(names)
        self._lock = threading.Lock()
        self._passed: dict[str, int] = {}
        self._changed_ns = -1  # when the folder was, as it was last read
        self._planted = ""

    def point(self, name: str) -> None:
        """Kills or stops this process if the environment asks for it here; otherwise does nothing.

        Raises ValueError for a name that is not among the role's: no test would ever try it.
        """
        if name not in self._names:
            raise ValueError(f"{name!r} is not one of the fault points {', '.join(sorted(self._names))}")
        wanted = os.environ.get(VARIABLE)
        if not wanted:
            return
        with self._lock:
            if wanted.startswith(_FOLDER):
                wanted = self._look(wanted.removeprefix(_FOLDER))
            is_stop = wanted.startswith(_STOP)
            target, _, number = wanted.removeprefix(_STOP).partition(":")
            if target != name:
                return
            passed = self._passed[name] = self._passed.get(name, 0) + 1
        if passed == int(number or "1"):
            deed = "stops" if is_stop else "kills"
            log.warning("fault point %s reached: this process %s itself (%s=%s)", name, deed, VARIABLE, wanted)
            # sent to the process, the signal might reach another thread first, and this one would pass the point
            if is_stop:
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    def _look(self, folder: str) -> str:
        """What is planted in this process; the folder is read only when it has changed."""
        changed_ns = os.stat(folder).st_mtime_ns
        if changed_ns != self._changed_ns:
            file = Path(folder, str(os.getpid()))
            planted = file.read_text(encoding="utf-8") if file.is_file() else ""
            if planted != self._planted:
                self._passed.clear()
            self._changed_ns, self._planted = changed_ns, planted
        return self._planted
