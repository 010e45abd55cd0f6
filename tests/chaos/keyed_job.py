"""A job with many keys, few of which change at a time: what increments are for. Its result can be computed."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from typing import Any

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    Edge,
    ExponentialRestart,
    GeneratorSource,
    JobEventKind,
    JobGraph,
    JobState,
    JobStatus,
    KeyedAggregate,
    Operator,
    Partitioning,
    RestartStrategy,
    SqlSink,
    SqlTransform,
    StateBackend,
    Vertex,
)

from lockgate.client import ClientError
from lockgate.drill.observer import JobObserver
from tests.chaos.ground import PATIENCE_S, Ground

PARTITIONS = 2
RATE = 6_000.0
FIRST, AGAIN = 4_000, 150  # keys of a partition that come once at the beginning, and those that come all the time


class KeyedJob:
    """Submits it. Leaving the block cancels it unless it has ended."""

    def __init__(self, ground: Ground, key: str, backend: StateBackend, seconds: float) -> None:
        self.key = key
        self.folder = ground.make_folder(key)
        self._ground = ground
        self._rows = int(seconds * RATE)
        ground.client.submit(key, self._graph(backend))
        self.observer = JobObserver(ground.client, key)

    def __enter__(self) -> KeyedJob:
        return self

    def __exit__(self, *_: object) -> None:
        ended = self.observer.has_ended
        self.observer.close()
        if not ended:
            with contextlib.suppress(ClientError):
                self._ground.client.cancel(self.key)

    def wait_checkpoints(self, count: int) -> None:
        """Waits until so many are complete in all."""
        done = self.observer.wait_for(lambda: self._completed() >= count, PATIENCE_S)
        assert done, f"{self.key}: {count} checkpoints were not completed"

    def check_exact(self) -> JobStatus:
        """Waits for the end and compares every key with the input."""
        assert self.observer.wait_for(lambda: self.observer.has_ended, PATIENCE_S + 30), f"{self.key} has not ended"
        status = self.observer.status
        assert status is not None
        assert status.state is JobState.FINISHED, f"{self.key}: {status.state.name} {status.error}"
        assert self._read() == self._expected()
        return status

    def _completed(self) -> int:
        events = self.observer.events
        return len({one.checkpoint_id for one in events if one.kind is JobEventKind.CHECKPOINT_COMPLETED})

    def _expected(self) -> dict[str, tuple[int, int]]:
        counts: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for partition in range(PARTITIONS):
            for sequence in range(self._rows):
                name = f"{partition}-{sequence if sequence < FIRST else sequence % AGAIN}"
                counts[name] += 1
                totals[name] += sequence
        return {name: (counts[name], totals[name]) for name in counts}

    def _read(self) -> dict[str, tuple[int, int]]:
        with contextlib.closing(sqlite3.connect(self.folder / "totals.db")) as database:
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
        sink = SqlSink(f"sqlite:///{self.folder / 'totals.db'}", "totals", ("k",))
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
        )


def _vertex(name: str, *kinds: Any) -> Vertex:
    return Vertex(name, name, 2, 128, tuple(Operator(f"{name}-{n}", f"{name}-{n}", one) for n, one in enumerate(kinds)))
