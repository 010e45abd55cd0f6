"""Named points at which a chaos test makes this process die, as if the power had gone, or freeze.

Inert unless `LOCKGATE_FAULT` is set: `name` kills at the first passage of that point, `name:3` at the third, and
`stop:name:3` stops it there with SIGSTOP, until it receives SIGCONT. With `@FOLDER` in its place, each process looks
into the file of that folder whose name is its process id, where the same may be written while it runs: `plant`.

Other faults last for as long as they are planted: `clock:SECONDS` sets the wall clock of the process off
(`lockgate_common.clock`); `full:FOLDER` leaves no space for files below a folder, and `slow:SECONDS:FOLDER` makes each
write of one take so much longer (`lockgate_common.storage`).
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
_CLOCK = "clock:"
_FULL = "full:"
_SLOW = "slow:"
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


def clock_fault(seconds: int) -> str:
    """The wall clock of the process is ahead by so much; behind where it is negative."""
    return f"{_CLOCK}{seconds}"


def full_fault(folder: Path) -> str:
    """No file can be written to its end below the folder."""
    return f"{_FULL}{folder}"


def slow_fault(folder: Path, seconds: float) -> str:
    """Each file that is written below the folder takes so much longer."""
    return f"{_SLOW}{seconds:g}:{folder}"


def clock_offset_s() -> int:
    """How far the wall clock of this process is off."""
    wanted = _lasting_fault()
    return int(wanted.removeprefix(_CLOCK)) if wanted.startswith(_CLOCK) else 0


def is_full(path: str) -> bool:
    """Whether no space is left for a local file."""
    wanted = _lasting_fault()
    return wanted.startswith(_FULL) and Path(path).is_relative_to(wanted.removeprefix(_FULL))


def write_delay_s(path: str) -> float:
    """How much longer the write of a local file takes."""
    wanted = _lasting_fault()
    seconds, _, folder = wanted.removeprefix(_SLOW).partition(":")
    return float(seconds) if wanted.startswith(_SLOW) and Path(path).is_relative_to(folder) else 0.0


def _lasting_fault() -> str:
    """What the environment asks for now, "" for nothing."""
    return _lasting.read()[0] if os.environ.get(VARIABLE) else ""


class _Planted:
    """What the environment, or the folder that it names, asks this process for. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed_ns = -1  # when the folder was, as it was last read
        self._text = ""

    def read(self) -> tuple[str, bool]:
        """The fault, "" for none, and whether it is another one than at the last call. The folder is read only when
        it has changed.
        """
        wanted = os.environ.get(VARIABLE, "")
        if not wanted.startswith(_FOLDER):
            return wanted, False
        folder = wanted.removeprefix(_FOLDER)
        with self._lock:
            changed_ns, before = os.stat(folder).st_mtime_ns, self._text
            if changed_ns != self._changed_ns:
                file = Path(folder, str(os.getpid()))
                self._text = file.read_text(encoding="utf-8") if file.is_file() else ""
                self._changed_ns = changed_ns
            return self._text, self._text != before


_lasting = _Planted()


class FaultPoints:
    """The points of one role. Thread-safe."""

    def __init__(self, names: Collection[str]) -> None:
        """names: all fault points of the role; the chaos tests try each of them."""
        self._names = frozenset(names)
        self._lock = threading.Lock()
        self._passed: dict[str, int] = {}
        self._planted = _Planted()

    def point(self, name: str) -> None:
        """Kills or stops this process if the environment asks for it here; otherwise does nothing.

        Raises ValueError for a name that is not among the role's: no test would ever try it.
        """
        if name not in self._names:
            raise ValueError(f"{name!r} is not one of the fault points {', '.join(sorted(self._names))}")
        if not os.environ.get(VARIABLE):
            return
        with self._lock:
            wanted, is_other = self._planted.read()
            if is_other:
                self._passed.clear()
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
