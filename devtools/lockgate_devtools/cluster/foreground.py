"""`lockgate cluster`: a local cluster in the foreground."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from lockgate_common.security import default_secret_file
from lockgate_common.stop_signals import stop_signals, without_nohup

from lockgate_devtools.cluster.cluster import LocalCluster
from lockgate_devtools.cluster.errors import ClusterError
from lockgate_devtools.cluster.options import ClusterOptions

_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(BaseException):
    """SIGTERM, SIGINT or SIGHUP was received."""


def run_cluster(directory: str | Path, options: ClusterOptions | None = None, **changes: Any) -> int:
    """Starts a cluster in `directory`, prints one line when it is ready, and stops all of it on SIGTERM or SIGINT.

    Progress goes to stderr: a line for each process that is ready, has ended, or is started again.

    Keyword arguments replace single fields of ClusterOptions. Returns the exit code: 0 after a clean stop, 2 when it
    cannot start (one line `error: ...` on stderr), 1 when it fails later. Without `secret_file` it uses the user's own
    (LOCKGATE_SECRET_FILE, or the default), which clients use by default.
    """
    was_ready, asked = False, threading.Event()
    try:
        cluster = LocalCluster(directory, options, notice=_note, **changes)
        if not cluster.options.secret_file:
            shared = os.environ.get("LOCKGATE_SECRET_FILE") or str(default_secret_file())
            cluster = LocalCluster(directory, cluster.options, notice=_note, secret_file=shared)
        _note(f"starting {_processes(cluster.options)} in {cluster.directory}; Ctrl-C ends them")

        def stop(_number: int) -> None:
            asked.set()
            cluster.stop()

        with stop_signals(stop, _NUMBERS), cluster:
            was_ready = True
            _write(_ready_line(cluster), sys.stdout)
            cluster.wait()
    except ClusterError as error:
        if asked.is_set():  # ends a start in this way
            return 0
        _write(f"error: {error}", sys.stderr)
        return 1 if was_ready else 2
    return 0


@contextlib.contextmanager
def stopped_by_signals() -> Iterator[None]:
    """SIGTERM, SIGINT or SIGHUP raises Stopped in the main thread, so that `with` blocks are left in order.

    Later ones are ignored meanwhile: stopping is in progress and has deadlines of its own. But an exception is lost
    where it is raised inside a callback or `__del__`; then the next signal raises again.
    """
    latest: weakref.ref[Stopped] | None = None  # alive as long as it is on its way

    def on_signal(_number: int, _frame: object) -> None:
        nonlocal latest
        if latest is not None and latest() is not None:
            gc.collect()  # of a lost one its own traceback may be what keeps it
        if latest is None or latest() is None:
            stopped = Stopped()
            latest = weakref.ref(stopped)
            try:
                raise stopped
            finally:
                del stopped  # its traceback has this frame

    before = {number: signal.signal(number, on_signal) for number in without_nohup(_NUMBERS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _note(line: str) -> None:
    _write(f"{time.strftime('%H:%M:%S')} {line}", sys.stderr)


def _write(line: str, stream: TextIO) -> None:
    """The cluster outlives a reader that has gone, and a full disk under a log."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=stream, flush=True)


def _processes(options: ClusterOptions) -> str:
    names = {"zookeeper": "ZooKeeper server", "coordinator": "coordinator", "taskmanager": "task manager"}
    counts = [(options.count(role), name) for role, name in names.items() if options.count(role)]
    return ", ".join(f"{count} {name}{'s' if count > 1 else ''}" for count, name in counts)


def _ready_line(cluster: LocalCluster) -> str:
    return (
        f"lockgate cluster ready: coordinators={','.join(cluster.coordinators)} "
        f"zookeeper={cluster.zookeeper} dir={cluster.directory} dashboard={cluster.dashboard}"
    )
