"""`lockgate logs`."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import click

from lockgate.commands.log_lines import OfJob, Parser, Record
from lockgate.commands.options import asking, find, optional_job_argument, target_options
from lockgate.commands.working import working
from lockgate.errors import ClusterFileError

_FOLLOW_S = 0.3


@click.command()
@optional_job_argument
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines, until Ctrl-C.")
@click.option("--tail", type=click.IntRange(1), metavar="N", help="Only the last N records.")
@target_options
def logs(key: str | None, follow: bool, tail: int | None, **target: str | None) -> None:
    """Show the logs of a `lockgate cluster`, its processes merged by time; with KEY only the lines about that job.

    What a job's code prints is in the logs of its task managers, and shown with the job's lines. The logs of other
    clusters are on their hosts: the command says which processes run where.

    \b
    Examples:
      lockgate logs
      lockgate logs wordcount-1f2e3d4c --follow
      lockgate logs wordcount-1f2e3d4c --tail 20
    """
    folder = _folder(target)
    if folder is None:
        click.echo(_elsewhere(target))
        return
    logs = [Log(path, key) for path in sorted(folder.glob("*.log"))]
    found: Iterable[Record] = merged(logs)
    shown = 0
    if tail:
        with working(f"reading {folder}"):
            found = deque(found, tail)
    for record in found:
        shown += 1
        _show(record)
    if follow:
        _follow(folder, key, logs)
    elif not shown:
        click.echo(f"{folder} has no lines" + (f" of job {key}; `lockgate jobs` lists the jobs" if key else ""))


def merged(logs: Iterable[Log]) -> Iterator[Record]:
    """The records so far, by time; those of one log stay in their order."""
    return heapq.merge(*(log.read() for log in logs), key=lambda record: record.at)


class Log:
    """One log file, from its beginning to its last complete line, and on from there."""

    def __init__(self, path: Path, key: str | None) -> None:
        self.path = path
        self._file: IO[bytes] = path.open("rb")
        self._parser = Parser(path.stem)
        self._picked = OfJob(key) if key else None
        self._part = b""

    def read(self) -> Iterator[Record]:
        """The records that are new since the last call."""
        for record in [*self._parser.take(self._lines()), *self._parser.rest()]:
            if self._picked is None or self._picked.takes(record):
                yield record

    def _lines(self) -> Iterator[str]:
        for line in self._file:
            self._part += line
            if line.endswith(b"\n"):
                whole, self._part = self._part, b""
                yield whole.decode("utf-8", "replace").rstrip("\r\n")


def _follow(folder: Path, key: str | None, logs: list[Log]) -> None:
    """Until Ctrl-C. A process that is started meanwhile has a log of its own."""
    while True:
        known = {log.path for log in logs}
        logs += [Log(path, key) for path in sorted(folder.glob("*.log")) if path not in known]
        for log in logs:
            for record in log.read():
                _show(record)
        time.sleep(_FOLLOW_S)


def _show(record: Record) -> None:
    from lockgate_common.printable import printable

    click.echo(printable(record.text()))


def _folder(target: dict[str, str | None]) -> Path | None:
    """The folder with the logs of a cluster on this machine, running or not; None for a cluster elsewhere."""
    from lockgate.client.target import DEFAULT_DIRECTORY

    try:
        found = find(target)
    except ClusterFileError as error:  # of a cluster that has ended, or whose files are broken
        if not (error.directory / "logs").is_dir():
            raise
        return error.directory / "logs"
    if found.directory is not None:
        return found.directory / "logs"
    ended = Path(DEFAULT_DIRECTORY) / "logs"
    return ended if found.is_default and ended.is_dir() else None


def _elsewhere(target: dict[str, str | None]) -> str:
    from lockgate.commands.views import table

    with asking(target, "asking the cluster for its processes") as client:
        cluster = client.cluster()
    rows = [(found.coordinator_id, found.address, str(found.pid)) for found in cluster.coordinators]
    rows += [(found.task_manager_id, found.address, str(found.pid)) for found in cluster.task_managers]
    return (
        f"{table(('PROCESS', 'ADDRESS', 'PID'), rows, right=(2,))}\n\nEach process logs to its standard error on its "
        "host: see `journalctl -u 'lockgate-*'`, `docker compose logs`, `kubectl logs`, or the terminal that it was "
        "started in."
    )
