"""The commands that run the processes of a real cluster, each in the foreground until SIGTERM or Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click
from lockgate_common import logs
from lockgate_common import settings as common

from lockgate.commands.options import spark_options as with_spark
from lockgate.commands.options import spark_pairs
from lockgate.errors import SettingsError

F = TypeVar("F", bound=Callable[..., Any])

_COMMON = (
    click.option("--zookeeper", metavar="HOST:PORT,...", help="The ensemble.  [default: 127.0.0.1:2181]"),
    click.option("--cluster-name", metavar="NAME", help="The cluster's name in ZooKeeper.  [default: default]"),
    click.option(
        "--secret-file", metavar="FILE", help="The secret that all processes and clients share; created if missing."
    ),
    click.option("--config", metavar="FILE", help="Settings file.  [default: ./lockgate.toml]"),
    click.option("--log-level", type=click.Choice(logs.LEVELS), help="[default: INFO]"),
    click.option("--log-format", type=click.Choice(logs.FORMATS), help="Format of the log on stderr.  [default: text]"),
)


def _common_options(function: F) -> F:
    for option in reversed(_COMMON):
        function = option(function)
    return function


def start_logging(level: str | None = None, form: str | None = None, default_level: str = "INFO") -> None:
    """As logs.start_logging. Raises SettingsError of the command line."""
    try:
        logs.start_logging(level or "", form or "", default_level)
    except common.SettingsError as error:
        raise SettingsError(str(error)) from error


@click.command()
@click.option("--bind", metavar="HOST:PORT", help="Where the job API listens.  [default: 127.0.0.1:7070]")
@click.option("--advertise", metavar="HOST:PORT", help="The address that others connect to.  [default: as bound]")
@click.option(
    "--dashboard", metavar="HOST:PORT|off", help="The web dashboard.  [default: 127.0.0.1:7080, or a free port]"
)
@click.option("--storage", metavar="DIR|URI", help="Snapshots; one place that every process reaches.")
@click.option("--id", "coordinator_id", metavar="ID", help="Its name in listings.  [default: generated]")
@_common_options
def coordinator(
    bind: str | None,
    advertise: str | None,
    dashboard: str | None,
    storage: str | None,
    coordinator_id: str | None,
    zookeeper: str | None,
    cluster_name: str | None,
    secret_file: str | None,
    config: str | None,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Run one coordinator. Run two or more: one leads, the others take over when it dies.

    To listen beyond 127.0.0.1 it needs TLS ([tls] in the settings file) and a secret.

    \b
    Examples:
      lockgate coordinator --storage /shared/lockgate
      lockgate coordinator --storage /shared/lockgate --bind 127.0.0.1:7071      # a standby
      lockgate coordinator --config /etc/lockgate.toml
    """
    from lockgate.settings import load_settings

    start_logging(log_level, log_format)
    settings = load_settings(
        config,
        {
            "coordinator": {"bind": bind, "advertise": advertise, "dashboard": dashboard, "id": coordinator_id},
            "storage": {"directory": storage},
            "zookeeper": {"hosts": zookeeper},
            "cluster": {"name": cluster_name},
            "security": {"secret_file": secret_file},
        },
    )
    chosen = settings.coordinator_settings()
    from lockgate_coordinator.runtime.process import run
    from lockgate_web.dashboard import Dashboard

    return run(chosen, Dashboard)


@click.command()
@click.option("--slots", type=int, metavar="N", help="Subtasks of each operator it can run.  [default: 2]")
@click.option("--bind", metavar="HOST:PORT", help="Where the data exchange listens.  [default: 127.0.0.1, a free port]")
@click.option("--advertise", metavar="HOST:PORT", help="The address that others connect to.  [default: as bound]")
@with_spark("local[SLOTS]")
@click.option("--work-dir", metavar="DIR", help="Spark's scratch files.  [default: a temporary folder]")
@click.option("--id", "task_manager_id", metavar="ID", help="Its name in listings.  [default: generated]")
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
    log_format: str | None,
) -> int:
    """Run one task manager: it finds the leader through ZooKeeper and offers its slots.

    \b
    Examples:
      lockgate taskmanager
      lockgate taskmanager --slots 4 --spark-option spark.driver.memory=4g
      lockgate taskmanager --config /etc/lockgate.toml
    """
    from lockgate.settings import load_settings

    start_logging(log_level, log_format)
    settings = load_settings(
        config,
        {
            "taskmanager": {
                "slots": slots,
                "bind": bind,
                "advertise": advertise,
                "spark_master": spark_master,
                "spark_options": spark_pairs(spark_options) or None,
                "work_dir": work_dir,
                "id": task_manager_id,
            },
            "zookeeper": {"hosts": zookeeper},
            "cluster": {"name": cluster_name},
            "security": {"secret_file": secret_file},
        },
    )
    chosen = settings.task_manager_settings()
    from lockgate_taskmanager.runtime.process import run

    if chosen.work_dir:
        return run(chosen)
    with TemporaryDirectory(prefix="lockgate-taskmanager-", ignore_cleanup_errors=True) as folder:
        return run(replace(chosen, work_dir=folder))


@click.command()
@click.option("--force", is_flag=True, help="Create it again.")
def prepare(force: bool) -> int:
    """Prepare this machine once, which takes half a minute: task managers then start in half the time.

    The classes that Java loads for Spark are kept in a file under ~/.cache/lockgate (about 180 MB). `make setup` does
    this, too. Repeat it after an upgrade of Java; an archive that does not fit is ignored.

    \b
    Examples:
      lockgate prepare
      lockgate prepare --force
    """
    from lockgate_taskmanager.runtime.preparation import prepare as make_archive
    from lockgate_taskmanager.task.program import ProgramError

    from lockgate.errors import UserError

    try:
        click.echo(f"ready: {make_archive(force, click.echo)}")
    except (ProgramError, OSError) as error:
        raise UserError(str(error)) from error
    return 0
