"""`python -m benchmarks.startup`: from `lockgate cluster` to the first record of a submitted job."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto.messages import (
    CheckpointOptions,
    FileFormat,
    FileSink,
    GeneratorSource,
    JobEventKind,
    JobGraph,
    Operator,
    Vertex,
)

from benchmarks.common import Measurement, Row, at_most, parser, run, say
from lockgate.client import Client
from lockgate.errors import UserError

_LIMIT_S = 120.0


def measure(arguments: argparse.Namespace) -> Measurement:
    """Several fresh clusters, one after the other."""
    ready, first = [], []
    for number in range(arguments.times):
        with WorkFolder("lockgate-startup-", say) as work:
            ready_s, first_s = _once(work.path)
        ready.append(ready_s)
        first.append(first_s)
        say(f"start {number + 1}: ready after {ready_s:.2f} s, first record after {first_s:.2f} s")
    return Measurement(
        (
            Row("lockgate cluster ready, median", f"{statistics.median(ready):.2f} s"),
            at_most("first record of a submitted job, median", statistics.median(first), 15, "s"),
            at_most(f"first record of a submitted job, worst of {len(first)}", max(first), 15, "s"),
        ),
        {
            "first_record_s": statistics.median(first),
            "ready_s": statistics.median(ready),
            "all": {"ready_s": ready, "first_record_s": first},
        },
    )


def _once(folder: Path) -> tuple[float, float]:
    """Seconds from the command to its ready line, and to the first record in the job's sink."""
    command = [
        sys.executable,
        "-c",
        "from lockgate.cli import main; main()",
        "cluster",
        "--dir",
        str(folder / "cluster"),
    ]
    started, started_us = time.monotonic(), time.time_ns() // 1000
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if "lockgate cluster ready" in line:
                break
        else:
            assert process.stderr is not None
            raise UserError(f"the cluster did not start: {process.stderr.read().strip()[-2000:]}")
        ready_s = time.monotonic() - started
        with Client.connect(str(folder / "cluster")) as client:
            return ready_s, _first_record_s(client, folder, started_us)
    finally:
        process.terminate()
        process.communicate(timeout=30)


def _first_record_s(client: Client, folder: Path, started_us: int) -> float:
    client.submit("startup", _graph(folder))
    observer = JobObserver(client, "startup")
    try:
        found: list[int] = []

        def has_come() -> bool:
            found.extend(event.unix_us for event in observer.events if event.kind == JobEventKind.FIRST_RECORD)
            return bool(found)

        if not observer.wait_for(has_come, _LIMIT_S):
            raise UserError(f"no record arrived within {_LIMIT_S:g} s: {observer.status}")
        return (found[0] - started_us) / 1e6
    finally:
        observer.close()
        client.cancel("startup")


def _graph(folder: Path) -> JobGraph:
    source = Operator("rows", "", GeneratorSource(2, 0, 1000.0))
    sink = Operator("sink", "", FileSink(str(folder / "output"), FileFormat.JSON_LINES))
    return JobGraph(
        name="first record",
        vertices=(Vertex("all", "all", 2, 0, (source, sink)),),
        checkpoints=CheckpointOptions(interval_ms=1000),
    )


def main() -> int:
    """Command line."""
    options = parser("startup", "Starts `lockgate cluster`, submits a small job, waits for its first record.")
    options.add_argument("--times", type=int, default=3, help="how often")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
