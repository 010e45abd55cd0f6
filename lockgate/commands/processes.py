"""The processes of a real cluster, each in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_COMMON = (
    click.option("--zookeeper", metavar="HOST:PORT,...", help="The ensemble.  [default: 127.0.0.1:2181]"),
    click.option("--cluster-name", metavar="NAME", help="The cluster's name in ZooKeeper.  [default: default]"),
    click.option(
        "--secret-file", metavar="FILE", help="The secret that all processes and clients share; made when missing."
    ),
    click.option("--config", metavar="FILE", help="Settings file.  [default: ./lockgate.toml]"),
    click.option("--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), help="[default: INFO]"),
)


def _common_options(function: F) -> F:
    for option in reversed(_COMMON):
        function = option(function)
    return function


def start_logging(level: str | None) -> None:
    """Log lines on stderr; `level` or LOCKGATE_LOG_LEVEL or INFO."""
    logging.basicConfig(
        level=level or os.environ.get("LOCKGATE_LOG_LEVEL") or "INFO",
        format="%(asctime)s.%(msecs)03d %(levelname)s %(threadName)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )


@click.command()
@click.option("--dir", "directory", default=".lockgate/zookeeper", show_default=True, help="Its data and log.")
@click.option(
    "--port", type=click.IntRange(1, 65533), metavar="N", default=2181, show_default=True, help="Of the first server."
)
@click.option(
    "--servers", type=click.Choice(["1", "3"]), default="1", show_default=True, help="3 survive the loss of 1."
)
def zookeeper(directory: str, port: int, servers: str) -> int:
    """Run ZooKeeper on this machine, out of PySpark's own jars: for development, not for production.

    \b
    Examples:
      lockgate zookeeper
      lockgate zookeeper --dir /tmp/zk --port 2281
      lockgate zookeeper --servers 3
    """
    from ha.errors import ZooKeeperStartError
    from ha.zookeeper.server import ZooKeeperEnsemble
    from lockgate.errors import UserError
    from lockgate.local.foreground import Stopped, stopped_by_signals

    start_logging(os.environ.get("LOCKGATE_LOG_LEVEL", "WARNING"))
    ensemble = None
    try:
        with stopped_by_signals():
            ensemble = ZooKeeperEnsemble(Path(directory).absolute(), int(servers), port=port)
            ensemble.start()
            pids = ",".join(str(one.pid) for one in ensemble.servers)
            click.echo(f"lockgate zookeeper ready: address={ensemble.address} pid={pids}")
            for one in ensemble.servers:
                one.wait()
    except Stopped:
        return 0
    except ZooKeeperStartError as error:
        raise UserError(str(error)) from error
    finally:
        if ensemble is not None:
            ensemble.stop()
    click.echo(f"error: every ZooKeeper server has ended; see the logs in {directory}", err=True)
    return 1


@click.command()
@click.option("--bind", metavar="HOST:PORT", help="Where the job API listens.  [default: 127.0.0.1:7070]")
@click.option("--advertise", metavar="HOST:PORT", help="What others are told to connect to.  [default: as bound]")
@click.option("--storage", metavar="DIR|URI", help="Snapshots; one place that every process reaches.")
@click.option("--id", "coordinator_id", metavar="ID", help="Its name in listings.  [default: made up]")
@_common_options
def coordinator(
    bind: str | None,
    advertise: str | None,
    storage: str | None,
    coordinator_id: str | None,
    zookeeper: str | None,
    cluster_name: str | None,
    secret_file: str | None,
    config: str | None,
    log_level: str | None,
) -> int:
    """Run one coordinator. Run two or more: one leads, the others take over when it dies.

    Beyond 127.0.0.1 it listens only with TLS ([tls] in the settings file) and a secret.

    \b
    Examples:
      lockgate coordinator --storage /shared/lockgate
      lockgate coordinator --storage /shared/lockgate --bind 127.0.0.1:7071      # a standby
      lockgate coordinator --config /etc/lockgate.toml
    """
    from lockgate.settings import load_settings

    start_logging(log_level)
    settings = load_settings(
        config,
        {
            "coordinator": {"bind": bind, "advertise": advertise, "id": coordinator_id},
            "storage": {"directory": storage},
            "zookeeper": {"hosts": zookeeper},
            "cluster": {"name": cluster_name},
            "security": {"secret_file": secret_file},
        },
    )
    chosen = settings.coordinator_settings()
    from coordinator.runtime.process import run

    return run(chosen)


@click.command()
@click.option(
    "--slots", type=click.IntRange(1, 1024), metavar="N", help="Subtasks of each operator it can run.  [default: 2]"
)
@click.option("--bind", metavar="HOST:PORT", help="Where the data exchange listens.  [default: 127.0.0.1, a free port]")
@click.option("--advertise", metavar="HOST:PORT", help="What others are told to connect to.  [default: as bound]")
@click.option("--spark-master", metavar="URL", help="[default: local[SLOTS]]")
@click.option(
    "--spark-option", "spark_options", metavar="KEY=VALUE", multiple=True, help="Spark configuration; may be repeated."
)
@click.option("--work-dir", metavar="DIR", help="Spark's scratch files.  [default: a temporary folder]")
@click.option("--id", "task_manager_id", metavar="ID", help="Its name in listings.  [default: made up]")
@_common_options
def taskmanager(
    slots: int | None,
    bind: str | None,
    advertise: str | None,
    spark_master: str | None,
    spark_options: tuple[str, ...],
    work_dir: str | None,
    task_manager_id: str | None,
    zookeeper: str | None,
    cluster_name: str | None,
    secret_file: str | None,
    config: str | None,
    log_level: str | None,
) -> int:
    """Run one task manager: it finds the leader through ZooKeeper and offers its slots.

    \b
    Examples:
      lockgate taskmanager
      lockgate taskmanager --slots 4 --spark-option spark.driver.memory=4g
      lockgate taskmanager --config /etc/lockgate.toml
    """
    from lockgate.settings import load_settings

    start_logging(log_level)
    settings = load_settings(
        config,
        {
            "taskmanager": {
                "slots": slots,
                "bind": bind,
                "advertise": advertise,
                "spark_master": spark_master,
                "spark_options": _pairs(spark_options) or None,
                "work_dir": work_dir,
                "id": task_manager_id,
            },
            "zookeeper": {"hosts": zookeeper},
            "cluster": {"name": cluster_name},
            "security": {"secret_file": secret_file},
        },
    )
    chosen = settings.task_manager_settings()
    from taskmanager.runtime.process import run

    if chosen.work_dir:
        return run(chosen)
    with TemporaryDirectory(prefix="lockgate-taskmanager-", ignore_cleanup_errors=True) as folder:
        return run(replace(chosen, work_dir=folder))


def _pairs(options: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name:
            raise click.UsageError(f"--spark-option takes KEY=VALUE, not {option!r}")
        pairs[name.strip()] = value.strip()
    return pairs
