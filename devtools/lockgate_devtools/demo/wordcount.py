"""The demo's job, and the comparison of its result with plain Spark's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    Edge,
    ExponentialRestart,
    FileFormat,
    FileSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    RestartStrategy,
    SqlSink,
    SqlTransform,
    Vertex,
)

from lockgate_devtools.equipment import sqlite_file

# A word is a run of letters, digits and underscores, in any script.
WORDS_QUERY = r"SELECT word FROM (SELECT explode(split(value, '(?U)\\W+')) AS word FROM input) WHERE word != ''"
SOURCE, SPLIT, COUNT, TABLE = "read", "split", "count", "words"


def graph(folder: Path, database: Path, interval_ms: int) -> JobGraph:
    """read the files -> split into words -> exchange by word -> count -> upsert into SQLite."""
    count = KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT, ""),))
    upsert = SqlSink(sqlite_file.url_of(database), TABLE, ("word",))
    return JobGraph(
        name="word count",
        vertices=(
            Vertex(
                id="words",
                name="words",
                parallelism=2,
                operators=(
                    Operator(SOURCE, "read the files", FileSource(path=str(folder), format=FileFormat.TEXT)),
                    Operator(SPLIT, "split into words", SqlTransform(WORDS_QUERY)),
                ),
            ),
            Vertex(
                id="counts",
                name="counts",
                parallelism=2,
                operators=(Operator(COUNT, "count", count), Operator("upsert", "upsert into SQLite", upsert)),
            ),
        ),
        edges=(Edge("words", "counts", Partitioning.HASH, ("word",)),),
        checkpoints=CheckpointOptions(interval_ms=interval_ms),
        restart=RestartStrategy(ExponentialRestart(50, 2000, 2.0, 0.0, 5000)),
    )


def read_counts(database: Path) -> dict[str, int]:
    """The committed counts by word. Raises sqlite3.Error."""
    with sqlite_file.opened(database) as connection:
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        return dict(connection.execute(f"SELECT word, n FROM {TABLE}").fetchall())


@dataclass(frozen=True, slots=True)
class Comparison:
    """words: number of distinct words, total: of all words (both by plain Spark); wrong: (word, job's count, Spark's
    count).
    """

    words: int
    total: int
    wrong: tuple[tuple[str, int, int], ...]

    @property
    def is_exact(self) -> bool:
        """Every count is right, and there is at least one."""
        return self.words > 0 and not self.wrong


def compare(job: Mapping[str, int], batch: Mapping[str, int]) -> Comparison:
    """Per word, in both directions: missing words count as 0."""
    wrong = tuple(
        (word, job.get(word, 0), batch.get(word, 0))
        for word in sorted(job.keys() | batch.keys())
        if job.get(word, 0) != batch.get(word, 0)
    )
    return Comparison(len(batch), sum(batch.values()), wrong)
