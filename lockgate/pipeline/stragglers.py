"""What happens to a subtask that is much slower than its siblings because of where it runs."""

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
    """For `Job(replace_stragglers=...)`; True there stands for `stragglers()`. Mistakes raise PipelineError.

    factor: how many times as long per record as its siblings a subtask may take, 3 when left out; window_ms: for so
    long without a break, 30 s; pause_ms: at least between two moves, 60 s, twice as long after each.
    """
    method = "stragglers()"
    return StragglerReplacement(
        factor=0.0 if factor is None else _factor(factor),
        window_ms=0 if window_ms is None else checks.whole(method, "window_ms", window_ms, LEAST_MS),
        pause_ms=0 if pause_ms is None else checks.whole(method, "pause_ms", pause_ms, LEAST_MS),
    )


def replacement(value: Any) -> StragglerReplacement | None:
    """What `Job` was given."""
    if isinstance(value, StragglerReplacement):
        return value
    if not isinstance(value, bool):
        raise PipelineError(f"Job: replace_stragglers takes True or stragglers(...), not {value!r}")
    return stragglers() if value else None


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST_FACTOR <= value <= MOST_FACTOR:
        raise PipelineError(
            f"stragglers(): factor must be a number from {LEAST_FACTOR} to {MOST_FACTOR}, not {value!r}"
        )
    return float(value)
