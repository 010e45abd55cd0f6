"""Fills in defaults, so that no other code has to know the meaning of 0. Idempotent."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from lockgate_proto.event_times import DEFAULT_MAX_AHEAD_MS
from lockgate_proto.loops import is_feedback, spread_of
from lockgate_proto.messages import (
    CheckpointMode,
    CheckpointOptions,
    ConsoleSink,
    Edge,
    EventTime,
    ExponentialRestart,
    FailureRateRestart,
    FileSource,
    FilesystemBackend,
    FixedDelayRestart,
    GeneratorSource,
    JobGraph,
    JobRecord,
    KafkaSink,
    KafkaSource,
    KafkaStart,
    KafkaWriteMode,
    LeaderFailover,
    MemoryBackend,
    NoRestart,
    Operator,
    PythonSource,
    RestartStrategy,
    RocksdbBackend,
    SqlSink,
    SqlWriteMode,
    StateBackend,
    StragglerReplacement,
    Vertex,
)
from lockgate_proto.operators import COMMITS_TOPIC

Strategy = ExponentialRestart | FixedDelayRestart | FailureRateRestart | NoRestart

DEFAULT_MAX_PARALLELISM = 128
DEFAULT_INTERVAL_MS = 1_000
DEFAULT_TIMEOUT_MS = 60_000
DEFAULT_RETAINED = 1
DEFAULT_POLL_INTERVAL_MS = 1_000
DEFAULT_KAFKA_POLL_INTERVAL_MS = 30_000
DEFAULT_CONSOLE_ROWS = 20
DEFAULT_MEMORY_STATE_BYTES = 16 * 1024 * 1024
DEFAULT_ROCKSDB_BYTES = 128 * 1024 * 1024
DEFAULT_EXPONENTIAL = ExponentialRestart(
    initial_ms=50, max_ms=10_000, multiplier=2.0, jitter=0.2, reset_after_ms=30_000
)
DEFAULT_FAILOVER = LeaderFailover.LEADER_FAILOVER_REATTACH
"""Of new jobs. It is stored in their records: jobs that were submitted before it was the default keep theirs."""
DEFAULT_DELAY_MS = 1_000
DEFAULT_FAILURES = 3
DEFAULT_FAILURE_INTERVAL_MS = 60_000
DEFAULT_STRAGGLERS = StragglerReplacement(factor=3.0, window_ms=30_000, pause_ms=60_000)


def normalize(graph: JobGraph) -> JobGraph:
    """The same graph with every default filled in. Does not validate."""
    return replace(
        graph,
        vertices=tuple(_vertex(vertex) for vertex in graph.vertices),
        edges=tuple(_edge(edge) for edge in graph.edges),
        checkpoints=_checkpoints(graph.checkpoints or CheckpointOptions()),
        restart=RestartStrategy(strategy=_restart(graph.restart or RestartStrategy())),
        state_backend=_state_backend(graph.state_backend or StateBackend()),
        straggler_replacement=_stragglers(graph.straggler_replacement),
    )


def of_record(graph: JobGraph, record: JobRecord) -> JobGraph:
    """`normalize`, with the defaults that were in force when the job was submitted."""
    unset = graph.leader_failover is LeaderFailover.LEADER_FAILOVER_UNSPECIFIED
    failover = record.leader_failover if unset else graph.leader_failover
    return replace(normalize(graph), leader_failover=failover)


def _vertex(vertex: Vertex) -> Vertex:
    return replace(
        vertex,
        name=vertex.name or vertex.id,
        max_parallelism=vertex.max_parallelism or DEFAULT_MAX_PARALLELISM,
        operators=tuple(_operator(operator, vertex.parallelism) for operator in vertex.operators),
    )


def _edge(edge: Edge) -> Edge:
    return replace(edge, feedback=spread_of(edge)) if is_feedback(edge) else edge


def _operator(operator: Operator, parallelism: int) -> Operator:
    kind = operator.kind
    match kind:
        case FileSource(continuous=True) | PythonSource(continuous=True):
            kind = replace(kind, poll_interval_ms=kind.poll_interval_ms or DEFAULT_POLL_INTERVAL_MS)
        case GeneratorSource():
            kind = replace(kind, partitions=kind.partitions or parallelism)
        case EventTime():
            kind = replace(kind, max_ahead_ms=kind.max_ahead_ms or DEFAULT_MAX_AHEAD_MS)
        case ConsoleSink():
            kind = replace(kind, rows=kind.rows or DEFAULT_CONSOLE_ROWS)
        case SqlSink():
            kind = replace(kind, mode=kind.mode or SqlWriteMode.UPSERT)
        case KafkaSource():
            interval_ms = kind.poll_interval_ms or (0 if kind.bounded else DEFAULT_KAFKA_POLL_INTERVAL_MS)
            kind = replace(kind, starting=kind.starting or KafkaStart.KAFKA_EARLIEST, poll_interval_ms=interval_ms)
        case KafkaSink():
            mode = kind.mode or KafkaWriteMode.KAFKA_EXACTLY_ONCE
            kind = replace(kind, mode=mode, commits_topic=kind.commits_topic or COMMITS_TOPIC)
        case _:
            pass  # has no defaults
    return replace(operator, name=operator.name or operator.id, kind=kind)


def _checkpoints(options: CheckpointOptions) -> CheckpointOptions:
    return replace(
        options,
        interval_ms=options.interval_ms or DEFAULT_INTERVAL_MS,
        timeout_ms=options.timeout_ms or DEFAULT_TIMEOUT_MS,
        retained=options.retained or DEFAULT_RETAINED,
        mode=options.mode or CheckpointMode.EXACTLY_ONCE,
        max_concurrent=options.max_concurrent or 1,
    )


def _restart(restart: RestartStrategy) -> Strategy:
    strategy = restart.strategy
    match strategy:
        case None:
            return DEFAULT_EXPONENTIAL
        case ExponentialRestart():
            return replace(
                strategy,
                initial_ms=strategy.initial_ms or DEFAULT_EXPONENTIAL.initial_ms,
                max_ms=strategy.max_ms or max(DEFAULT_EXPONENTIAL.max_ms, strategy.initial_ms),
                multiplier=strategy.multiplier or DEFAULT_EXPONENTIAL.multiplier,
                jitter=DEFAULT_EXPONENTIAL.jitter if strategy.jitter is None else strategy.jitter,
                reset_after_ms=strategy.reset_after_ms or DEFAULT_EXPONENTIAL.reset_after_ms,
            )
        case FixedDelayRestart():
            return replace(strategy, delay_ms=strategy.delay_ms or DEFAULT_DELAY_MS)
        case FailureRateRestart():
            return replace(
                strategy,
                failures=strategy.failures or DEFAULT_FAILURES,
                interval_ms=strategy.interval_ms or DEFAULT_FAILURE_INTERVAL_MS,
                delay_ms=strategy.delay_ms or DEFAULT_DELAY_MS,
            )
        case NoRestart():
            return strategy
        case _:
            assert_never(strategy)


def _state_backend(choice: StateBackend) -> StateBackend:
    backend = choice.backend or FilesystemBackend()
    if isinstance(backend, MemoryBackend):
        backend = replace(backend, max_state_bytes=backend.max_state_bytes or DEFAULT_MEMORY_STATE_BYTES)
    elif isinstance(backend, RocksdbBackend):
        backend = replace(backend, memory_bytes=backend.memory_bytes or DEFAULT_ROCKSDB_BYTES)
    return replace(choice, backend=backend, full_every=choice.full_every or 1)


def _stragglers(option: StragglerReplacement | None) -> StragglerReplacement | None:
    if option is None:
        return None
    return StragglerReplacement(
        factor=option.factor or DEFAULT_STRAGGLERS.factor,
        window_ms=option.window_ms or DEFAULT_STRAGGLERS.window_ms,
        pause_ms=option.pause_ms or DEFAULT_STRAGGLERS.pause_ms,
    )
