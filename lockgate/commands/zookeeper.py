"""`lockgate zookeeper`: servers on this machine, or one server of an ensemble on several; access to its nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from lockgate.commands.processes import start_logging

if TYPE_CHECKING:
    from lockgate_ha.protection import Protection

    from lockgate.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])


@click.group(invoke_without_command=True)
@click.option("--dir", "directory", default=".lockgate/zookeeper", show_default=True, help="Its data and log.")
@click.option(
    "--port",
    type=click.IntRange(1, 65533),
    metavar="N",
    default=2181,
    show_default=True,
    help="Port of the first server.",
)
@click.option("--servers", type=click.Choice(["1", "3"]), help="All on this machine; 3 survive the loss of 1.")
@click.option("--server-id", type=click.IntRange(1, 255), metavar="N", help="The number of this server in --ensemble.")
@click.option(
    "--ensemble",
    metavar="HOST[:PEER_PORT:ELECTION_PORT],...",
    help="Run one server of an ensemble on several machines: all its servers, in the same order everywhere.  "
    "[default ports: 2888, 3888]",
)
@click.option(
    "--bind", metavar="HOST", help="Where it listens for clients.  [default: 127.0.0.1; with --ensemble 0.0.0.0]"
)
@click.option("--shared", is_flag=True, help="Let everyone create nodes, including clusters with other secrets.")
@click.option(
    "--config", metavar="FILE", help="Settings file, for the secret and zookeeper.tls.  [default: ./lockgate.toml]"
)
@click.pass_context
def zookeeper(
    context: click.Context,
    directory: str,
    port: int,
    servers: str | None,
    server_id: int | None,
    ensemble: str | None,
    bind: str | None,
    shared: bool,
    config: str | None,
) -> int:
    """Run ZooKeeper from PySpark's own jars: all servers on this machine, or one server of an ensemble.

    Without a subcommand it runs until Ctrl-C. With zookeeper.tls in the settings it speaks TLS only, to clients and
    among its servers. If there is a secret file, only clusters with that secret can create nodes. A secret file that
    is named must exist.

    \b
    Examples:
      lockgate zookeeper
      lockgate zookeeper --servers 3 --dir /tmp/zk --port 2281
      lockgate zookeeper --server-id 1 --ensemble zk1.example,zk2.example,zk3.example --dir /var/lib/zookeeper
    """
    if context.invoked_subcommand is not None:
        _refuse_options(context, context.invoked_subcommand)
        return 0
    from lockgate_common.security import SecurityError, load_secret
    from lockgate_common.uris import absolute
    from lockgate_ha.errors import ZooKeeperStartError

    from lockgate.errors import UserError
    from lockgate.settings import load_settings

    start_logging(default_level="WARNING")
    if (server_id is None) != (ensemble is None):
        raise click.UsageError("--server-id and --ensemble must be given together")
    if ensemble is not None and servers is not None:
        raise click.UsageError("--servers is for servers on this machine only; --ensemble names them all")
    folder, settings = Path(absolute(directory)), load_settings(config)
    try:
        secret = load_secret(settings.secret_path, create=False)
        if settings.security.secret_file and not secret:
            raise UserError(
                f"the secret file {settings.secret_path} does not exist; without it everyone could create nodes: "
                "create it, or unset security.secret_file (LOCKGATE_SECRET_FILE)"
            )
        options = {"tls": settings.zookeeper_tls(), "secret": secret, "shared": shared}
        if ensemble is not None and server_id is not None:
            return _run_member(folder, port, server_id, ensemble, bind or "0.0.0.0", options)
        return _run_here(folder, port, int(servers or "1"), bind or "127.0.0.1", options)
    except (ZooKeeperStartError, SecurityError) as error:
        raise UserError(str(error)) from error


def _refuse_options(context: click.Context, subcommand: str) -> None:
    """They are of the server to run; the subcommand would go on without them, at another ensemble perhaps."""
    for option in context.command.params:
        if context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"{option.opts[0]} before {subcommand} is for the server that `lockgate zookeeper` runs; "
                f"`lockgate zookeeper {subcommand} --help` lists the options to give after it"
            )


def _run_here(folder: Path, port: int, count: int, bind: str, options: dict[str, Any]) -> int:
    from lockgate_devtools.zookeeper.server import ZooKeeperEnsemble
    from lockgate_devtools.zookeeper.serving import serve

    ensemble = ZooKeeperEnsemble(folder, count, port=port, bind=bind, **options)
    return serve(ensemble.servers, 30_000)


def _run_member(folder: Path, port: int, number: int, ensemble: str, bind: str, options: dict[str, Any]) -> int:
    from lockgate_devtools.zookeeper.server import ZooKeeperServer, parse_members
    from lockgate_devtools.zookeeper.serving import serve

    members = parse_members(ensemble)
    if number > len(members):
        raise click.UsageError(f"--server-id {number}, but --ensemble names {len(members)} servers only")
    # It starts serving when a majority is up, which may take any time.
    server = ZooKeeperServer(folder, port=port, bind=bind, members=members, number=number, **options)
    return serve([server], math.inf)


_CLUSTER = (
    click.option("--cluster-name", metavar="NAME", help="The cluster's name in ZooKeeper.  [default: default]"),
    click.option("--secret-file", metavar="FILE", help="The cluster's secret."),
    click.option("--config", metavar="FILE", help="Settings file.  [default: ./lockgate.toml]"),
)


def _cluster_options(function: F) -> F:
    for option in reversed(_CLUSTER):
        function = option(function)
    return function


def _protection(config: str | None, cluster: dict[str, dict[str, str | None]]) -> tuple[Settings, Protection]:
    """The settings, and how they protect the cluster's nodes. Raises UserError without a secret."""
    from lockgate_ha.protection import Protection

    from lockgate.errors import UserError
    from lockgate.settings import load_settings

    settings = load_settings(config, cluster)
    secret = settings.credentials().secret
    if not secret:
        raise UserError("there is no secret file; name the cluster's with --secret-file")
    return settings, Protection(settings.cluster.name, secret)


@zookeeper.command()
@click.option("--zookeeper", "hosts", metavar="HOST:PORT,...", help="The ensemble.  [default: 127.0.0.1:2181]")
@_cluster_options
@click.option("--former-secret-file", metavar="FILE", help="The secret that has protected it so far, if any.")
def protect(
    hosts: str | None,
    cluster_name: str | None,
    secret_file: str | None,
    former_secret_file: str | None,
    config: str | None,
) -> int:
    """Protect a stopped cluster's nodes with its secret: seal every record, and deny access without the secret.

    New clusters are protected from the start. Use this for a cluster of an earlier version, and to change the secret.
    Stop every coordinator and task manager first. The command trusts the content of an unprotected cluster, so check
    the jobs that it lists, and the snapshots that they start from.

    \b
    Examples:
      lockgate zookeeper protect
      lockgate zookeeper protect --secret-file new --former-secret-file old
    """
    from lockgate_common.masking import masked
    from lockgate_common.security import SecurityError, load_secret
    from lockgate_ha.errors import StoreError
    from lockgate_ha.protection import Protection
    from lockgate_ha.zookeeper.protecting import protect as protect_nodes

    from lockgate.errors import UserError
    from lockgate.settings import DEFAULT_ZOOKEEPER

    settings, protection = _protection(
        config,
        {
            "zookeeper": {"hosts": hosts},
            "cluster": {"name": cluster_name},
            "security": {"secret_file": secret_file},
        },
    )
    name = protection.cluster
    try:
        former = load_secret(Path(former_secret_file).expanduser(), create=False) if former_secret_file else ""
        if former_secret_file and not former:
            raise UserError(f"{former_secret_file} does not exist; if there was none, omit --former-secret-file")
        hosts, tls = settings.zookeeper.hosts or DEFAULT_ZOOKEEPER, settings.zookeeper_tls()
        found = protect_nodes(hosts, Protection(name, former), protection, _checksum_of, tls)
    except (StoreError, SecurityError) as error:
        raise UserError(str(error)) from error
    click.echo(f"cluster {name}: {found.nodes} nodes are protected, {found.records} records were sealed now")
    click.echo(f"jobs: {', '.join(found.jobs) or 'none'}")
    for key, snapshot in found.starts.items():
        click.echo(f"job {key} starts from {masked(snapshot)}, which an earlier version has not sealed, as it is now")
    for key, why in found.unread.items():
        click.echo(f"job {key} will be held back: {why}; run this again where the snapshot can be read", err=True)
    return 1 if found.unread else 0


def _checksum_of(pointer: str) -> str:
    from lockgate_coordinator.runtime.errors import StorageError
    from lockgate_coordinator.runtime.metadata_files import start_checksum
    from lockgate_ha.zookeeper.protecting import SnapshotUnread

    try:
        return start_checksum(pointer)
    except StorageError as error:
        raise SnapshotUnread(str(error)) from error


@zookeeper.command()
@_cluster_options
def user(cluster_name: str | None, secret_file: str | None, config: str | None) -> int:
    """Print the lines that give ZooKeeper's own zkCli.sh access to the cluster's nodes. Keep them secret.

    \b
    Example:
      (lockgate zookeeper user; echo "deleteall /lockgate/default") | zkCli.sh -server 127.0.0.1:2181
    """
    from lockgate_ha.protection import maker

    _, protection = _protection(config, {"cluster": {"name": cluster_name}, "security": {"secret_file": secret_file}})
    owner = protection.owner
    assert owner is not None  # there is a secret
    for login in (owner, maker(protection.secret)):
        click.echo(f"addauth digest {login.user}:{login.password}")
    return 0
