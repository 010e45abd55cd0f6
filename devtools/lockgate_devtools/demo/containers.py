"""`python -m lockgate_devtools.demo.containers [--input FOLDER]`: see `make docker-demo`."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lockgate_proto.messages import LeaderRecord

from lockgate.client import Client, ClientError
from lockgate.errors import UserError
from lockgate_devtools.demo import wordcount
from lockgate_devtools.demo.__main__ import run_in_work_folder
from lockgate_devtools.demo.batch import read_result
from lockgate_devtools.demo.corpus import stage
from lockgate_devtools.demo.show import CHECKPOINT_INTERVAL_MS, DemoRun, compare_with_batch, micro_batches, say
from lockgate_devtools.equipment.compose import COORDINATORS, ComposeCluster

_COMPOSE_FILE = Path(__file__).resolve().parents[3] / "docker" / "compose.yaml"
_TASK_MANAGERS = 3
_READY_LIMIT_S = 180.0
_LOOK_EVERY_S = 0.5
# Paths inside the containers.
_INPUT = Path("/input")
_DATABASE = Path("/var/lib/lockgate/words.db")
_BATCH = Path("/var/lib/lockgate/batch.parquet")


def main(arguments: Sequence[str]) -> int:
    """Runs the demo. Returns 0 when every count is right, 1 when any is wrong, 2 when it could not run."""
    parser = argparse.ArgumentParser(
        prog="python -m lockgate_devtools.demo.containers",
        description="Counts words on a cluster in containers, kills the leader's container in the middle, and "
        "compares every count with a plain Spark batch job over the same files.",
    )
    parser.add_argument("--input", metavar="FOLDER", help="text files to count (default: Python's standard library)")
    parser.add_argument("--file", metavar="FILE", type=Path, default=_COMPOSE_FILE, help="the compose file")
    chosen = parser.parse_args(arguments)
    source = Path(chosen.input).expanduser() if chosen.input else None
    return run_in_work_folder(lambda folder: _in_containers(folder, source, chosen.file))


def _in_containers(folder: Path, source: Path | None, file: Path) -> bool:
    """True when every count is right."""
    corpus = stage(source, folder / "input")
    say(f"input: {corpus.title}: {corpus.files:,} files, {corpus.total_bytes / 1e6:.1f} MB")
    say("starting 3 ZooKeeper servers, 3 coordinators and 3 task managers, each in its own container ...")
    cluster = ComposeCluster(
        folder, file, "lockgate-demo", task_manager=micro_batches(corpus), input_folder=corpus.folder
    )
    with cluster:
        # Looked up in advance: at the moment of the kill only a single command is left to run.
        containers = {name: cluster.containers(name)[0] for name in COORDINATORS}

        def kill(leader: LeaderRecord) -> str:
            cluster.kill(containers[leader.coordinator_id])
            return f"container {containers[leader.coordinator_id][:12]}"

        show = DemoRun(corpus, kill)
        with Client(cluster.addresses(), credentials=cluster.credentials()) as client:
            _wait_ready(client)
            show.count(client, wordcount.graph(_INPUT, _DATABASE, CHECKPOINT_INTERVAL_MS))
        say("now the same counts by a plain Spark batch job, in a container, too ...")
        cluster.run("python", "-m", "lockgate_devtools.demo.batch", str(_INPUT), str(_BATCH))
        somewhere = cluster.containers("taskmanager")[0]
        for path in (_DATABASE, _BATCH):
            cluster.copy(somewhere, str(path), folder / path.name)
    return compare_with_batch(folder / _DATABASE.name, read_result(folder / _BATCH.name), was_killed=show.was_killed)


def _wait_ready(client: Client) -> None:
    """Waits until every task manager has registered. Raises UserError."""
    deadline, pause, reason = time.monotonic() + _READY_LIMIT_S, threading.Event(), ""
    while time.monotonic() < deadline:
        try:
            status = client.cluster()
        except ClientError as error:
            reason = str(error)
        else:
            if len(status.task_managers) >= _TASK_MANAGERS:
                leader = status.leader.address if status.leader else ""
                say(f"ready: {len(status.coordinators)} coordinators, {leader} leads, {_TASK_MANAGERS} task managers")
                return
            reason = f"{len(status.task_managers)} of {_TASK_MANAGERS} task managers are registered"
        pause.wait(_LOOK_EVERY_S)
    raise UserError(f"the cluster was not ready after {_READY_LIMIT_S:g} s: {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
