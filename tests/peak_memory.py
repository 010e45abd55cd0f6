"""The memory that a call takes, measured in a process of its own: what a process has taken at most only rises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def peak_bytes(prepare: Callable[..., Callable[[], object]], *arguments: str) -> int:
    """By how much the call that `prepare` returns raises it. prepare: a function at the top of its module."""
    name = prepare.__name__
    program = f"""
from {__name__} import rise
from {prepare.__module__} import {name}
print(rise({name}(*{arguments!r})))
"""
    found = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True)
    return int(found.stdout)


def rise(call: Callable[[], object]) -> int:
    """Bytes, of this process."""
    before = _peak()
    call()
    return _peak() - before


def _peak() -> int:
    """Not `ru_maxrss`, which a process inherits from the one that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
