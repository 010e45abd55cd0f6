"""A job with many keys, few of which change at a time: what increments are for. Its result can be computed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from dataclasses import replace
from typing import Any

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    Edge,
    ExponentialRestart,
    GeneratorSource,
    JobGraph,
    JobStatus,
    KeyedAggregate,
    LeaderFailover,
    Operator,
    Partitioning,
    RestartStrategy,
    SqlSink,
    SqlTransform,
    StateBackend,
    Vertex,
)

from tests.chaos.testing_cluster import TestingCluster
from tests.chaos.watched_job import WatchedJob
from tests.drained import generated

PARTITIONS = 2
RATE = 6_000.0
FIRST, AGAIN = 4_000, 150  # keys of a partition that come once at the beginning, and those that come all the time


class KeyedJob(WatchedJob):
    """Its input flows until `check_exact`."""

    def __init__(
        self, testing: TestingCluster, key: str, backend: StateBackend, seconds: float = 0.0, **changes: Any
    ) -> None:
        """seconds: the input ends by itself after so long; 0 wherever something is killed. changes: of the graph."""
        self._folder = testing.make_folder(key)
        self._rows = int(seconds * RATE)
        super().__init__(testing, key, replace(self._graph(backend), **changes))

    def check_exact(self) -> JobStatus:
        """Ends the input, waits for the end and compares every key with the input."""
        rows = [self._rows] * PARTITIONS
        if self._rows:
            self.wait_finished()
        else:
            rows = generated(self.drain()["generate"], PARTITIONS)
        assert self._read() == _expected(rows)
        return self.status

    def _read(self) -> dict[str, tuple[int, int]]:
        with contextlib.closing(sqlite3.connect(self._folder / "totals.db")) as database:
            return {name: (int(n), int(total)) for name, n, total in database.execute("SELECT k, n, total FROM totals")}

    def _graph(self, backend: StateBackend) -> JobGraph:
        shape = SqlTransform(
            f"SELECT CONCAT(`partition`, '-', IF(sequence < {FIRST}, sequence, sequence % {AGAIN})) AS k, sequence "
            "FROM input"
        )
        functions = (
            Aggregate("n", AggregateFunction.COUNT, ""),
            Aggregate("total", AggregateFunction.SUM, "sequence"),
        )
        sink = SqlSink(f"sqlite:///{self._folder / 'totals.db'}", "totals", ("k",))
        return JobGraph(
            name="many keys",
            vertices=(
                _vertex("generate", GeneratorSource(PARTITIONS, self._rows, RATE), shape),
                _vertex("totals", KeyedAggregate(("k",), functions), sink),
            ),
            edges=(Edge("generate", "totals", Partitioning.HASH, ("k",)),),
            checkpoints=CheckpointOptions(interval_ms=300),
            restart=RestartStrategy(ExponentialRestart(50, 2000, 2.0, 0.0, 5000)),
            state_backend=backend,
            leader_failover=LeaderFailover.LEADER_FAILOVER_RESTART,  # what is restored is the point
        )


def _expected(rows: list[int]) -> dict[str, tuple[int, int]]:
    """Count and sum of every key. rows: of each partition."""
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for partition, end in enumerate(rows):
        for sequence in range(end):
            name = f"{partition}-{sequence if sequence < FIRST else sequence % AGAIN}"
            counts[name] += 1
            totals[name] += sequence
    return {name: (counts[name], totals[name]) for name in counts}


def _vertex(name: str, *kinds: Any) -> Vertex:
    return Vertex(
        name, name, 2, 128, tuple(Operator(f"{name}-{n}", f"{name}-{n}", kind) for n, kind in enumerate(kinds))
    )
