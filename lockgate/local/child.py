"""`python -m lockgate.local.child ROLE SPEC`: one process of a local cluster.

SPEC is JSON: {"parent": pid, "secret_file": path, "settings": {...}}. The process dies with the one that started
it, even when that one is killed: on Linux the kernel sees to it.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_ZOOKEEPER_START_MS = 60_000


def main(arguments: Sequence[str]) -> int:
    """Runs one role until SIGTERM. Returns the exit code: 0 clean, 2 user error (one line on stderr), 1 fault."""
    role, spec = arguments[0], json.loads(arguments[1])
    # A ZooKeeper server is a process of its own below this one, which has to live long enough to end it.
    die_with(int(spec["parent"]), signal.SIGTERM if role == "zookeeper" else signal.SIGKILL)
    logging.basicConfig(
        level=os.environ.get("LOCKGATE_LOG_LEVEL", "INFO"),
        format="%(asctime)s.%(msecs)03d %(levelname)s %(threadName)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        stream=sys.stderr,
    )
    for noisy in ("kazoo", "py4j"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    run = {"zookeeper": _zookeeper, "coordinator": _coordinator, "taskmanager": _task_manager}[role]
    return run(spec["settings"], spec["secret_file"])


def die_with(parent: int, number: int) -> None:
    """Signal `number` reaches this process as soon as `parent` is gone. Does nothing where it cannot be had."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request
        os._exit(1)


def _zookeeper(settings: Mapping[str, Any], _secret_file: str) -> int:
    from ha.errors import ZooKeeperStartError
    from ha.zookeeper.server import Member, ZooKeeperServer
    from lockgate.local.serving import serve

    server = ZooKeeperServer(
        Path(settings["data_dir"]),
        port=settings["port"],
        members=[Member(*member) for member in settings["members"]],
        number=settings["number"],
    )
    try:
        return serve([server], _ZOOKEEPER_START_MS)
    except ZooKeeperStartError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 2


def _coordinator(settings: Mapping[str, Any], secret_file: str) -> int:
    from lockgate_proto.security import Credentials

    from coordinator.runtime.process import run
    from coordinator.runtime.settings import CoordinatorSettings

    return run(CoordinatorSettings(**settings, credentials=Credentials(secret=_secret(secret_file))))


def _task_manager(settings: Mapping[str, Any], secret_file: str) -> int:
    from lockgate_proto.security import Credentials

    from taskmanager.runtime.process import run
    from taskmanager.runtime.settings import TaskManagerSettings

    return run(TaskManagerSettings(**settings, credentials=Credentials(secret=_secret(secret_file))))


def _secret(path: str) -> str:
    from lockgate_proto.security import load_secret

    return load_secret(Path(path), create=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
