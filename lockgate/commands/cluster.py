"""`lockgate cluster`."""

from __future__ import annotations

import click

from lockgate.commands.options import spark_options as with_spark
from lockgate.commands.options import spark_settings, tls_config_option, zookeepers_option


@click.command()
@click.option(
    "--coordinators",
    type=click.IntRange(1, 9),
    metavar="N",
    default=2,
    show_default=True,
    help="One leads, the rest stand by.",
)
@click.option("--taskmanagers", type=click.IntRange(0, 64), metavar="N", default=2, show_default=True)
@click.option(
    "--slots", type=click.IntRange(1, 64), metavar="N", default=2, show_default=True, help="Slots of each task manager."
)
@zookeepers_option
@click.option("--zookeeper", metavar="HOST:PORT,...", help="Use a ZooKeeper that is already running.")
@click.option("--dir", "directory", default=".lockgate", show_default=True, help="Data, logs and cluster.json.")
@click.option("--storage", metavar="DIR|URI", help="Snapshots.  [default: DIR/storage]")
@click.option(
    "--port",
    "ports",
    type=click.IntRange(1, 65535),
    metavar="N",
    multiple=True,
    help="A coordinator's port; repeat it for each.  [default: free ones]",
)
@click.option(
    "--zookeeper-port",
    "zookeeper_ports",
    type=click.IntRange(1, 65535),
    metavar="N",
    multiple=True,
    help="[default: free ones]",
)
@tls_config_option
@with_spark("local[SLOTS]")
def cluster(
    coordinators: int,
    taskmanagers: int,
    slots: int,
    zookeepers: int | None,
    zookeeper: str | None,
    directory: str,
    storage: str | None,
    ports: tuple[int, ...],
    zookeeper_ports: tuple[int, ...],
    config: str | None,
    spark_master: str | None,
    spark_options: tuple[str, ...],
) -> int:
    """Run a whole cluster on this machine, in the foreground: ZooKeeper, coordinators, task managers.

    It uses these settings: [tls], zookeeper.tls and its files, taskmanager.folders and taskmanager.variables.

    Prints one line with the addresses when it is ready. Ctrl-C or SIGTERM stops every process it started; one that
    dies is started again. Commands in the same folder find it automatically (./.lockgate).

    \b
    Examples:
      lockgate cluster
      lockgate cluster --coordinators 3 --taskmanagers 1 --slots 4
      lockgate cluster --slots 1 --spark-master spark://spark.example:7077
      lockgate certificates tls && lockgate cluster --config lockgate.toml    # with [tls] in it
      lockgate cluster --dir /tmp/lg &      then: lockgate jobs --cluster /tmp/lg
    """
    from lockgate_devtools.cluster import run_cluster

    from lockgate.commands.processes import start_logging
    from lockgate.settings import load_settings

    if zookeeper and (zookeepers or zookeeper_ports):
        raise click.UsageError(
            "--zookeepers and --zookeeper-port are for the cluster's own ZooKeeper: omit them, or --zookeeper"
        )
    settings = load_settings(config)
    start_logging(default_level="WARNING")
    return run_cluster(
        directory,
        coordinators=coordinators,
        taskmanagers=taskmanagers,
        slots=slots,
        zookeepers=0 if zookeeper else zookeepers or 1,
        zookeeper=zookeeper or "",
        zookeeper_tls=settings.zookeeper_tls(),
        storage=storage or "",
        coordinator_ports=ports,
        zookeeper_ports=zookeeper_ports,
        tls=settings.server_tls_files(),
        coordinator={"certificate_roles": settings.certificate_roles()},
        taskmanager=spark_settings(spark_master, spark_options) | settings.limits_of_jobs(),
    )
