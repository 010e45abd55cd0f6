"""Stops a process at a moment at which it keeps no other one from a database of the drill."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from lockgate_common.clock import unix_us

_LOCKS = Path("/proc/locks")  # of Linux
_LIMIT_S = 5.0
_LOOK_EVERY_S = 0.005

_never = threading.Event()


def freeze(pid: int, folder: Path) -> int:
    """Sends SIGSTOP, and returns the wall clock in microseconds just before that. Raises OSError.

    SQLite's lock would stay with the process, and whatever took its place could not write: a fault of a database on a
    file, which a server's does not have. So a process that holds a lock on a file in the folder runs on for a moment.
    """
    deadline = time.monotonic() + _LIMIT_S
    while True:
        struck_us = unix_us()
        os.kill(pid, signal.SIGSTOP)
        while not _is_stopped(pid) and time.monotonic() < deadline:
            _never.wait(_LOOK_EVERY_S)
        if not _locked(pid) & _files(folder) or time.monotonic() > deadline:
            return struck_us
        os.kill(pid, signal.SIGCONT)
        _never.wait(_LOOK_EVERY_S)


def _is_stopped(pid: int) -> bool:
    """Also when it has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
    except FileNotFoundError:
        return True
    return state in "TZX"


def _locked(pid: int) -> set[int]:
    """Inodes of the files on which the process holds a lock, as far as the system says so."""
    if not _LOCKS.exists():
        return set()
    rows = (line.split() for line in _LOCKS.read_text(encoding="utf-8").splitlines())
    held = (row[1:] for row in rows if row[1] != "->")  # the others wait for one
    return {int(row[4].rpartition(":")[2]) for row in held if int(row[3]) == pid}


def _files(folder: Path) -> set[int]:
    """Inodes of the databases of its jobs."""
    return {file.stat().st_ino for file in folder.glob("*/*.db")}
