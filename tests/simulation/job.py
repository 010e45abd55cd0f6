"""The simulated job: its graph, its input and what must come out."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

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
    GeneratorSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    RestartStrategy,
    SplitState,
    SqlSink,
    SqlTransform,
    StragglerReplacement,
    Vertex,
)

from tests.simulation.programs import key_of
from tests.simulation.storage import Record


@dataclass(frozen=True)
class SimulatedJob:
    """partitions x rows records; with `spread` a REBALANCE vertex stands between source and sinks.

    discovered: the splits are listed by a task manager (file source), not made by the leader (generator).
    """

    key: str
    partitions: int
    rows: int
    spread: bool
    discovered: bool
    interval_ms: int
    timeout_ms: int = 2_000
    retained: int = 1
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE
    aligned_timeout_ms: int = 0
    at_a_time: int = 1
    stragglers: StragglerReplacement | None = None

    @property
    def is_exact(self) -> bool:
        """False when a record may count twice after a failure."""
        return self.mode is not CheckpointMode.AT_LEAST_ONCE

    @classmethod
    def draw(cls, key: str, choice: random.Random) -> SimulatedJob:
        """A job of random shape."""
        return cls(
            key,
            partitions=choice.randint(2, 4),
            rows=choice.randint(20, 45),
            spread=choice.random() < 0.3,
            discovered=choice.random() < 0.5,
            interval_ms=choice.choice((100, 150, 250)),
            retained=choice.choice((1, 1, 2)),
        )

    @property
    def records(self) -> list[Record]:
        """The whole input."""
        return [(partition, number) for partition in range(self.partitions) for number in range(self.rows)]

    def below(self, offsets: dict[str, int]) -> list[Record]:
        """The input below some offsets: what a snapshot with these offsets must have seen, and nothing else."""
        return [(int(split), number) for split, offset in offsets.items() for number in range(offset)]

    def splits(self) -> tuple[SplitState, ...]:
        """What discovery finds."""
        return tuple(SplitState(str(number), 0, self.rows) for number in range(self.partitions))

    def graph(self) -> JobGraph:
        """As submitted."""
        source = (
            FileSource("input", FileFormat.TEXT) if self.discovered else GeneratorSource(self.partitions, self.rows)
        )
        before = "spread" if self.spread else "source"
        vertices = [
            self._vertex("source", ("read", source)),
            self._vertex(
                "count",
                ("aggregate", KeyedAggregate(("key",), (Aggregate("n", AggregateFunction.COUNT, ""),))),
                ("upsert", SqlSink("sqlite://", "totals", ("key",))),
            ),
            self._vertex("ledger", ("append", FileSink("ledger", FileFormat.PARQUET))),
        ]
        edges = [Edge(before, target, Partitioning.HASH, ("key",)) for target in ("count", "ledger")]
        if self.spread:
            vertices.append(self._vertex("spread", ("same", SqlTransform("SELECT * FROM input"))))
            edges.append(Edge("source", "spread", Partitioning.REBALANCE))
        return JobGraph(
            name="simulated",
            vertices=tuple(vertices),
            edges=tuple(edges),
            checkpoints=CheckpointOptions(
                interval_ms=self.interval_ms,
                timeout_ms=self.timeout_ms,
                tolerable_failures=3,
                retained=self.retained,
                mode=self.mode,
                aligned_timeout_ms=self.aligned_timeout_ms,
                max_concurrent=self.at_a_time,
            ),
            restart=RestartStrategy(ExponentialRestart(50, 500, 2.0, 0.2, 5_000)),
            straggler_replacement=self.stragglers,
        )

    def _vertex(self, name: str, *operators: tuple[str, object]) -> Vertex:
        chain = tuple(Operator(operator, operator, kind) for operator, kind in operators)  # type: ignore[arg-type]
        return Vertex(id=name, name=name, parallelism=2, operators=chain)


def counts_of(records: list[Record]) -> dict[int, tuple[int, int]]:
    """Key to (count, sum of sequences)."""
    count: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for record in records:
        count[key_of(record)] += 1
        total[key_of(record)] += record[1]
    return {key: (count[key], total[key]) for key in count}
