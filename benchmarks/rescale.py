"""`python -m benchmarks.rescale`: a running job goes from 2 to 3 counting subtasks and back, with all its keys."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto.messages import JobEventKind

from benchmarks.common import Measurement, Row, WrongResult, at_most, parser, run, say
from benchmarks.job_run import counting, rows_counted, wait_until
from lockgate.client import Client
from lockgate.client.rescale import rescale

GOAL_MS = 2_000.0
_KEY = "rescale-benchmark"


def measure(arguments: argparse.Namespace) -> Measurement:
    """One job, rescaled up and down in turn."""
    with tempfile.TemporaryDirectory(prefix="lockgate-rescale-") as name:
        folder = Path(name)
        say("starting a cluster ...")
        with (
            LocalCluster(folder / "cluster", slots=3) as cluster,
            Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client,
        ):
            client.submit(_KEY, counting(folder, arguments.keys, arguments.rate, written=100).graph())
            times, durable = _rescale_all(client, arguments)
            client.stop(_KEY)
        _check(folder / "counts")
    up = times[0::2]
    rows = (
        at_most(f"{arguments.keys:,} keys, 2 -> 3: to the first record, median", statistics.median(up), GOAL_MS, "ms"),
        at_most(f"  worst of {len(up)}", max(up), GOAL_MS, "ms"),
        Row("  back, 3 -> 2: median", f"{statistics.median(times[1::2]):.4g} ms"),
        Row("  until the change is durable, median", f"{statistics.median(durable):.4g} ms"),
    )
    return Measurement(rows, {"keys": arguments.keys, "up_ms": up, "down_ms": times[1::2], "durable_ms": durable})


def _rescale_all(client: Client, arguments: argparse.Namespace) -> tuple[list[float], list[float]]:
    """ms from the command to the first record, for 2 -> 3 and 3 -> 2 in turn; ms until each was durable."""
    observer = JobObserver(client, _KEY)
    try:
        wait_until(observer, lambda: rows_counted(observer) >= 2 * arguments.keys, "all keys are there")
        times: list[float] = []
        durable: list[float] = []
        for number in range(2 * arguments.times):
            observer.wait_for(lambda: False, arguments.every)
            status = client.job(_KEY)
            wanted = 2 + (number + 1) % 2
            started_us = time.time_ns() // 1000
            client.rescale(_KEY, {"counts": wanted})
            durable.append((time.time_ns() // 1000 - started_us) / 1000)
            times.append((_first_record_us(observer, status.attempt) - started_us) / 1000)
            found = Counter(subtask.vertex_id for subtask in rescale(client, _KEY, {"counts": wanted}).subtasks)[
                "counts"
            ]
            if found != wanted:
                raise WrongResult(f"{found} counting subtasks run, {wanted} were wanted")
            say(f"to {wanted} subtasks: {times[-1]:.0f} ms; durable after {durable[-1]:.0f} ms")
        return times, durable
    finally:
        observer.close()


def _first_record_us(observer: JobObserver, before: int) -> int:
    def found() -> list[int]:
        first = JobEventKind.FIRST_RECORD
        return [event.unix_us for event in observer.events if event.kind is first and event.attempt > before]

    wait_until(observer, lambda: bool(found()), "the first record after the rescale")
    return min(found())


def _check(folder: Path) -> None:
    """The counts of a key go up by what each batch has brought: none may fall back to where it was before."""
    seen: dict[int, set[int]] = {}
    for path in folder.glob("part-*.parquet"):
        for row in pq.read_table(path).to_pylist():
            if row["n"] in seen.setdefault(row["k"], set()):
                raise WrongResult(f"key {row['k']} has reached count {row['n']} twice")
            seen[row["k"]].add(row["n"])
    if not seen:
        raise WrongResult("the job has written nothing")


def main() -> int:
    """Command line."""
    options = parser("rescale", "Rescales a running job up and down, and measures until its first record.")
    options.add_argument("--keys", type=int, default=1_000_000, help="keys that the job counts")
    options.add_argument("--rate", type=float, default=200_000, help="rows a second, all partitions together")
    options.add_argument("--times", type=int, default=5, help="how often up and down again")
    options.add_argument("--every", type=float, default=3.0, help="seconds between two")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
