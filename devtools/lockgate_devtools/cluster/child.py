"""`python -m lockgate_devtools.cluster.child ROLE`: one process of a local cluster.

Reads JSON from its standard input: {"parent": pid, "secret_file": path, "tls": {...} or null, "zookeeper_tls": {...} or
null, "settings": {...}}; the two are fields of TlsFiles. Settings may be secret, so they are no arguments, which every
user of the machine can list. The process dies with the one that started it, even when that one is killed: on Linux the
kernel ensures it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lockgate_common.json_input import parse_json
from lockgate_common.logs import start_logging
from lockgate_common.settings import SettingsError
from lockgate_common.tls import TlsFiles

if TYPE_CHECKING:
    from lockgate_common.security import Credentials

_PR_SET_PDEATHSIG = 1
_ZOOKEEPER_START_MS = 60_000


def main(arguments: Sequence[str]) -> int:
    """Runs one role until SIGTERM. Returns the exit code: 0, 2 for a user error (one line on stderr), 1 otherwise."""
    role, spec = arguments[0], parse_json(sys.stdin.read())
    # A ZooKeeper server is a process of its own below this one, which has to live long enough to end it.
    die_with(int(spec["parent"]), signal.SIGTERM if role == "zookeeper" else signal.SIGKILL)
    try:
        start_logging()
    except SettingsError as error:
        return _refused(error)
    zookeeper_tls = TlsFiles(**spec["zookeeper_tls"]) if spec["zookeeper_tls"] else None
    from lockgate_common.security import Credentials, load_secret

    secret_file = Path(spec["secret_file"])
    secret = load_secret(secret_file, create=True)
    if role == "zookeeper":
        return _zookeeper(spec["settings"], secret, zookeeper_tls)
    tls = TlsFiles(**spec["tls"]) if spec["tls"] else None
    credentials = Credentials(secret, tls, zookeeper=zookeeper_tls)
    if role == "taskmanager":
        return _task_manager(spec["settings"], secret_file, credentials)
    return _coordinator(spec["settings"], secret_file, credentials)


def die_with(parent: int, number: int) -> None:
    """The kernel sends signal `number` to this process as soon as `parent` ends.

    Does nothing on systems without this.
    """
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the request
        os._exit(1)


def _zookeeper(settings: Mapping[str, Any], secret: str, tls: TlsFiles | None) -> int:
    from lockgate_ha.errors import ZooKeeperStartError

    from lockgate_devtools.zookeeper.server import Member, ZooKeeperServer
    from lockgate_devtools.zookeeper.serving import serve

    server = ZooKeeperServer(
        Path(settings["data_dir"]),
        port=settings["port"],
        members=[Member(*member) for member in settings["members"]],
        number=settings["number"],
        tls=tls,
        secret=secret,
    )
    try:
        return serve([server], _ZOOKEEPER_START_MS)
    except ZooKeeperStartError as error:
        return _refused(error)


def _refused(error: Exception) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    return 2


def _coordinator(settings: Mapping[str, Any], secret_file: Path, credentials: Credentials) -> int:
    from lockgate_coordinator.runtime.process import run
    from lockgate_coordinator.runtime.settings import CoordinatorSettings, JwtSettings
    from lockgate_web.dashboard import Dashboard

    given = {"tokens_file": _tokens(secret_file), **settings}
    if jwt := given.get("jwt"):
        given["jwt"] = JwtSettings(**jwt)
    return run(CoordinatorSettings(**given, credentials=credentials), Dashboard)


def _task_manager(settings: Mapping[str, Any], secret_file: Path, credentials: Credentials) -> int:
    from lockgate_taskmanager.runtime.process import run
    from lockgate_taskmanager.runtime.settings import TaskManagerSettings

    return run(TaskManagerSettings(**settings, tokens_file=_tokens(secret_file), credentials=credentials))


def _tokens(secret_file: Path) -> str:
    from lockgate_common.security import default_tokens_file

    return str(default_tokens_file(secret_file))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
