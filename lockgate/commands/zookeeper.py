"""`lockgate zookeeper`: servers on this machine, or one server of an ensemble on several."""

from __future__ import annotations

import math
import os
from pathlib import Path

import click

from lockgate.commands.processes import start_logging


@click.command()
@click.option("--dir", "directory", default=".lockgate/zookeeper", show_default=True, help="Its data and log.")
@click.option(
    "--port", type=click.IntRange(1, 65533), metavar="N", default=2181, show_default=True, help="Of the first server."
)
@click.option("--servers", type=click.Choice(["1", "3"]), help="All on this machine; 3 survive the loss of 1.")
@click.option("--server-id", type=click.IntRange(1, 255), metavar="N", help="Which one of --ensemble this is.")
@click.option(
    "--ensemble",
    metavar="HOST[:PEER_PORT:ELECTION_PORT],...",
    help="Run one server of an ensemble on several machines: all its servers, in the same order everywhere.  "
    "[default ports: 2888, 3888]",
)
@click.option("--bind", metavar="HOST", help="Where clients are served.  [default: 127.0.0.1; with --ensemble 0.0.0.0]")
def zookeeper(
    directory: str, port: int, servers: str | None, server_id: int | None, ensemble: str | None, bind: str | None
) -> int:
    """Run ZooKeeper out of PySpark's own jars: all servers on this machine, or one server of an ensemble.

    \b
    Examples:
      lockgate zookeeper
      lockgate zookeeper --servers 3 --dir /tmp/zk --port 2281
      lockgate zookeeper --server-id 1 --ensemble zk1.example,zk2.example,zk3.example --dir /var/lib/zookeeper
    """
    from ha.errors import ZooKeeperStartError
    from lockgate.errors import UserError

    start_logging(os.environ.get("LOCKGATE_LOG_LEVEL", "WARNING"))
    if (server_id is None) != (ensemble is None):
        raise click.UsageError("--server-id and --ensemble go together: which server this is, and of which ensemble")
    try:
        if ensemble is not None and server_id is not None:
            if servers is not None:
                raise click.UsageError("--servers is for servers on this machine only; --ensemble names them all")
            return _run_member(Path(directory).absolute(), port, server_id, ensemble, bind or "0.0.0.0")
        return _run_here(Path(directory).absolute(), port, int(servers or "1"), bind or "127.0.0.1")
    except ZooKeeperStartError as error:
        raise UserError(str(error)) from error


def _run_here(folder: Path, port: int, count: int, bind: str) -> int:
    from ha.zookeeper.server import ZooKeeperEnsemble
    from lockgate.local.serving import serve

    ensemble = ZooKeeperEnsemble(folder, count, port=port, bind=bind)
    return serve(ensemble.servers, 30_000)


def _run_member(folder: Path, port: int, number: int, ensemble: str, bind: str) -> int:
    from ha.zookeeper.server import ZooKeeperServer, parse_members
    from lockgate.local.serving import serve

    members = parse_members(ensemble)
    if number > len(members):
        raise click.UsageError(f"--server-id {number}, but --ensemble names {len(members)} servers only")
    # It serves when most of the others are there: that may take as long as it likes.
    return serve([ZooKeeperServer(folder, port=port, bind=bind, members=members, number=number)], math.inf)
