"""`python -m lockgate_devtools.demo [--input FOLDER] [--zookeepers N] [--config FILE]`: see `make demo`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lockgate_proto.messages import LeaderRecord

from lockgate.client import Client
from lockgate.errors import UserError
from lockgate_devtools.cluster import LocalCluster
from lockgate_devtools.cluster.foreground import Stopped, stopped_by_signals
from lockgate_devtools.cluster.from_settings import tls_options
from lockgate_devtools.cluster.work_folder import WorkFolder
from lockgate_devtools.demo import wordcount
from lockgate_devtools.demo.batch import count_with_spark
from lockgate_devtools.demo.corpus import stage
from lockgate_devtools.demo.show import CHECKPOINT_INTERVAL_MS, DemoRun, compare_with_batch, micro_batches, say


def main(arguments: Sequence[str]) -> int:
    """Runs the demo. Returns 0 when every count is right, 1 when any is wrong, 2 when it could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m lockgate_devtools.demo",
        description="Counts words on a cluster of real processes, kills the leader in the middle, and compares every "
        "count with a plain Spark batch job over the same files.",
    )
    parser.add_argument("--input", metavar="FOLDER", help="text files to count (default: Python's standard library)")
    parser.add_argument("--zookeepers", type=int, choices=(1, 3), default=1, help="ZooKeeper servers (default: 1)")
    parser.add_argument("--config", metavar="FILE", help="settings file, for [tls] and zookeeper.tls")
    chosen = parser.parse_args(arguments)
    return run(chosen.input or "", chosen.zookeepers, chosen.config)


def run(text: str, zookeepers: int, config: str | None) -> int:
    """As `main`. text: a folder, empty for the default."""
    source = Path(text).expanduser() if text else None
    return run_in_work_folder(
        lambda folder: _on_processes(folder, source, {"zookeepers": zookeepers, **tls_options(config)})
    )


def run_in_work_folder(demo: Callable[[Path], bool]) -> int:
    """Runs `demo` in a work folder, which is kept when a count is wrong; returns the exit code, see `main`."""
    try:
        with stopped_by_signals(), WorkFolder("lockgate-demo-", say) as work:
            is_exact = demo(work.path)
            if not is_exact:
                work.keep()
        return 0 if is_exact else 1
    except Stopped:
        return 130
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2


def _on_processes(folder: Path, source: Path | None, options: Mapping[str, Any]) -> bool:
    """On a cluster of local processes. True when every count is right."""
    corpus = stage(source, folder / "input")
    show = DemoRun(corpus, _kill)
    database = folder / "words.db"
    say(f"input: {corpus.title}: {corpus.files:,} files, {corpus.total_bytes / 1e6:.1f} MB")
    say("starting ZooKeeper, 2 coordinators and 2 task managers, each a separate process ...")
    with LocalCluster(folder / "cluster", taskmanager=micro_batches(corpus), **options) as cluster:
        say(f"ready: coordinators {', '.join(cluster.coordinators)}, ZooKeeper {cluster.zookeeper}")
        say(f"look at it while it runs: {cluster.dashboard}")
        with Client(cluster.coordinators, cluster.zookeeper, credentials=cluster.credentials()) as client:
            show.count(client, wordcount.graph(corpus.folder, database, CHECKPOINT_INTERVAL_MS))
    say("now the same counts by a plain Spark batch job ...")
    log = folder / "cluster" / "logs" / "spark-batch.log"
    batch = count_with_spark(corpus.folder, folder / "batch.parquet", log)
    return compare_with_batch(database, batch, was_killed=show.was_killed)


def _kill(leader: LeaderRecord) -> str:
    os.kill(leader.pid, signal.SIGKILL)
    return f"pid {leader.pid}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
