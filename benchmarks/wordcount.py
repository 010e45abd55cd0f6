"""`python -m benchmarks.wordcount`: words a second with and without checkpoints, and of plain warm Spark batch."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.demo.wordcount import compare, read_counts
from lockgate_proto.messages import (
    Aggregate,
    AggregateFunction,
    CheckpointOptions,
    Edge,
    FileFormat,
    FileSource,
    JobGraph,
    KeyedAggregate,
    Operator,
    Partitioning,
    SqlSink,
    SqlTransform,
    Vertex,
)

from benchmarks import corpus
from benchmarks.common import Measurement, Row, WrongResult, at_least, cache_folder, parser, run, say
from benchmarks.job_run import NEVER_MS, run_through
from benchmarks.spark_batch import QUERY, spark_batch
from lockgate.client import Client


def graph(folder: Path, database: Path, interval_ms: int) -> JobGraph:
    """2 source subtasks, exchange by word, 2 count subtasks, upsert."""
    count = KeyedAggregate(("word",), (Aggregate("n", AggregateFunction.COUNT, ""),))
    upsert = SqlSink(f"sqlite:///{database}", "words", ("word",))
    source = FileSource(path=str(folder), format=FileFormat.TEXT)
    return JobGraph(
        name="word count",
        vertices=(
            Vertex("words", "words", 2, 0, (Operator("read", "", source), Operator("split", "", SqlTransform(QUERY)))),
            Vertex("counts", "counts", 2, 0, (Operator("count", "", count), Operator("upsert", "", upsert))),
        ),
        edges=(Edge("words", "counts", Partitioning.HASH, ("word",)),),
        checkpoints=CheckpointOptions(interval_ms=interval_ms),
    )


def measure(arguments: argparse.Namespace) -> Measurement:
    """Three kinds of run in turn: on a warm cluster with and without checkpoints, and of plain Spark."""
    folder = corpus.ensure(
        Path(arguments.input) if arguments.input else cache_folder(), arguments.words, arguments.files
    )
    with WorkFolder("lockgate-wordcount-", say) as kept:
        work = kept.path
        say("starting a cluster: 2 task managers with 1 slot each; and plain Spark ...")
        with (
            spark_batch(folder, work / "batch.parquet") as batch,
            LocalCluster(work / "cluster", slots=arguments.slots, taskmanager=_overrides(arguments)) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):

            def job(key: str, interval_ms: int) -> float:
                return run_through(client, key, graph(folder, work / f"{key}.db", interval_ms)).seconds

            def plain() -> float:
                seconds = batch.run()
                say(f"  plain Spark batch: {seconds:.2f} s")
                return seconds

            for number in range(arguments.warm_up):
                job(f"warm-{number}", 1000)
                plain()
            taken = [
                in_turn(
                    number, (partial(job, f"with-{number}", 1000), partial(job, f"without-{number}", NEVER_MS), plain)
                )
                for number in range(arguments.runs)
            ]
        _check(work, [f"{kind}-{number}" for kind in ("with", "without") for number in range(arguments.runs)])
    return _measurement(arguments.words, taken)


def in_turn(number: int, runs: Sequence[Callable[[], float]]) -> list[float]:
    """The seconds of each run, in their order. number: of the round; another one comes first in each.

    A JVM still gets faster from run to run, and the machine is now faster and now slower.
    """
    seconds = [0.0] * len(runs)
    for place in range(len(runs)):
        which = (number + place) % len(runs)
        seconds[which] = runs[which]()
    return seconds


def _overrides(arguments: argparse.Namespace) -> dict[str, object]:
    return {"spark_master": arguments.spark_master} if arguments.spark_master else {}


def _check(work: Path, keys: list[str]) -> None:
    counts = pq.read_table(work / "batch.parquet")
    batch = dict(zip(counts.column("word").to_pylist(), counts.column("n").to_pylist(), strict=True))
    for key in keys:
        result = compare(read_counts(work / f"{key}.db"), batch)
        if not result.is_exact:
            raise WrongResult(f"{key}: {len(result.wrong)} counts differ, such as {result.wrong[:3]}")


def _measurement(words: int, taken: Sequence[Sequence[float]]) -> Measurement:
    """taken: of each round the seconds with checkpoints, without, and of plain Spark."""
    with_s, without_s, spark_s = map(list, zip(*taken, strict=True))
    rate, rate_without, rate_spark = (words / statistics.median(times) for times in (with_s, without_s, spark_s))
    return Measurement(
        (
            at_least("word count, a checkpoint each second", rate, 5e6, "words/s"),
            Row("word count, without checkpoints", f"{rate_without:,.0f} words/s"),
            Row("plain warm Spark batch, local[2]", f"{rate_spark:,.0f} words/s"),
            at_least("share of Spark batch", rate / rate_spark, 0.9, ""),
            at_least("with checkpoints against without", rate / rate_without, 0.95, ""),
        ),
        {
            "words": words,
            "words_per_s": rate,
            "words_per_s_without_checkpoints": rate_without,
            "spark_batch_words_per_s": rate_spark,
            "ratio_to_spark_batch": rate / rate_spark,
            "ratio_to_no_checkpoints": rate / rate_without,
            "seconds": {"with_checkpoints": with_s, "without_checkpoints": without_s, "spark_batch": spark_s},
        },
    )


def main() -> int:
    """Command line."""
    options = parser("wordcount", "Word count on 2 task managers, from submission to the committed result.")
    options.add_argument("--words", type=int, default=60_000_000, help="size of the input")
    options.add_argument("--files", type=int, default=120, help="files of the input")
    options.add_argument("--input", default="", help="folder in which the generated input is kept (default: the cache)")
    options.add_argument("--runs", type=int, default=6, help="measured runs of each kind; the median counts")
    options.add_argument("--warm-up", type=int, default=12, help="runs of the job, and of plain Spark, before them")
    options.add_argument("--slots", type=int, default=1, help="slots of each of the 2 task managers")
    options.add_argument("--spark-master", default="", help="Spark master of each task manager (default: local[slots])")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
