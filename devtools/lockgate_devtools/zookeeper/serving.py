"""Runs ZooKeeper servers until this process is asked to stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from lockgate_common.stop_signals import stop_signals

from lockgate_devtools.zookeeper.server import ZooKeeperServer

_LOOK_EVERY_S = 0.2


def serve(servers: Sequence[ZooKeeperServer], timeout_ms: float) -> int:
    """Runs them until a signal, or until all have ended unexpectedly. Returns the exit code: 0, or 1 for the latter.

    Prints one line when all serve. timeout_ms: for that. Raises ZooKeeperStartError.
    """
    asked = threading.Event()
    with stop_signals(lambda _: asked.set(), (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        try:
            for server in servers:
                server.launch()
            for server in servers:
                server.wait_serving(timeout_ms, asked.is_set)
            if not asked.is_set():
                _print_ready(servers)
            while not asked.wait(_LOOK_EVERY_S) and any(server.wait(0) is None for server in servers):
                pass
        finally:
            for server in servers:
                server.stop()
    if asked.is_set():
        return 0
    logs = ", ".join(str(server.log_file) for server in servers)
    print(f"error: ZooKeeper ended unexpectedly; see {logs}", file=sys.stderr, flush=True)
    return 1


def _print_ready(servers: Sequence[ZooKeeperServer]) -> None:
    addresses = ",".join(server.address for server in servers)
    print(
        f"lockgate zookeeper ready: address={addresses} pid={','.join(str(server.pid) for server in servers)}",
        flush=True,
    )
