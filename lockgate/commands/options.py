"""Options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lockgate.commands.working import working

if TYPE_CHECKING:
    from lockgate.client import Client, ClusterTarget

F = TypeVar("F", bound=Callable[..., Any])

_TARGET = (
    click.option(
        "--cluster", metavar="ADDRESSES|DIR", help="HOST:PORT[,HOST:PORT], or the folder of a `lockgate cluster`."
    ),
    click.option("--zookeeper", metavar="HOST:PORT,...", help="Find the leader through ZooKeeper."),
    click.option("--cluster-name", metavar="NAME", help="The cluster's name in ZooKeeper.  [default: default]"),
    click.option("--secret-file", metavar="FILE", help="The secret shared with the cluster."),
    click.option("--config", metavar="FILE", help="Settings file.  [default: ./lockgate.toml]"),
)
_TARGET_NAMES = ("cluster", "zookeeper", "secret_file", "config", "cluster_name")
_COMPLETION_PATIENCE_MS = 1_000
LONGEST_S = 86_400  # a day


class SecondsRange(click.FloatRange):
    """Seconds, from `least` to `most`, both included; click's own range lets NaN pass."""

    def __init__(self, least: float = 0.1, most: float = LONGEST_S) -> None:
        super().__init__(least, most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


def target_options(function: F) -> F:
    """`--cluster`, `--zookeeper`, `--cluster-name`, `--secret-file`, `--config`: the arguments of `find`."""
    for option in reversed(_TARGET):
        function = option(function)
    return function


def job_argument(function: F) -> F:
    """`KEY` of a job, which a shell completes with the keys of the cluster."""
    return click.argument("key", shell_complete=_job_keys)(function)


def optional_job_argument(function: F) -> F:
    """The same, which may be left out."""
    return click.argument("key", required=False, shell_complete=_job_keys)(function)


def _job_keys(ctx: click.Context, _param: click.Parameter, typed: str) -> list[str]:
    """Keys that begin as typed, newest job first; none when no cluster answers: a shell has no place for an error."""
    from lockgate.client import Client, ClientError

    try:
        target = find({name: ctx.params.get(name) for name in _TARGET_NAMES})
        with Client.connect(target, patience_ms=_COMPLETION_PATIENCE_MS) as client:
            listed = sorted(client.jobs(with_subtasks=False), key=lambda job: job.submitted_unix_ms, reverse=True)
    except (ClientError, click.ClickException, OSError, ValueError):
        return []
    return [job.job_key for job in listed if job.job_key.startswith(typed)]


def json_option(function: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)


def zookeepers_option(function: F) -> F:
    """`--zookeepers`, of a cluster on this machine: None for one server."""
    return click.option(
        "--zookeepers", type=click.Choice(["1", "3"]), help="ZooKeeper servers.  [default: 1]", callback=_number
    )(function)


def _number(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | None:
    return None if value is None else int(value)


def tls_config_option(function: F) -> F:
    """`--config`, of a cluster on this machine."""
    return click.option(
        "--config", metavar="FILE", help="Settings file, for [tls] and zookeeper.tls.  [default: ./lockgate.toml]"
    )(function)


def spark_options(default: str) -> Callable[[F], F]:
    """`--spark-master` and `--spark-option`. default: the help text's default for the master."""

    def add(function: F) -> F:
        for option in (
            click.option(
                "--spark-option",
                "spark_options",
                metavar="KEY=VALUE",
                multiple=True,
                help="Spark configuration; may be repeated.",
            ),
            click.option(
                "--spark-master", metavar="URL", help=f"local[N], spark://..., sc://...  [default: {default}]"
            ),
        ):
            function = option(function)
        return function

    return add


def spark_pairs(options: tuple[str, ...]) -> dict[str, str]:
    """The `--spark-option` values as pairs. Raises click.UsageError."""
    pairs = {}
    for option in options:
        name, separator, value = option.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"--spark-option takes KEY=VALUE, not {option!r}")
        pairs[name.strip()] = value.strip()
    return pairs


def spark_settings(master: str | None, options: tuple[str, ...]) -> dict[str, Any]:
    """Fields of TaskManagerSettings for the task managers of a local cluster. Raises click.UsageError."""
    pairs = spark_pairs(options)
    return ({"spark_master": master} if master else {}) | ({"spark_options": pairs} if pairs else {})


def find(target: dict[str, str | None]) -> ClusterTarget:
    """The cluster selected by the target options. Raises UserError."""
    from lockgate.client import find_cluster

    named = target["secret_file"]
    if named and not Path(named).expanduser().exists():
        raise click.UsageError(f"--secret-file: there is no file {named}")
    return find_cluster(*(target[name] for name in _TARGET_NAMES))


def connect(target: dict[str, str | None]) -> Client:
    """A client of the cluster selected by the target options."""
    from lockgate.client import Client

    return Client.connect(find(target))


@contextmanager
def asking(target: dict[str, str | None], text: str) -> Iterator[Client]:
    """A client for the block, which only waits for its answers. text: shown meanwhile, see `working`."""
    with connect(target) as client, working(text):
        yield client
