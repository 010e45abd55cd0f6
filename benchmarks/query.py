"""`python -m benchmarks.query`: keys of a running job are read as of its newest checkpoint, and what that costs it."""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto.messages import QueryStateResponse

from benchmarks.common import Measurement, Row, WrongResult, at_least, at_most, parser, run, say
from benchmarks.job_run import PARTITIONS, counting, rows_counted, wait_until
from lockgate.client import Client

GOAL_MS = 20.0
_KEY = "query-benchmark"


def measure(arguments: argparse.Namespace) -> Measurement:
    """Phases without and with queries in turn, once every key is in a checkpoint."""
    with tempfile.TemporaryDirectory(prefix="lockgate-query-") as name:
        folder = Path(name)
        say("starting a cluster ...")
        options = {"batch_interval_ms": arguments.batch_interval_ms, "spark_niceness": arguments.spark_niceness}
        with (
            LocalCluster(folder / "cluster", slots=2, taskmanager=options) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):
            job = counting(
                folder, arguments.keys, arguments.rate, written=1_000, retained_checkpoints=30, state=arguments.state
            )
            client.submit(_KEY, job.graph())
            observer = JobObserver(client, _KEY)
            try:
                found = _phases(client, observer, arguments)
            finally:
                observer.close()
            client.cancel(_KEY)
    return found


def _phases(client: Client, observer: JobObserver, arguments: argparse.Namespace) -> Measurement:
    choice = random.Random(arguments.keys)
    wait_until(observer, lambda: rows_counted(observer) >= arguments.keys, "all keys are there")
    completed = observer.status.checkpoints_completed if observer.status is not None else 0
    wait_until(
        observer,
        lambda: bool(observer.status and observer.status.checkpoints_completed > completed + 1),
        "it is stored",
    )
    if arguments.settle:
        say(f"the job runs {arguments.settle:g} s ...")
        observer.wait_for(lambda: False, arguments.settle)
    rates: dict[bool, list[float]] = {False: [], True: []}
    took_ms: list[float] = []
    checked: set[int] = set()
    for number in range(2 * arguments.phases):
        is_queried = number % 4 in (1, 2)  # neither kind always comes first
        started, read = time.monotonic(), rows_counted(observer)
        while (now := time.monotonic()) < started + arguments.seconds:
            if not is_queried:
                observer.wait_for(lambda: False, started + arguments.seconds - now)
                continue
            key = choice.randrange(arguments.keys)
            answer = client.query(_KEY, {"counts": [[key]]})
            took_ms.append((time.monotonic() - now) * 1_000)
            if answer.checkpoint_id not in checked and len(checked) < arguments.phases:
                checked.add(answer.checkpoint_id)
                _check(client, answer, key, arguments.keys)
            observer.wait_for(lambda: False, max(0.0, now + 1 / arguments.queries - time.monotonic()))
        rates[is_queried].append((rows_counted(observer) - read) / (time.monotonic() - started))
        say(f"{'with' if is_queried else 'without'} queries: {rates[is_queried][-1]:,.0f} rows/s")
    return _measurement(arguments, took_ms, rates, len(checked))


def _check(client: Client, answer: QueryStateResponse, key: int, keys: int) -> None:
    """The count against the rows below the offsets of the checkpoint. Raises WrongResult."""
    offsets = [each for each in client.offsets(_KEY) if each.checkpoint_id == answer.checkpoint_id]
    below = {int(split.split): split.offset for each in offsets for source in each.sources for split in source.splits}
    partition, first = key % PARTITIONS, key // PARTITIONS
    wanted = max(0, -(-(below[partition] - first) // (keys // PARTITIONS)))
    found = json.loads(answer.values[0].value)["values"]["n"] if answer.values[0].found else 0
    if found != wanted:
        raise WrongResult(f"checkpoint {answer.checkpoint_id} has {wanted} rows of key {key}, the answer was {found}")


def _measurement(
    arguments: argparse.Namespace, took_ms: list[float], rates: Mapping[bool, list[float]], checked: int
) -> Measurement:
    percentiles = statistics.quantiles(took_ms, n=100)
    kept = statistics.median(rates[True]) / statistics.median(rates[False])
    rows = (
        Row(f"{arguments.keys:,} keys, a query of one: median of {len(took_ms)}", f"{percentiles[49]:.1f} ms"),
        at_most("  p99", percentiles[98], GOAL_MS, "ms"),
        Row("  worst", f"{max(took_ms):.1f} ms"),
        at_least("rows/s with queries against without", kept, 0.95, ""),
        Row("answers compared with the offsets of their checkpoint", str(checked)),
    )
    return Measurement(
        rows,
        {
            "keys": arguments.keys,
            "state": arguments.state,
            "query_ms": took_ms,
            "rows_per_s": {"queried": rates[True], "alone": rates[False]},
        },
    )


def main() -> int:
    """Command line."""
    options = parser("query", "Reads keys of a running job as of its newest checkpoint.")
    options.add_argument("--keys", type=int, default=1_000_000, help="keys that the job counts")
    options.add_argument("--rate", type=float, default=100_000, help="rows a second, all partitions together")
    options.add_argument("--state", choices=("filesystem", "rocksdb"), default="filesystem", help="state backend")
    options.add_argument(
        "--batch-interval-ms", type=int, default=0, help="the task managers' setting: with more, cores are free"
    )
    options.add_argument("--spark-niceness", type=int, default=0, help="the task managers' setting: JVMs yield")
    options.add_argument("--queries", type=float, default=50, help="a second, one after another")
    options.add_argument("--phases", type=int, default=4, help="of each kind")
    options.add_argument("--seconds", type=float, default=5.0, help="of a phase")
    options.add_argument(
        "--settle", type=float, default=0.0, help="seconds that the job runs first, while JVMs compile"
    )
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
