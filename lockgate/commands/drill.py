"""`lockgate drill` and `lockgate demo`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from lockgate.commands.options import spark_options as with_spark
from lockgate.commands.options import spark_settings, tls_config_option, zookeepers_option

_TARGETS = ("leader", "standby", "taskmanager", "zookeeper")


@click.command()
@click.option("--kill", type=click.Choice(_TARGETS), help="What to kill with SIGKILL.  [default: leader]")
@click.option("--times", type=click.IntRange(1), metavar="N", help="How many kills.  [default: 3]")
@click.option(
    "--chaos",
    is_flag=True,
    help="Attack everything in turn instead: leader, standby, task manager, both at once, ZooKeeper, with SIGKILL;"
    " leader and task manager with SIGSTOP; the storage, which is away or full; links, which are cut in both directions"
    " or in one; clocks, which are set off.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    help="How long, with --chaos; the last round is completed.  [default: 5]",
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="Seconds between recovery and the next kill.",
)
@click.option(
    "--leader-failover",
    type=click.Choice(("reattach", "restart")),
    default="reattach",
    show_default=True,
    help="Whether a new leader adopts the running attempt or restarts the job.",
)
@click.option(
    "--task-manager-failover",
    type=click.Choice(("whole", "part")),
    default="whole",
    show_default=True,
    help="Whether the death of a task manager restarts the whole job or only what ran there.",
)
@click.option(
    "--standby-replicas",
    type=click.IntRange(0, 8),
    metavar="N",
    default=0,
    show_default=True,
    help="Task managers that keep copies of the job's newest snapshot.",
)
@click.option(
    "--forward",
    is_flag=True,
    help="Run a job without exchange: when a task manager dies, only the part that ran there restarts.",
)
@click.option("--seed", type=int, metavar="N", help="Repeats a drill: same victims, same moments.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON.")
@click.option(
    "--html",
    "html_file",
    metavar="FILE",
    help="Write the report as one HTML page; with --chaos, with the throughput around every kill.",
)
@click.option("--cluster", metavar="ADDRESSES|DIR", help="Target a running cluster.  [default: one of its own]")
@click.option("--dir", "directory", metavar="DIR", help="Keep data and logs there.  [default: a temporary folder]")
@click.option("--storage", metavar="DIR|URI", help="Snapshots of its own cluster.  [default: DIR/storage]")
@click.option("--slots", type=click.IntRange(1, 64), metavar="N", help="Slots of each task manager.  [default: 2]")
@zookeepers_option
@tls_config_option
@with_spark("local[SLOTS]")
def drill(
    kill: str | None,
    times: int | None,
    chaos: bool,
    minutes: float | None,
    every_s: float,
    leader_failover: str,
    task_manager_failover: str,
    standby_replicas: int,
    forward: bool,
    seed: int | None,
    json_file: str | None,
    html_file: str | None,
    cluster: str | None,
    directory: str | None,
    storage: str | None,
    slots: int | None,
    zookeepers: int | None,
    config: str | None,
    spark_master: str | None,
    spark_options: tuple[str, ...],
) -> int:
    """Kill parts of a cluster under load, measure the recovery, and account for every record.

    Starts 2 coordinators, 2 task managers and ZooKeeper in a temporary folder, unless --cluster names a running
    cluster; over TLS if [tls] or zookeeper.tls is set. Exits with 0 only when nothing was lost or duplicated.

    \b
    Examples:
      lockgate drill
      lockgate drill --kill leader --times 20 --seed 7 --json report.json
      lockgate drill --kill taskmanager --times 5 --every 10 --standby-replicas 1
      lockgate drill --kill taskmanager --task-manager-failover part
      lockgate drill --chaos --minutes 10 --seed 7 --html report.html
      lockgate drill --cluster .lockgate
      lockgate drill --storage 's3://bucket/drill?endpoint_override=s3.example:9000&scheme=http'
      lockgate drill --slots 1 --spark-master spark://spark.example:7077
    """
    from lockgate_devtools.drill import Target, run_drill

    from lockgate.pipeline.job import FAILOVERS, PARTS

    _check(chaos, minutes, counted=bool(kill or times), config=config, cluster=cluster)
    given = {"slots": slots, "zookeepers": zookeepers, "storage": storage}
    return run_drill(
        kill=Target(kill or "leader"),
        times=times or 3,
        minutes=(minutes or 5.0) if chaos else 0.0,
        every_s=every_s,
        seed=seed,
        json_file=json_file or "",
        html_file=html_file or "",
        cluster=cluster or "",
        directory=directory or "",
        failover=FAILOVERS[leader_failover],
        parts=PARTS[task_manager_failover],
        standby_replicas=standby_replicas,
        is_forward=forward,
        cluster_options=_own(given, spark_settings(spark_master, spark_options), cluster, config),
    )


def _own(given: Mapping[str, Any], spark: Mapping[str, Any], cluster: str | None, config: str | None) -> dict[str, Any]:
    """Options of the drill's own cluster. given: from the command line, None or 0 for a default."""
    from lockgate_devtools.cluster.from_settings import tls_options

    found = {name: value for name, value in {**given, "taskmanager": spark}.items() if value}
    return found | ({} if cluster else tls_options(config))


def _check(chaos: bool, minutes: float | None, *, counted: bool, config: str | None, cluster: str | None) -> None:
    """counted: one target, or a number of kills, is given."""
    if chaos and counted:
        raise click.UsageError("--chaos attacks everything for some --minutes: omit --kill and --times, or --chaos")
    if minutes and not chaos:
        raise click.UsageError("--minutes is for --chaos; a drill with one target ends after --times kills")
    if config and cluster:
        raise click.UsageError("--config is for the drill's own cluster: omit it, or --cluster")


@click.command()
@click.option("--input", "folder", metavar="FOLDER", help="Text files to count.  [default: Python's standard library]")
@zookeepers_option
@tls_config_option
def demo(folder: str | None, zookeepers: int | None, config: str | None) -> int:
    """Count words on a cluster of real processes, kill the leader in the middle, compare with plain Spark.

    Over TLS if [tls] or zookeeper.tls is set.

    \b
    Examples:
      lockgate demo
      lockgate demo --input ~/books
      lockgate demo --zookeepers 3 --config lockgate.toml
    """
    from lockgate_devtools.demo.__main__ import run

    return run(folder or "", zookeepers or 1, config)
