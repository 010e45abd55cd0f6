"""Replacement of a subtask that is much slower than its siblings because of the machine it runs on."""

from __future__ import annotations

from typing import Any

from lockgate_proto.messages import StragglerReplacement

from lockgate.pipeline import checks
from lockgate.pipeline.errors import PipelineError

LEAST_FACTOR, MOST_FACTOR = 1.5, 1_000.0
LEAST_MS = 1_000


def stragglers(
    factor: float | None = None, window_ms: int | None = None, pause_ms: int | None = None
) -> StragglerReplacement:
    """For `Job(replace_stragglers=...)`; True there means `stragglers()`. Errors raise PipelineError.

    factor: how many times as long per record as its siblings a subtask may take, 3 by default; window_ms: for how long
    without interruption, 30 s; pause_ms: minimum time between two moves, 60 s, doubled after each.
    """
    method = "stragglers()"
    return StragglerReplacement(
        factor=0.0 if factor is None else _factor(factor),
        window_ms=0 if window_ms is None else checks.whole(method, "window_ms", window_ms, LEAST_MS),
        pause_ms=0 if pause_ms is None else checks.whole(method, "pause_ms", pause_ms, LEAST_MS),
    )


def replacement(value: Any) -> StragglerReplacement | None:
    """The value passed to `Job`, as in the graph."""
    if isinstance(value, StragglerReplacement):
        return value
    if not isinstance(value, bool):
        raise PipelineError(f"Job: replace_stragglers must be True or stragglers(...), not {value!r}")
    return stragglers() if value else None


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_FACTOR <= value <= MOST_FACTOR:
        raise PipelineError(
            f"stragglers(): factor must be a number from {LEAST_FACTOR} to {MOST_FACTOR}, not {value!r}"
        )
    return float(value)
