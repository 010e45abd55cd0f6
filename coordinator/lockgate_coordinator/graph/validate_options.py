"""Validates the options of a job."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import assert_never

from lockgate_proto.loops import loops
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    ExponentialRestart,
    FailureRateRestart,
    FilesystemBackend,
    FixedDelayRestart,
    JobGraph,
    KafkaSink,
    KafkaWriteMode,
    MemoryBackend,
    NoRestart,
    OnError,
    RocksdbBackend,
    StateBackend,
    StragglerReplacement,
)

from lockgate_coordinator.graph.normalize import Strategy

MAX_INLINE_STATE_BYTES = 32 * 1024 * 1024
"""Of one subtask: half of what fits into one message, which its acknowledgement is."""

MAX_FULL_EVERY = 1_000
MIN_ROCKSDB_BYTES = 16 * 1024 * 1024

LEAST_FACTOR = 1.5
LEAST_WINDOW_MS = 1_000

MAX_CONCURRENT = 100
"""Checkpoints in flight: each keeps a frozen state in memory until it is stored."""

MAX_REPLICAS = 8

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|/")


def option_problems(graph: JobGraph) -> Iterator[str]:
    """Every problem of checkpoint options, restart strategy and state backend. graph: normalized."""
    if graph.checkpoints is not None:
        yield from _checkpoints(graph.checkpoints)
    if graph.restart is not None and graph.restart.strategy is not None:
        yield from _restart(graph.restart.strategy)
    if graph.straggler_replacement is not None:
        yield from _stragglers(graph.straggler_replacement)
    if not 0 <= graph.standby_replicas <= MAX_REPLICAS:
        yield (
            f"The job's standby_replicas is {graph.standby_replicas}: it must be between 0 and {MAX_REPLICAS}, the "
            f"number of task managers with free slots that keep copies of its newest snapshot."
        )
    yield from _at_most_once(graph)
    choice = graph.state_backend or StateBackend()
    backend = choice.backend
    if not 0 <= choice.full_every <= MAX_FULL_EVERY:
        yield (
            f"The state backend's full_every is {choice.full_every}: it must be between 0 and {MAX_FULL_EVERY}, "
            f"because a restore reads every increment since the last full snapshot."
        )
    if isinstance(backend, MemoryBackend):
        yield from _memory(backend, graph)
    if isinstance(backend, FilesystemBackend | RocksdbBackend) and backend.uri and not _ABSOLUTE.match(backend.uri):
        name = "rocksdb" if isinstance(backend, RocksdbBackend) else "filesystem"
        yield (
            f"The {name} backend's uri is '{backend.uri}': give a URI or an absolute path that every process of "
            f"the cluster reaches."
        )
    if isinstance(backend, RocksdbBackend):
        yield from _rocksdb(backend, choice)
    elif choice.binary_diff and choice.full_every <= 1:
        yield (
            "The state backend's binary_diff is set and its full_every is not: differences are stored in the snapshots "
            "between two full ones, so set full_every, to 10 for example, or leave binary_diff out."
        )


def _memory(backend: MemoryBackend, graph: JobGraph) -> Iterator[str]:
    is_unaligned = graph.checkpoints is not None and graph.checkpoints.mode is CheckpointMode.UNALIGNED
    has_channels = is_unaligned or bool(loops(graph))
    most = MAX_INLINE_STATE_BYTES // 2 if has_channels else MAX_INLINE_STATE_BYTES
    if not 0 <= backend.max_state_bytes <= most:
        where = "in the mode UNALIGNED" if is_unaligned else "in a loop"
        besides = f", {where} with the same amount of records in flight" if has_channels else ""
        yield (
            f"The memory backend's max_state_bytes is {backend.max_state_bytes}: it must be between 0 (for 16 MiB) "
            f"and {most}, because the state travels inside messages{besides}. Use the filesystem backend for more."
        )


def _rocksdb(backend: RocksdbBackend, choice: StateBackend) -> Iterator[str]:
    if not backend.memory_bytes >= 0 or 0 < backend.memory_bytes < MIN_ROCKSDB_BYTES:
        yield (
            f"The rocksdb backend's memory_bytes is {backend.memory_bytes}: use 0 (for 128 MiB) or at least "
            f"{MIN_ROCKSDB_BYTES}."
        )
    if choice.full_every > 1:
        yield (
            f"The state backend's full_every is {choice.full_every}: snapshots of rocksdb always hold what is new and "
            f"nothing else, so leave it out."
        )
    if choice.binary_diff:
        yield (
            "The state backend's binary_diff is set: snapshots of rocksdb are made of its tables, of which they store "
            "the new ones, and not of values that could be compared, so leave it out."
        )


_NOT_NEGATIVE = ("interval_ms", "timeout_ms", "min_pause_ms", "tolerable_failures", "retained", "aligned_timeout_ms")


def _checkpoints(options: CheckpointOptions) -> Iterator[str]:
    for name in _NOT_NEGATIVE:
        value = getattr(options, name)
        if value < 0:
            yield f"The checkpoint option {name} is {value}: it cannot be negative."
    if not 0 <= options.max_concurrent <= MAX_CONCURRENT:
        yield f"The checkpoint option max_concurrent is {options.max_concurrent}: its range is 0 to {MAX_CONCURRENT}."
    elif options.max_concurrent > 1 and options.mode is CheckpointMode.STOP_THE_WORLD:
        yield (
            f"The checkpoint option max_concurrent is {options.max_concurrent} in the mode STOP_THE_WORLD, in which "
            f"the sources stop during a checkpoint: leave it out."
        )
    if options.aligned_timeout_ms > 0 and options.mode is not CheckpointMode.UNALIGNED:
        yield "The checkpoint option aligned_timeout_ms is set: alignments time out only in the mode UNALIGNED."


def _at_most_once(graph: JobGraph) -> Iterator[str]:
    """What would process a record twice, or lose records without a failure."""
    if graph.checkpoints is None or graph.checkpoints.mode is not CheckpointMode.AT_MOST_ONCE:
        return
    if loops(graph):
        yield (
            "The job has a loop, and checkpoints at most once: a snapshot holds the records that circulate, and a "
            "restart would process them again; use EXACTLY_ONCE or UNALIGNED."
        )
    if graph.straggler_replacement is not None:
        yield (
            "The job replaces stragglers, and checkpoints at most once: each replacement is a restart, which would "
            "lose records; leave straggler_replacement out."
        )
    for operator in (operator for vertex in graph.vertices for operator in vertex.operators):
        if operator.on_error in (OnError.SKIP, OnError.DEAD_LETTER):
            yield (
                f"Operator '{operator.id}' skips records that fail, and the job checkpoints at most once: a batch is "
                f"run again to find them, so leave on_error out, or filter such records out before."
            )
        if isinstance(operator.kind, KafkaSink) and operator.kind.mode is KafkaWriteMode.KAFKA_AT_LEAST_ONCE:
            yield (
                f"The sink '{operator.id}' writes at least once, and the job checkpoints at most once: give the sink "
                f"the mode KAFKA_EXACTLY_ONCE, whose records appear with their checkpoint and only then."
            )


def _restart(strategy: Strategy) -> Iterator[str]:
    match strategy:
        case ExponentialRestart(multiplier=multiplier, jitter=jitter, initial_ms=initial_ms, max_ms=max_ms):
            yield from _not_negative(strategy, "initial_ms", "max_ms", "reset_after_ms")
            if not math.isfinite(multiplier) or multiplier < 1:
                yield f"The restart strategy's multiplier is {multiplier}: it must be at least 1."
            if jitter is not None and not 0 <= jitter <= 1:
                yield f"The restart strategy's jitter is {jitter}: it must be between 0 and 1."
            if 0 <= max_ms < initial_ms:
                yield f"The restart strategy's max_ms {max_ms} is below its initial_ms {initial_ms}."
        case FixedDelayRestart():
            yield from _not_negative(strategy, "attempts", "delay_ms")
        case FailureRateRestart():
            yield from _not_negative(strategy, "failures", "interval_ms", "delay_ms")
        case NoRestart():
            pass
        case _:
            assert_never(strategy)


def _not_negative(strategy: Strategy, *names: str) -> Iterator[str]:
    for name in names:
        value = getattr(strategy, name)
        if value < 0:
            yield f"The restart strategy's {name} is {value}: it cannot be negative."


def _stragglers(option: StragglerReplacement) -> Iterator[str]:
    if not math.isfinite(option.factor) or option.factor < LEAST_FACTOR:
        yield (
            f"The straggler replacement's factor is {option.factor:g}: it must be at least {LEAST_FACTOR}, because "
            f"subtasks of one vertex never take exactly the same time."
        )
    for name in ("window_ms", "pause_ms"):
        value = getattr(option, name)
        if value < LEAST_WINDOW_MS:
            yield f"The straggler replacement's {name} is {value}: it must be at least {LEAST_WINDOW_MS}."
