"""One key and window whose records may be too many for memory: named before its call, and in the error of the call."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from lockgate_common.amounts import size_text

from lockgate_taskmanager.spark.functions.rows import shown
from lockgate_taskmanager.spark.keyed.window_runner import Bounds
from lockgate_taskmanager.state.contents.window_contents import Calls
from lockgate_taskmanager.task.program import Canceled, DataError, ProgramError, UserCodeFailed, UserError

log = logging.getLogger(__name__)

LARGE_BYTES = 256 << 20
"""As columns. Python objects take several times as much."""
_OUT_OF_MEMORY = ("MemoryError", "OutOfMemoryError")
_ADVICE = (
    "all records of one key and window have to fit into the memory of the task manager and of Spark's Python worker:"
    " use an aggregate or a process function, a shorter window or a finer key, or give them more memory"
)


@contextmanager
def large_window_named(
    calls: Sequence[Calls], keys: Sequence[str], where: str, window: Callable[[int, int], object] = Bounds
) -> Iterator[None]:
    """Around the calls of a portion. keys: columns; where: the operator in messages; window: from its start and end.

    The log names a large window beforehand: a process that the system ends for its memory cannot say it any more.
    Raises UserCodeFailed in place of an error for which the size may be the reason.
    """
    large = _large(calls, keys, where, window)
    if not large:
        yield
        return
    log.warning("%s; %s", large, _ADVICE)
    try:
        yield
    except Canceled:
        raise
    except (ProgramError, MemoryError, pa.ArrowException) as error:
        says = str(error)
        if isinstance(error, DataError | UserError) and not any(name in says for name in _OUT_OF_MEMORY):
            raise  # the function itself has a reason
        raise UserCodeFailed(f"{large}, which failed ({type(error).__name__}: {says}); {_ADVICE}") from error


def _large(calls: Sequence[Calls], keys: Sequence[str], where: str, window: Callable[[int, int], object]) -> str:
    """Names the largest key and window; "" where none is large."""
    for some in calls:
        if some.rows.nbytes < LARGE_BYTES:
            continue
        _, firsts, counts = np.unique(some.numbers, return_index=True, return_counts=True)
        largest = int(counts.argmax())
        first, count = int(firsts[largest]), int(counts[largest])
        size_bytes = some.rows.nbytes * count // some.rows.num_rows
        if size_bytes < LARGE_BYTES:
            continue
        found = [some.rows.column(name)[first].as_py() for name in keys]
        key = shown(found[0] if len(found) == 1 else tuple(found))
        bounds = window(int(some.starts[first]), int(some.ends[first]))
        return (
            f"{where}: key {key} has {count:,} records ({size_text(size_bytes)}) in the window"
            f" {bounds}, all for one call of the function of windows"
        )
    return ""
