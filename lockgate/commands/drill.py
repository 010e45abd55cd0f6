"""`lockgate drill` and `lockgate demo`."""

from __future__ import annotations

from typing import Any

import click

from lockgate.commands.options import spark_options as with_spark
from lockgate.commands.options import spark_settings

_TARGETS = ("leader", "standby", "taskmanager", "zookeeper")


@click.command()
@click.option(
    "--kill", type=click.Choice(_TARGETS), default="leader", show_default=True, help="What to kill with SIGKILL."
)
@click.option("--times", type=click.IntRange(1), metavar="N", default=3, show_default=True, help="How many kills.")
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0),
    metavar="SECONDS",
    default=5.0,
    show_default=True,
    help="Seconds between recovery and the next kill.",
)
@click.option("--seed", type=int, metavar="N", help="Repeats a drill: same victims, same moments.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON.")
@click.option("--cluster", metavar="ADDRESSES|DIR", help="Target a running cluster.  [default: one of its own]")
@click.option("--dir", "directory", metavar="DIR", help="Keep data and logs there.  [default: a temporary folder]")
@click.option("--storage", metavar="DIR|URI", help="Snapshots of its own cluster.  [default: DIR/storage]")
@click.option("--slots", type=click.IntRange(1, 64), metavar="N", help="Slots of each task manager.  [default: 2]")
@with_spark("local[SLOTS]")
def drill(
    kill: str,
    times: int,
    every_s: float,
    seed: int | None,
    json_file: str | None,
    cluster: str | None,
    directory: str | None,
    storage: str | None,
    slots: int | None,
    spark_master: str | None,
    spark_options: tuple[str, ...],
) -> int:
    """Kill parts of a cluster under load, measure the recovery, and account for every record.

    Starts 2 coordinators, 2 task managers and ZooKeeper in a temporary folder, unless --cluster names a running
    cluster; with zookeeper.tls in the settings, over TLS. Exits with 0 only when nothing was lost or duplicated.

    \b
    Examples:
      lockgate drill
      lockgate drill --kill taskmanager --times 5 --every 10
      lockgate drill --kill leader --times 20 --seed 7 --json report.json
      lockgate drill --cluster .lockgate
      lockgate drill --storage 's3://bucket/drill?endpoint_override=s3.example:9000&scheme=http'
      lockgate drill --slots 1 --spark-master spark://spark.example:7077
    """
    from lockgate_devtools.drill import Target, run_drill

    from lockgate.settings import load_settings

    own: dict[str, Any] = {"slots": slots} if slots else {}
    own |= {"storage": storage} if storage else {}
    own |= {"taskmanager": spark} if (spark := spark_settings(spark_master, spark_options)) else {}
    if not cluster and (tls := load_settings().zookeeper_tls()):
        own |= {"zookeeper_tls": tls}
    return run_drill(
        kill=Target(kill),
        times=times,
        every_s=every_s,
        seed=seed,
        json_file=json_file or "",
        cluster=cluster or "",
        directory=directory or "",
        cluster_options=own,
    )


@click.command()
@click.option("--input", "folder", metavar="FOLDER", help="Text files to count.  [default: Python's standard library]")
def demo(folder: str | None) -> int:
    """Count words on a cluster of real processes, kill the leader in the middle, compare with plain Spark.

    \b
    Examples:
      lockgate demo
      lockgate demo --input ~/books
    """
    from lockgate_devtools.demo.__main__ import main

    return main(["--input", folder] if folder else [])
