"""`lockgate certificates`: an authority and certificates, for trying and for clusters without another issuer."""

from __future__ import annotations

from pathlib import Path

import click

from lockgate.errors import UserError

_HOSTS = ("localhost", "127.0.0.1", "::1")
_NAME = "host"


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--name", "names", metavar="NAME", multiple=True, help=f"Common name and file name; repeatable.  [default: {_NAME}]"
)
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="Name or address of a server that uses it; repeatable.  [default: this machine's loopback without --name,"
    " else none]",
)
@click.option("--days", type=click.IntRange(1, 3_650), metavar="N", default=365, show_default=True)
def certificates(folder: Path, names: tuple[str, ...], hosts: tuple[str, ...], days: int) -> int:
    """Make certificates in FOLDER, signed by the authority there (ca.pem and ca.key, created if missing).

    With --host a certificate serves both sides of a connection, without it only clients. Nothing is overwritten.

    \b
    Examples:
      lockgate certificates tls                                      # for a cluster on this machine
      lockgate certificates tls --name c1 --host c1.example --host 10.0.0.1
      lockgate certificates tls --name alice --days 90               # a client: give it a role in [tls.roles]
    """
    from lockgate_common import private_folder
    from lockgate_common.certificate_hosts import alternative_name
    from lockgate_common.certificates import load_authority, make_authority
    from lockgate_common.security import SecurityError

    hosts = hosts or (() if names else _HOSTS)
    chosen = tuple(dict.fromkeys(names or (_NAME,)))
    for name in chosen:
        _check(name, folder)
    try:
        for host in hosts:
            alternative_name(host)  # before anything is made
        private_folder.make_missing(folder)
        authority = load_authority(folder)
        if authority is None:
            authority = make_authority(folder, "Lockgate cluster")
            click.echo(f"made the authority {authority.file}; its key {folder / 'ca.key'} signs further certificates:")
            click.echo("keep it away from the hosts of the cluster")
        made = [authority.issue(folder, name, hosts, days) for name in chosen]
    except SecurityError as error:
        raise UserError(str(error)) from error
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
    for name, files in zip(chosen, made, strict=True):
        click.echo(f"made {files.certificate} and {files.key}, {_use(name, hosts)}, for {days} days")
    _say_what_next(folder.absolute(), chosen, hosts)
    return 0


def _check(name: str, folder: Path) -> None:
    """Before anything is made. Raises UserError."""
    if name == "ca" or name.startswith(".") or any(part in name for part in "/\\\0\n"):
        raise UserError(
            f"{name!r} is not a valid name for a certificate: it is also the name of its files, and `ca` is taken"
        )
    for path in (folder / f"{name}.pem", folder / f"{name}.key"):
        if path.exists():
            raise UserError(f"{path} exists already, and nothing is overwritten; remove it, or choose another --name")


def _use(name: str, hosts: tuple[str, ...]) -> str:
    return f"for {', '.join(hosts)}" if hosts else f"for the client {name!r}"


def _say_what_next(folder: Path, names: tuple[str, ...], hosts: tuple[str, ...]) -> None:
    first = folder / names[0]
    click.echo("\nnext, for each process and client that uses them:" if hosts else "\nnext, for each client:")
    click.echo(f"  export LOCKGATE_TLS_AUTHORITY={folder / 'ca.pem'} LOCKGATE_TLS_MUTUAL=true \\")
    click.echo(f"    LOCKGATE_TLS_CERTIFICATE={first}.pem LOCKGATE_TLS_KEY={first}.key")
    if not hosts:
        click.echo("and in the settings of the coordinators, so that it needs neither secret nor token:")
        click.echo("  [tls.roles]")
        for name in names:
            click.echo(f'  "{name}" = "read"')
