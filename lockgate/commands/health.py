"""`lockgate health`: a probe for supervisors. Supervisors call it every few seconds, so it imports little."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import click
from lockgate_common.security import Credentials, SecurityError, TlsFiles
from lockgate_common.tls import client_context

from lockgate.commands.options import SecondsRange
from lockgate.errors import UserError

_SETTINGS_VARIABLES = ("LOCKGATE_CONFIG", "LOCKGATE_ZOOKEEPER_TLS")

_REASONS = {
    "ready": "it has not joined the cluster yet, or is shutting down",
    "leader": "it is not the leader",
    "alive": "it is stopping",
}


@click.command()
@click.argument("address", metavar="HOST:PORT")
@click.option("--zookeeper", "is_zookeeper", is_flag=True, help="HOST:PORT is a ZooKeeper server.")
@click.option("--leader", "is_leader", is_flag=True, help="Check whether this coordinator is the leader.")
@click.option("--alive", "is_alive", is_flag=True, help="Check only whether it is running.")
@click.option("--timeout", "timeout_s", type=SecondsRange(), default=3.0, show_default=True, metavar="SECONDS")
@click.option("--config", metavar="FILE", help="Settings file, for TLS.  [default: ./lockgate.toml]")
def health(
    address: str, is_zookeeper: bool, is_leader: bool, is_alive: bool, timeout_s: float, config: str | None
) -> int:
    """Ask whether the process at HOST:PORT is ready to serve: exit code 0 when it is, 1 when it is not.

    A coordinator is ready once it leads or stands by, a task manager once its Spark is warm and a leader has registered
    it; both stay so when they lose ZooKeeper or the leader. A ZooKeeper server is ready while it is part of the quorum.

    \b
    Examples:
      lockgate health 127.0.0.1:7070
      lockgate health 127.0.0.1:7070 --leader
      lockgate health 127.0.0.1:7080 --alive
      lockgate health 127.0.0.1:2181 --zookeeper
    """
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdigit():
        raise click.UsageError(f"{address!r} is not HOST:PORT")
    if is_zookeeper + is_leader + is_alive > 1:
        raise click.UsageError("give one of --zookeeper, --leader and --alive")
    if is_zookeeper:
        state = _ask_zookeeper(host, int(port), config, timeout_s)
    else:
        check = "leader" if is_leader else "alive" if is_alive else "ready"
        state = _ask(address, check, _credentials(config), timeout_s)
    click.echo(f"{address} is {state}")
    return 1 if state.startswith("not ") else 0


def _credentials(config: str | None) -> Credentials:
    """The TLS files of the connection.

    Variables have priority over every file, so when they name the authority no file is read.
    """
    names = ("CERTIFICATE", "KEY", "AUTHORITY")
    certificate, key, authority = (os.path.expanduser(os.environ.get(f"LOCKGATE_TLS_{name}", "")) for name in names)
    if authority and not config:
        return Credentials(tls=TlsFiles(certificate, key, authority))
    from lockgate.settings import load_settings

    return load_settings(config, {}).credentials()


def _ask_zookeeper(host: str, port: int, config: str | None, timeout_s: float) -> str:
    """`ready`, or why it is not. Settings are read only where there are any: that takes longer than the question."""
    from lockgate_devtools.zookeeper.server import is_serving

    tls = None
    if config or any(name in os.environ for name in _SETTINGS_VARIABLES) or Path("lockgate.toml").is_file():
        from lockgate.settings import load_settings

        tls = load_settings(config).zookeeper_tls()
    try:
        context = client_context(tls) if tls is not None else None
        if is_serving(host, port, timeout_s, context):
            return "ready"
    except SecurityError as error:
        raise UserError(str(error)) from error
    except ssl.SSLCertVerificationError:
        pass  # this is the reason that will be found
    from lockgate_ha.zookeeper.reasons import trouble

    return f"not ready: {trouble(f'{host}:{port}', tls) or 'no answer, or no quorum'}"


def _ask(address: str, check: str, credentials: Credentials, timeout_s: float) -> str:
    """`ready` (or `alive`), or why it is not. check: ready, leader or alive."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from lockgate_proto.rpc import LEADER, READY

    service = {"ready": READY, "leader": LEADER, "alive": ""}[check]
    good = "alive" if check == "alive" else "ready"
    try:
        with credentials.channel(address) as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=timeout_s)
    except SecurityError as error:
        raise UserError(str(error)) from error
    except grpc.RpcError as error:
        details = error.details() or error.code().name
        problem = credentials.handshake_problem(details)
        return f"not {good}: it {problem}" if problem else f"not {good}: {details}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return good
    return f"not {good}: {_REASONS[check]}"
