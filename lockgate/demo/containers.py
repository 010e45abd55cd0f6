"""`python -m lockgate.demo.containers [--input FOLDER]`: see `make docker-demo`."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from lockgate_proto.messages import LeaderRecord

from lockgate.client import Client, ClientError
from lockgate.demo import wordcount
from lockgate.demo.__main__ import carry_out
from lockgate.demo.batch import read_result
from lockgate.demo.corpus import stage
from lockgate.demo.show import CHECKPOINT_INTERVAL_MS, Show, give_verdict, micro_batches, say
from lockgate.errors import UserError
from lockgate.local.compose import COORDINATORS, ComposeCluster

_COMPOSE_FILE = Path(__file__).resolve().parents[2] / "docker" / "compose.yaml"
_TASK_MANAGERS = 3
_READY_LIMIT_S = 180.0
_LOOK_EVERY_S = 0.5
# As the containers see them.
_INPUT = Path("/input")
_DATABASE = Path("/var/lib/lockgate/words.db")
_BATCH = Path("/var/lib/lockgate/batch.parquet")


def main(arguments: Sequence[str]) -> int:
    """Runs the demo. Returns 0 when every count is right, 1 when one is wrong, 2 when it could not be carried out."""
    parser = argparse.ArgumentParser(
        prog="python -m lockgate.demo.containers",
        description="Counts words on a cluster in containers, kills the leader's container in the middle, and "
        "compares every count with a plain Spark batch job over the same files.",
    )
    parser.add_argument("--input", metavar="FOLDER", help="text files to count (default: Python's standard library)")
    parser.add_argument("--file", metavar="FILE", type=Path, default=_COMPOSE_FILE, help="the compose file")
    chosen = parser.parse_args(arguments)
    source = Path(chosen.input).expanduser() if chosen.input else None
    return carry_out(lambda folder: _in_containers(folder, source, chosen.file))


def _in_containers(folder: Path, source: Path | None, file: Path) -> bool:
    """True when every count is right."""
    corpus = stage(source, folder / "input")
    say(f"input: {corpus.title}: {corpus.files:,} files, {corpus.total_bytes / 1e6:.1f} MB")
    say("starting 3 ZooKeeper servers, 3 coordinators and 3 task managers, each in a container of its own ...")
    cluster = ComposeCluster(
        folder, file, "lockgate-demo", task_manager=micro_batches(corpus), input_folder=corpus.folder
    )
    with cluster:
        # Looked up beforehand: at the moment of the kill a single command is left to run.
        containers = {name: cluster.containers(name)[0] for name in COORDINATORS}

        def kill(leader: LeaderRecord) -> str:
            cluster.kill(containers[leader.coordinator_id])
            return f"container {containers[leader.coordinator_id][:12]}"

        show = Show(corpus, kill)
        with Client(cluster.addresses(), credentials=cluster.credentials()) as client:
            _wait_ready(client)
            show.count(client, wordcount.graph(_INPUT, _DATABASE, CHECKPOINT_INTERVAL_MS))
        say("now the same counts by a plain Spark batch job, in a container, too ...")
        cluster.run("python", "-m", "lockgate.demo.batch", str(_INPUT), str(_BATCH))
        somewhere = cluster.containers("taskmanager")[0]
        for path in (_DATABASE, _BATCH):
            cluster.copy(somewhere, str(path), folder / path.name)
    return give_verdict(folder / _DATABASE.name, read_result(folder / _BATCH.name), was_killed=show.was_killed)


def _wait_ready(client: Client) -> None:
    """Until every task manager has registered. Raises UserError."""
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
            reason = f"{len(status.task_managers)} of {_TASK_MANAGERS} task managers are there"
        pause.wait(_LOOK_EVERY_S)
    raise UserError(f"the cluster was not ready after {_READY_LIMIT_S:g} s: {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
