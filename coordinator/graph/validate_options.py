"""What can be wrong with the options of a whole job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from lockgate_proto.messages import (
    CheckpointOptions,
    ExponentialRestart,
    FailureRateRestart,
    FilesystemBackend,
    FixedDelayRestart,
    JobGraph,
    MemoryBackend,
    StateBackend,
)

from coordinator.graph.normalize import Strategy

MAX_INLINE_STATE_BYTES = 32 * 1024 * 1024
"""Of one subtask: half of what fits into one message, which its acknowledgement is."""

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/")


def option_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of checkpoint options, restart strategy and state backend. graph: normalized."""
    if graph.checkpoints is not None:
        yield from _checkpoints(graph.checkpoints)
    if graph.restart is not None and graph.restart.strategy is not None:
        yield from _restart(graph.restart.strategy)
    backend = (graph.state_backend or StateBackend()).backend
    if isinstance(backend, MemoryBackend) and not 0 <= backend.max_state_bytes <= MAX_INLINE_STATE_BYTES:
        yield (
            f"The memory backend's max_state_bytes is {backend.max_state_bytes}: 0 (for 16 MiB) to "
            f"{MAX_INLINE_STATE_BYTES} are possible, because the state travels inside messages. "
            f"Use the filesystem backend for more."
        )
    if isinstance(backend, FilesystemBackend) and backend.uri and not _ABSOLUTE.match(backend.uri):
        yield (
            f"The filesystem backend's uri is '{backend.uri}': give a URI or an absolute path that every process of "
            f"the cluster reaches."
        )


def _checkpoints(options: CheckpointOptions) -> Iterator[str]:
    for name in ("interval_ms", "timeout_ms", "min_pause_ms", "tolerable_failures", "retained"):
        value = getattr(options, name)
        if value < 0:
            yield f"The checkpoint option {name} is {value}: it cannot be negative."


def _restart(strategy: Strategy) -> Iterator[str]:
    if isinstance(strategy, ExponentialRestart):
        yield from _not_negative(strategy, "initial_ms", "max_ms", "reset_after_ms")
        if not math.isfinite(strategy.multiplier) or strategy.multiplier < 1:
            yield f"The restart strategy's multiplier is {strategy.multiplier}: it has to be at least 1."
        if strategy.jitter is not None and not 0 <= strategy.jitter <= 1:
            yield f"The restart strategy's jitter is {strategy.jitter}: it has to lie between 0 and 1."
        if 0 <= strategy.max_ms < strategy.initial_ms:
            yield f"The restart strategy's max_ms {strategy.max_ms} is below its initial_ms {strategy.initial_ms}."
    elif isinstance(strategy, FixedDelayRestart):
        yield from _not_negative(strategy, "attempts", "delay_ms")
    elif isinstance(strategy, FailureRateRestart):
        yield from _not_negative(strategy, "failures", "interval_ms", "delay_ms")


def _not_negative(strategy: Strategy, *names: str) -> Iterator[str]:
    for name in names:
        value = getattr(strategy, name)
        if value < 0:
            yield f"The restart strategy's {name} is {value}: it cannot be negative."
