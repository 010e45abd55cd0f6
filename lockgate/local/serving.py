"""ZooKeeper servers that run until this process is asked to stop."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence

from ha.zookeeper.server import ZooKeeperServer
from lockgate_process.stop_signals import stop_signals

_LOOK_EVERY_S = 0.2


def serve(servers: Sequence[ZooKeeperServer], timeout_ms: float) -> int:
    """Runs them until a signal, or until all have ended, which is a fault. Returns the exit code: 0, or 1 for a fault.

    Prints one line when all serve. timeout_ms: for that. Raises ZooKeeperStartError.
    """
    asked = threading.Event()
    with stop_signals(lambda _: asked.set(), (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)):
        try:
            for one in servers:
                one.launch()
            for one in servers:
                one.wait_serving(timeout_ms, asked.is_set)
            if not asked.is_set():
                _tell_ready(servers)
            while not asked.wait(_LOOK_EVERY_S) and any(one.wait(0) is None for one in servers):
                pass
        finally:
            for one in servers:
                one.stop()
    if asked.is_set():
        return 0
    logs = ", ".join(str(one.log_file) for one in servers)
    print(f"error: ZooKeeper has ended by itself; see {logs}", file=sys.stderr, flush=True)
    return 1


def _tell_ready(servers: Sequence[ZooKeeperServer]) -> None:
    addresses = ",".join(one.address for one in servers)
    print(f"lockgate zookeeper ready: address={addresses} pid={','.join(str(one.pid) for one in servers)}", flush=True)
