"""Following a job on the terminal: plain lines, JSON lines, or a live view."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

import click
from lockgate_common.printable import printable
from lockgate_proto.messages import JobEvent, JobEventKind, JobState, JobStatus

from lockgate import json_shapes
from lockgate.client import TERMINAL, Client
from lockgate.commands import views
from lockgate.commands.rates import Rates

if TYPE_CHECKING:
    from rich.live import Live

REFRESH_MS = 1000
PLAIN_EVERY_S = 5.0
KEPT_EVENTS = 8

_NOTABLE = frozenset(
    {
        JobEventKind.LEADER_LOSS_DETECTED,
        JobEventKind.LEADER_GRANTED,
        JobEventKind.JOB_RECOVERED,
        JobEventKind.ATTEMPT_ADOPTED,
        JobEventKind.ATTEMPT_NOT_ADOPTED,
        JobEventKind.ATTEMPT_DEPLOYED,
        JobEventKind.FIRST_RECORD,
        JobEventKind.FIRST_COMMIT,
        JobEventKind.CHECKPOINT_ABORTED,
        JobEventKind.ATTEMPT_FAILED,
        JobEventKind.TASK_MANAGER_LOST,
        JobEventKind.TASK_MANAGER_LEFT,
        JobEventKind.RESTART_EXTENT,
        JobEventKind.SUBTASK_MOVED,
        JobEventKind.SUBTASK_STAYS,
        JobEventKind.RECORDS_AHEAD,
    }
)


class Progress(Protocol):
    """Shows the progress of a job. A context manager, so that a live view restores the terminal."""

    def __enter__(self) -> Progress:
        """Begins."""
        ...

    def __exit__(self, *_: object) -> None:
        """Ends."""
        ...

    def status(self, status: JobStatus) -> None:
        """The job's newest status."""
        ...

    def event(self, event: JobEvent) -> None:
        """A job event."""
        ...

    def lost(self, reason: str) -> None:
        """The leader is lost; the client is locating the next one."""
        ...


def follow(client: Client, key: str, progress: Progress) -> JobStatus:
    """Follows the job to its end and returns the last status. Raises ClientError."""
    status = client.job(key)
    with progress:
        progress.status(status)
        watch = client.watch(key, on_lost=progress.lost)
        try:
            while not watch.ended:
                update = watch.poll(REFRESH_MS)
                if isinstance(update, JobEvent):
                    progress.event(update)
                elif update is not None:
                    status = update
                    progress.status(status)
        finally:
            watch.close()
    return status


def exit_code(status: JobStatus) -> int:
    """The exit code of a command that waited for a job; writes to stderr why the job failed."""
    if status.state is JobState.FAILED:
        error = printable(status.error or "no reason given")
        click.echo(f"error: job {status.job_key} failed: {error}", err=True)
        return 1
    return 0


def for_terminal() -> Progress:
    """The live view on a terminal, plain lines elsewhere."""
    return LiveProgress() if sys.stdout.isatty() else PlainProgress()


class Silent:
    """Shows nothing."""

    def __enter__(self) -> Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self, status: JobStatus) -> None:
        """Nothing."""

    def event(self, event: JobEvent) -> None:
        """Nothing."""

    def lost(self, reason: str) -> None:
        """Nothing."""


class PlainProgress(Silent):
    """One line for each change of state and each notable event, and one every few seconds."""

    def __init__(self, every_event: bool = False) -> None:
        self._every_event = every_event
        self._state: tuple[JobState, int, str] | None = None
        self._next_s = 0.0

    def status(self, status: JobStatus) -> None:
        """Prints a changed status, or one some seconds after the last line."""
        state = (status.state, status.attempt, status.message)
        now = time.monotonic()
        if state != self._state or now >= self._next_s:
            self._state, self._next_s = state, now + PLAIN_EVERY_S
            click.echo(f"{status.job_key}: {views.progress_text(status)}")

    def event(self, event: JobEvent) -> None:
        """Prints a notable event."""
        if self._every_event or event.kind in _NOTABLE:
            click.echo(views.event_text(event))

    def lost(self, reason: str) -> None:
        """Prints it."""
        click.echo(printable(f"leader lost ({reason}); looking for the next one"), err=True)


class JsonProgress(Silent):
    """One JSON object per line."""

    def status(self, status: JobStatus) -> None:
        """{"status": ...}"""
        _print_line({"status": json_shapes.job_json(status)})

    def event(self, event: JobEvent) -> None:
        """{"event": ...}"""
        _print_line({"event": json_shapes.event_json(event)})


def _print_line(value: dict[str, Any]) -> None:
    click.echo(json.dumps(value))


class LiveProgress(Silent):
    """A view of the job that is redrawn in place, with the latest notable events below it."""

    def __init__(self) -> None:
        from rich.live import Live

        self._events: list[str] = []
        self._status: JobStatus | None = None
        self._rates = Rates()
        self._rate = 0.0
        self._live: Live = Live(refresh_per_second=8)

    def __enter__(self) -> LiveProgress:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def status(self, status: JobStatus) -> None:
        """Redraws."""
        read = status.operators[0].records_out if status.operators else 0
        self._rate = self._rates.add(status.job_key, read, time.monotonic())
        self._status = status
        self._draw()

    def event(self, event: JobEvent) -> None:
        """Adds a line below."""
        if event.kind in _NOTABLE:
            self._events = [*self._events, views.event_text(event)][-KEPT_EVENTS:]
            self._draw()

    def lost(self, reason: str) -> None:
        """Adds a line below."""
        self._events = [*self._events, printable(f"leader lost ({reason}); looking for the next one")][-KEPT_EVENTS:]
        self._draw()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        status = self._status
        if status is None:
            return
        colours = {JobState.RUNNING: "green", JobState.FINISHED: "green", JobState.FAILED: "red"}
        style = colours.get(status.state, "yellow")
        head = Text.assemble(
            (status.job_key, "bold"),
            "  ",
            (status.state.name, style),
            f"  attempt {status.attempt}  restarts {status.restarts}  leader {status.leader_address or '-'}",
        )
        rows = Table("operator", "in", "out", box=None, pad_edge=False)
        for operator in status.operators:
            rows.add_row(
                printable(f"{operator.name} ({operator.operator_id})"),
                f"{operator.records_in:,}",
                f"{operator.records_out:,}",
            )
        rate = "" if status.state in TERMINAL else f"{self._rate:,.0f} records/s read; "
        lines = [Text(rate + views.checkpoint_line(status)), *(Text(event, style="dim") for event in self._events)]
        if status.message:
            lines.insert(0, Text(printable(status.message), style="yellow"))
        self._live.update(Group(head, rows, *lines))
