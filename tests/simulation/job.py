"""The simulated job: its graph and its options."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointMode,
    CheckpointOptions,
    Edge,
    ExponentialRestart,
    FileFormat,
    FileSink,
    FileSource,
    FixedDelayRestart,
    GeneratorSource,
    JobGraph,
    KafkaSource,
    KafkaStart,
    KeyedAggregate,
    LeaderFailover,
    Operator,
    Partitioning,
    RestartStrategy,
    SqlSink,
    SqlTransform,
    StragglerReplacement,
    TaskManagerFailover,
    Vertex,
)

from tests.simulation.flow import KEY_GROUPS, RANDOM, SAME, Model

BY_KEY = ("key",)
FOUND_AT_ONCE = 2


@dataclass(frozen=True)
class SimulatedJob:
    """graph: vertices and edges, see the functions below."""

    key: str
    vertices: tuple[Vertex, ...]
    edges: tuple[Edge, ...]
    interval_ms: int
    timeout_ms: int = 2_000
    retained: int = 1
    tolerable: int = 3
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE
    aligned_timeout_ms: int = 0
    at_a_time: int = 1
    stragglers: StragglerReplacement | None = None
    failover: LeaderFailover = LeaderFailover.LEADER_FAILOVER_RESTART
    replicas: int = 0
    is_part: bool = False
    restart: FixedDelayRestart | None = None

    @property
    def is_exact(self) -> bool:
        """False when a record may count twice after a failure."""
        return self.mode is not CheckpointMode.AT_LEAST_ONCE

    @classmethod
    def draw(cls, key: str, choice: random.Random) -> SimulatedJob:
        """A source, a keyed count and a ledger, of random size; perhaps a REBALANCE vertex between."""
        partitions, rows, is_spread = choice.randint(2, 4), choice.randint(20, 45), choice.random() < 0.3
        before = "spread" if is_spread else "source"
        vertices = [source("source", partitions, rows, discovered=choice.random() < 0.5), count("count"), ledger()]
        edges = [hashed(before, target) for target in ("count", "ledger")]
        if is_spread:
            vertices.append(transform("spread"))
            edges.append(Edge("source", "spread", Partitioning.REBALANCE))
        return cls(
            key,
            tuple(vertices),
            tuple(edges),
            interval_ms=choice.choice((100, 150, 250)),
            retained=choice.choice((1, 1, 2)),
        )

    def graph(self) -> JobGraph:
        """As submitted."""
        return JobGraph(
            name="simulated",
            vertices=self.vertices,
            edges=self.edges,
            checkpoints=CheckpointOptions(
                interval_ms=self.interval_ms,
                timeout_ms=self.timeout_ms,
                tolerable_failures=self.tolerable,
                retained=self.retained,
                mode=self.mode,
                aligned_timeout_ms=self.aligned_timeout_ms,
                max_concurrent=self.at_a_time,
            ),
            restart=RestartStrategy(self.restart or ExponentialRestart(50, 500, 2.0, 0.2, 5_000)),
            straggler_replacement=self.stragglers,
            leader_failover=self.failover,
            standby_replicas=self.replicas,
            task_manager_failover=TaskManagerFailover.TASK_MANAGER_FAILOVER_PART
            if self.is_part
            else TaskManagerFailover.TASK_MANAGER_FAILOVER_UNSPECIFIED,
        )

    @cached_property
    def model(self) -> Model:
        """What comes out of it."""
        return Model(self.graph())

    @property
    def widths(self) -> Mapping[str, int]:
        """Vertex id to parallelism, as submitted."""
        return {vertex.id: vertex.parallelism for vertex in self.vertices}


def looping_job(key: str, interval_ms: int = 100) -> SimulatedJob:
    """A loop of two vertices with an input in the middle, a count inside it and a ledger behind it."""
    vertices = (
        source("source", 3, 20),
        transform("head"),
        count("count", shown=False),
        transform("tail", 1),
        ledger(),
    )
    edges = (
        Edge("source", "head", Partitioning.REBALANCE),
        hashed("head", "count"),
        hashed("source", "count"),
        Edge("count", "tail", Partitioning.REBALANCE),
        Edge("tail", "head", Partitioning.FEEDBACK, feedback=Partitioning.REBALANCE),
        hashed("tail", "ledger"),
    )
    return SimulatedJob(key, vertices, edges, interval_ms)


def forward_job(
    key: str, interval_ms: int = 150, *, discovered: bool = True, poll_ms: int = 0, uneven: bool = False
) -> SimulatedJob:
    """Four subtasks of each vertex, and no record crosses from one slot to another: each slot can restart alone.

    poll_ms: see `source`; uneven: slots 0 and 1 have another source and ledger as well.
    """
    vertices = [
        source("source", 8, 40, 4, discovered=discovered, poll_ms=poll_ms),
        transform("map", 4),
        ledger("ledger", 4),
    ]
    edges = [Edge("source", "map", Partitioning.FORWARD), Edge("map", "ledger", Partitioning.FORWARD)]
    if uneven:
        vertices += [_other(discovered=not discovered, poll_ms=poll_ms), ledger("other-ledger")]
        edges.append(Edge("other", "other-ledger", Partitioning.FORWARD))
    return SimulatedJob(key, tuple(vertices), tuple(edges), interval_ms)


def exchanging_job(
    key: str, interval_ms: int = 150, *, discovered: bool = True, poll_ms: int = 0, uneven: bool = False
) -> SimulatedJob:
    """Four subtasks of each vertex; what a lost task manager ran restarts although records cross between the slots.

    Two edges lead from the source to the same ledger, so that a batch comes to it in several tables. Arguments: as of
    `forward_job`; uneven: there is another source, of two subtasks, as well.
    """
    vertices = [
        source("source", 8, 60, 4, discovered=discovered, poll_ms=poll_ms),
        count("count", 4),
        ledger("ledger", 4),
        count("keyed", 4, shown=False),
        ledger("behind", 4),
    ]
    edges = [hashed("source", name) for name in ("ledger", "count", "keyed", "ledger")]
    edges.append(Edge("keyed", "behind", Partitioning.FORWARD))
    if uneven:
        vertices += [_other(discovered=not discovered, poll_ms=poll_ms)]
        edges += [hashed("other", "ledger"), hashed("other", "count")]
    return SimulatedJob(key, tuple(vertices), tuple(edges), interval_ms, is_part=True)


def random_job(key: str, interval_ms: int = 150, *, discovered: bool = True) -> SimulatedJob:
    """As `exchanging_job`, but what its source reads again may go to other subtasks, so that nothing can run on."""
    read = source("source", 8, 60, 4, discovered=discovered)
    read = replace(read, operators=(*read.operators, Operator("source-random", "random", SqlTransform(RANDOM))))
    edges = tuple(hashed("source", name) for name in ("ledger", "behind", "ledger"))
    return SimulatedJob(key, (read, ledger("ledger", 4), ledger("behind", 4)), edges, interval_ms, is_part=True)


def _other(*, discovered: bool, poll_ms: int) -> Vertex:
    """A source of two subtasks beside one of four, for which files are found longer where they are found by and by."""
    if poll_ms:
        return source("other", 14, 12, discovered=True, poll_ms=poll_ms)
    return source("other", 3, 40, discovered=discovered)


FORWARD_VERTICES = ("source", "map", "ledger")
"""Those of `forward_job` that can only be rescaled together."""


def source(
    name: str, partitions: int, rows: int, parallelism: int = 2, *, discovered: bool = False, poll_ms: int = 0
) -> Vertex:
    """discovered: the splits are listed by a task manager (file source), not made by the leader (generator).

    poll_ms: these are found by and by, at most FOUND_AT_ONCE at a time.
    """
    kind: FileSource | GeneratorSource = GeneratorSource(partitions, rows)
    if discovered:
        kind = FileSource(f"{partitions}x{rows}", FileFormat.TEXT, continuous=poll_ms > 0, poll_interval_ms=poll_ms)
    return _vertex(name, parallelism, Operator(f"{name}-read", "read", kind))


def growing(name: str, partitions: int, rows: int, parallelism: int = 2, poll_ms: int = 200) -> Vertex:
    """A source that begins where its partitions end when it asks; see `flow.partitions_at`."""
    kind = KafkaSource(f"{partitions}x{rows}:9092", ("topic",), KafkaStart.KAFKA_LATEST, poll_interval_ms=poll_ms)
    return _vertex(name, parallelism, Operator(f"{name}-read", "read", kind))


def growing_job(key: str, interval_ms: int, *, forward: bool) -> SimulatedJob:
    """Two of these sources and a ledger behind each. forward: slots can restart alone; else there is a count, too."""
    vertices = [growing("source", 7, 90, 4), ledger("ledger", 4), growing("other", 3, 90), ledger("other-ledger")]
    edges = [Edge("source", "ledger", Partitioning.FORWARD), Edge("other", "other-ledger", Partitioning.FORWARD)]
    if not forward:
        vertices.append(count("count"))
        edges.append(hashed("source", "count"))
    return SimulatedJob(key, tuple(vertices), tuple(edges), interval_ms)


def transform(name: str, parallelism: int = 2, query: str = SAME) -> Vertex:
    """query: one of flow.TRANSFORMS."""
    return _vertex(name, parallelism, Operator(f"{name}-transform", "transform", SqlTransform(query)))


def count(name: str, parallelism: int = 2, *, shown: bool = True) -> Vertex:
    """Counts by key. shown: upserts its counts into a table; else it passes its records on."""
    kind = KeyedAggregate(BY_KEY, (Aggregate("n", AggregateFunction.COUNT, ""),))
    shows = (Operator(f"{name}-upsert", "upsert", SqlSink("sqlite://", "totals", BY_KEY)),) if shown else ()
    return _vertex(name, parallelism, Operator(f"{name}-aggregate", "aggregate", kind), *shows)


def ledger(name: str = "ledger", parallelism: int = 2) -> Vertex:
    """A transactional file sink."""
    return _vertex(name, parallelism, Operator(f"{name}-append", "append", FileSink(name, FileFormat.PARQUET)))


def hashed(before: str, behind: str) -> Edge:
    """By key."""
    return Edge(before, behind, Partitioning.HASH, BY_KEY)


def _vertex(name: str, parallelism: int, *operators: Operator) -> Vertex:
    return Vertex(id=name, name=name, parallelism=parallelism, max_parallelism=KEY_GROUPS, operators=operators)
