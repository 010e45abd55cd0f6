"""`python -m benchmarks.containers`: the compose cluster's leader is killed, then cut off without a sound."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

from lockgate_devtools.drill import DrillOptions, Report, Tally, Target
from lockgate_devtools.drill.containers import ContainerArena, Damage
from lockgate_devtools.drill.run import drill_in
from lockgate_devtools.equipment.compose import ComposeCluster

from benchmarks.common import Measurement, Row, at_most, parser, run, say
from benchmarks.failover import exact, summary
from lockgate.client import Client

_COMPOSE_FILE = Path(__file__).resolve().parents[1] / "docker" / "compose.yaml"
_TASK_MANAGERS = 3


def measure(arguments: argparse.Namespace) -> Measurement:
    """Both drills on one cluster. It is made of the image `lockgate:latest`, which `make docker-image` builds."""
    with tempfile.TemporaryDirectory(prefix="lockgate-containers-") as name:
        folder = Path(name)
        (folder / "input").mkdir()
        cluster = ComposeCluster(
            folder, _COMPOSE_FILE, "lockgate-benchmark", task_manager={}, input_folder=folder / "input"
        )
        say("starting 3 ZooKeeper servers, 3 coordinators and 3 task managers in containers ...")
        with cluster, Client(cluster.addresses(), credentials=cluster.credentials()) as client:
            killed = _drill(client, cluster, folder, Damage.KILL, arguments.times, arguments)
            cut = _drill(client, cluster, folder, Damage.CUT, arguments.cuts, arguments)
    rows: list[Row] = []
    values: dict[str, Any] = {"seed": arguments.seed}
    for blow, report in ((Damage.KILL, killed), (Damage.CUT, cut)):
        if report is not None:
            found = values[f"leader_{blow.name.lower()}"] = summary(report)
            rows += _rows(blow, found["first_record_ms"])
    return Measurement(tuple(rows), values)


def _rows(blow: Damage, times: dict[str, Any]) -> list[Row]:
    count = len(times["all"])
    if blow is Damage.KILL:
        return [
            at_most("leader's container killed, first new record, median", times["median"], 600, "ms"),
            at_most(f"leader's container killed, first new record, worst of {count}", times["worst"], 1500, "ms"),
        ]
    return [
        Row("leader cut off silently, first new record, median", f"{times['median']:.4g} ms"),
        at_most(f"leader cut off silently, first new record, worst of {count}", times["worst"], 3000, "ms"),
    ]


def _drill(
    client: Client, cluster: ComposeCluster, folder: Path, blow: Damage, times: int, arguments: argparse.Namespace
) -> Report | None:
    if times == 0:
        return None
    say(f"the leader, {times} times: {blow.value}")
    options = DrillOptions(kill=Target.LEADER, times=times, every_s=arguments.every)
    arena = ContainerArena(client, cluster, folder, task_managers=_TASK_MANAGERS, blow=blow)
    tally = Tally(arguments.seed)
    drill_in(options, tally, arena, say)
    arena.restore_containers()
    return exact(tally.report())


def main() -> int:
    """Command line."""
    options = parser("containers", "Strikes the leader of the compose cluster while a job runs.")
    options.add_argument("--times", type=int, default=10, help="kills of the leader's container, 0 for none")
    options.add_argument("--cuts", type=int, default=5, help="silent cuts of the leader's network, 0 for none")
    options.add_argument("--every", type=float, default=3.0, help="seconds between a whole cluster and the next blow")
    options.add_argument("--seed", type=int, default=1, help="of the moments")
    return run(options.parse_args(), measure)


if __name__ == "__main__":
    sys.exit(main())
