"""`lockgate top`."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from lockgate_common.amounts import size_text
from lockgate_common.stop_signals import stop_signals
from lockgate_proto.messages import ClusterStatus, JobState, JobStatus

from lockgate.commands.options import SecondsRange, find, target_options
from lockgate.commands.rates import Rates
from lockgate.commands.status import jobs_line, storage_line, task_manager_table, zookeeper_line

if TYPE_CHECKING:
    from lockgate.client import Client

_PATIENCE_MS = 2_000  # the view says so when no leader answers for this long


@click.command()
@click.option(
    "--every",
    "every_s",
    type=SecondsRange(0.2, 60),
    default=1.0,
    metavar="SECONDS",
    show_default=True,
    help="Seconds between two updates.",
)
@target_options
def top(every_s: float, **target: str | None) -> None:
    """Watch the cluster in the terminal: leader, task managers with their slots, jobs with their rates. BUSY is the
    busiest vertex's share of its time, BACKLOG what the sources have found and not read yet.

    Ctrl-C ends it. It follows a new leader automatically. Where the output is not a terminal, it prints one view,
    with the rates of the first seconds (--every).

    \b
    Examples:
      lockgate top
      lockgate top --every 5
      lockgate top | head -3
    """
    from lockgate.client import Client

    with Client.connect(find(target), patience_ms=_PATIENCE_MS) as client:
        view = View()
        first = view.text(client.cluster(), client.jobs(), time.monotonic())
        if sys.stdout.isatty():
            _redraw(client, view, first, every_s)
        else:
            time.sleep(every_s)
            click.echo(view.text(client.cluster(), client.jobs(), time.monotonic()))


def _redraw(client: Client, view: View, text: str, every_s: float) -> None:
    """Until Ctrl-C. Raises ClientError, but not while the cluster has no leader."""
    from rich.live import Live
    from rich.text import Text

    from lockgate.client import ClusterUnreachable

    def drawn(shown: str) -> Text:
        return Text(shown, no_wrap=True, overflow="ellipsis")

    # Not by KeyboardInterrupt: one that is raised inside a callback of gRPC is lost.
    ended = threading.Event()
    with (
        stop_signals(lambda _: ended.set(), (signal.SIGINT,)),
        Live(drawn(text), screen=True, auto_refresh=False) as live,
    ):
        while not ended.wait(every_s):
            try:
                text = view.text(client.cluster(), client.jobs(), time.monotonic())
                live.update(drawn(text), refresh=True)
            except ClusterUnreachable as error:
                live.update(drawn(f"{error}\n\nAs last seen:\n\n{text}"), refresh=True)


class View:
    """What is shown, and the rates between two views."""

    def __init__(self) -> None:
        self._rates = Rates()

    def text(self, cluster: ClusterStatus, jobs: Sequence[JobStatus], now_s: float) -> str:
        """The cluster in four lines, then its task managers and its jobs: those that run first, the newest first."""
        from lockgate.client import TERMINAL
        from lockgate.commands.views import table

        ordered = sorted(jobs, key=lambda job: (job.state in TERMINAL, -job.submitted_unix_ms))
        parts = [_head(cluster, jobs), task_manager_table(cluster)]
        if ordered:
            header = (
                "KEY",
                "STATE",
                "RESTARTS",
                "READ/S",
                "READ",
                "WRITTEN",
                "BACKLOG",
                "BUSY",
                "CHECKPOINT",
                "TOOK",
                "SIZE",
                "",
            )
            rows = [self._job(job, now_s) for job in ordered]
            parts.append(table(header, rows, right=(2, 3, 4, 5, 6, 7, 8, 9, 10)))
        return "\n\n".join(parts)

    def _job(self, job: JobStatus, now_s: float) -> tuple[str, ...]:
        from lockgate_common.backlog import job_backlog

        from lockgate.client import TERMINAL
        from lockgate.commands.views import first_line, percent
        from lockgate.loads import vertex_loads

        last, read, written = job.last_checkpoint, job.records_read, job.records_written  # None: not known
        loads = vertex_loads(job.subtasks).values()
        rate = "-" if read is None else f"{self._rates.add(job.job_key, read, now_s):,.0f}"
        return (
            job.job_key,
            job.state.name,
            str(job.restarts),
            "-" if job.state in TERMINAL else rate,
            "-" if read is None else f"{read:,}",
            "-" if written is None else f"{written:,}",
            str(job_backlog(job)),
            "-" if not loads else percent(max(load.busy for load in loads)),
            "-" if last is None else str(last.checkpoint_id),
            "-" if last is None else f"{last.duration_ms} ms",
            "-" if last is None else size_text(last.size_bytes),
            first_line(job.error if job.state is JobState.FAILED else job.message),
        )


def _head(cluster: ClusterStatus, jobs: Sequence[JobStatus]) -> str:
    leader, standbys = cluster.leader, sum(not found.leader for found in cluster.coordinators)
    slots = sum(found.slots for found in cluster.task_managers)
    free = sum(found.free_slots for found in cluster.task_managers)
    leads = f"{leader.address} (pid {leader.pid}, token {leader.token})" if leader is not None else "none"
    managers = f"{len(cluster.task_managers)}, slots: {slots}, free: {free}"
    return "\n".join(
        (
            f"leader: {leads}, standbys: {standbys}",
            f"task managers: {'not known' if cluster.leader_silent else managers}",
            jobs_line(jobs),
            zookeeper_line(cluster),
            storage_line(jobs),
        )
    )
