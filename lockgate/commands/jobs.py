"""Commands that look at jobs and steer them."""

from __future__ import annotations

import json
from typing import Any

import click

from lockgate.commands.options import connect, json_option, target_options


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


@click.command()
@json_option
@target_options
def jobs(as_json: bool, **target: str | None) -> None:
    """List the jobs that run, and those that have ended and are still remembered.

    \b
    Examples:
      lockgate jobs
      lockgate jobs --json | jq -r '.[] | select(.state == "RUNNING") | .key'
    """
    from lockgate.commands import views

    with connect(target) as client:
        found = client.jobs()
    if as_json:
        _print_json([views.summary_json(one) for one in found])
    else:
        click.echo(views.jobs_text(found))


@click.command()
@click.argument("key")
@json_option
@target_options
def job(key: str, as_json: bool, **target: str | None) -> None:
    """Show one job: state, attempt, restarts, records in and out per operator, last checkpoint.

    \b
    Examples:
      lockgate job wordcount-1f2e3d4c
      lockgate job wordcount-1f2e3d4c --json | jq .last_checkpoint.duration_ms
    """
    from lockgate.commands import views

    with connect(target) as client:
        status = client.job(key)
    if as_json:
        _print_json(views.job_json(status))
    else:
        click.echo(views.job_text(status))


@click.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line: {status: ...} or {event: ...}.")
@target_options
def watch(key: str, as_json: bool, **target: str | None) -> int:
    """Follow a job until it ends: states, events, failovers. Exits with 1 when the job has failed.

    \b
    Examples:
      lockgate watch wordcount-1f2e3d4c
      lockgate watch wordcount-1f2e3d4c --json | jq -c 'select(.event.kind == "LEADER_GRANTED")'
    """
    from lockgate.commands.progress import JsonProgress, PlainProgress, exit_code, follow

    with connect(target) as client:
        return exit_code(follow(client, key, JsonProgress() if as_json else PlainProgress(every_event=True)))


@click.command()
@click.argument("key")
@json_option
@target_options
def checkpoints(key: str, as_json: bool, **target: str | None) -> None:
    """List the completed checkpoints that are kept, newest first. POINTER is what `submit --from` takes.

    \b
    Examples:
      lockgate checkpoints wordcount-1f2e3d4c
      lockgate submit wordcount.py --from "$(lockgate checkpoints KEY --json | jq -r '.[0].pointer')"
    """
    from lockgate.commands import views

    with connect(target) as client:
        found = client.checkpoints(key)
    if as_json:
        _print_json([views.checkpoint_json(one) for one in found])
    else:
        click.echo(views.checkpoints_text(found))


@click.command()
@click.argument("key")
@click.option("--wait", is_flag=True, help="Return when the job has ended.")
@json_option
@target_options
def cancel(key: str, wait: bool, as_json: bool, **target: str | None) -> None:
    """End a job. What it has committed stays; what it was doing since its last checkpoint is dropped.

    \b
    Examples:
      lockgate cancel wordcount-1f2e3d4c
      lockgate cancel wordcount-1f2e3d4c --wait
    """
    from lockgate.commands.progress import Silent, follow

    with connect(target) as client:
        state = client.cancel(key)
        if wait:
            state = follow(client, key, Silent()).state
    if as_json:
        _print_json({"key": key, "state": state.name})
    else:
        click.echo(f"job {key} is {state.name.lower().replace('_', ' ')}")


@click.command()
@click.argument("key")
@json_option
@target_options
def release(key: str, as_json: bool, **target: str | None) -> None:
    """Try a job again that is held back, because leaders have died while they recovered it.

    \b
    Examples:
      lockgate release wordcount-1f2e3d4c
    """
    with connect(target) as client:
        state = client.release(key)
    if as_json:
        _print_json({"key": key, "state": state.name})
    else:
        click.echo(f"job {key} is {state.name.lower().replace('_', ' ')}")


@click.command()
@json_option
@target_options
def leader(as_json: bool, **target: str | None) -> None:
    """Show which coordinator leads: address, process id, fencing token, ZooKeeper session.

    \b
    Examples:
      lockgate leader
      kill -9 "$(lockgate leader --json | jq .pid)"      # see what happens
    """
    from lockgate.commands import views

    with connect(target) as client:
        found = client.leader()
    if as_json:
        _print_json(views.leader_json(found))
    else:
        click.echo(f"{found.address}  pid {found.pid}  token {found.token}  session {found.session}")
