"""`lockgate tokens`: callers that may do some things, without the cluster's secret."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockgate.commands.options import json_option
from lockgate.errors import UserError

if TYPE_CHECKING:
    from lockgate.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9._@-]{1,64}")
_DAY_S = 86_400
_FILES = (
    click.option("--secret-file", metavar="FILE", help="The cluster's secret.  [default: ~/.config/lockgate/secret]"),
    click.option("--tokens-file", metavar="FILE", help="Where coordinators find tokens.  [default: beside the secret]"),
    click.option("--config", metavar="FILE", help="Settings file.  [default: ./lockgate.toml]"),
)


def _with_files(function: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_FILES):
        function = option(function)
    return function


@click.group()
def tokens() -> None:
    """Create, list and remove tokens. A token gives its holder the rights of its roles until it expires.

    Run it where the coordinators run, as their user. They see the change at once. With several hosts, copy the token
    file to each of them.

    \b
    Roles:
      read     see jobs and processes
      submit   jobs of SQL and built-in operators (which read and write what the cluster's user can), and read
      code     jobs with Python functions and connectors, which run as the cluster's user, and submit
      operate  savepoint, stop, cancel, release, rescale, dispose of savepoints, and read
      admin    everything

    \b
    Examples:
      lockgate tokens create reports --role read --days 90 > token    # then: chmod 600 token
      lockgate tokens create nightly --role submit --role operate
      LOCKGATE_TOKEN_FILE=token lockgate jobs --cluster 127.0.0.1:7070
      lockgate tokens remove nightly
    """


@tokens.command()
@click.argument("name")
@click.option(
    "--role",
    "roles",
    multiple=True,
    required=True,
    type=click.Choice(["read", "submit", "code", "operate", "admin"]),
    help="What it is for; may be repeated.",
)
@click.option("--days", type=click.IntRange(1, 36_500), metavar="N", help="It expires after N days.  [default: never]")
@_with_files
def create(name: str, roles: tuple[str, ...], days: int | None, **files: str | None) -> int:
    """Create a token and print it. It is shown only once: the cluster keeps a hash."""
    from lockgate_common.token_book import TokenFileError, issue, remove

    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} is not a name; use 1 to 64 of A-Z a-z 0-9 . _ @ -")
    settings = _settings(files)
    secret = settings.credentials(create=True).secret
    ends = int(time.time()) + days * _DAY_S if days else 0
    try:
        token = issue(settings.tokens_path, secret, name, tuple(dict.fromkeys(roles)), ends)
    except TokenFileError as error:
        raise UserError(str(error)) from error
    try:
        click.echo(str(token))
        sys.stdout.flush()
    except OSError as error:  # a full disk, or no reader: it is lost
        remove(settings.tokens_path, name)
        raise UserError(f"the token could not be printed, so it was not made: {error.strerror}") from error
    click.echo(f"added to {settings.tokens_path}; keep the token in a file of mode 600", err=True)
    return 0


@tokens.command(name="list")
@json_option
@_with_files
def list_tokens(as_json: bool, **files: str | None) -> int:
    """List names, roles and expiry dates."""
    from lockgate_common.token_book import TokenFileError, read_entries

    try:
        entries = read_entries(_settings(files).tokens_path)
    except TokenFileError as error:
        raise UserError(str(error)) from error
    if as_json:
        found = [
            {"name": entry.name, "roles": list(entry.roles), "ends_unix_s": entry.ends_unix_s or None}
            for entry in entries
        ]
        click.echo(json.dumps(found, indent=2))
        return 0
    for entry in entries:
        click.echo(f"{entry.name}  {','.join(entry.roles)}  {_end(entry.ends_unix_s)}")
    if not entries:
        click.echo("there are no tokens", err=True)
    return 0


@tokens.command()
@click.argument("name")
@_with_files
def remove(name: str, **files: str | None) -> int:
    """Remove a token. It is invalid from then on."""
    from lockgate_common.token_book import TokenFileError
    from lockgate_common.token_book import remove as remove_token

    path = _settings(files).tokens_path
    try:
        if not remove_token(path, name):
            raise UserError(f"there is no token named {name!r} in {path}; `lockgate tokens list` shows them")
    except TokenFileError as error:
        raise UserError(str(error)) from error
    return 0


def _settings(files: dict[str, str | None]) -> Settings:
    from lockgate.settings import load_settings

    security = {"secret_file": files["secret_file"], "tokens_file": files["tokens_file"]}
    found = load_settings(files["config"], {"security": security})
    if not found.tokens_path.parent.is_dir() and files["tokens_file"]:
        raise UserError(f"the folder {Path(found.tokens_path).parent} does not exist")
    return found


def _end(ends_unix_s: int) -> str:
    if not ends_unix_s:
        return "never ends"
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(ends_unix_s))
    return f"expired on {day}" if ends_unix_s <= time.time() else f"until {day}"
