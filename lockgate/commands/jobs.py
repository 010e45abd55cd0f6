"""Commands that show and control jobs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click
from lockgate_common.amounts import counted
from lockgate_proto.messages import CheckpointOffsets, CompletedCheckpoint, JobState

from lockgate.commands.options import asking, connect, job_argument, json_option, target_options

_STATES = [state.name for state in JobState if state is not JobState.JOB_STATE_UNSPECIFIED]


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


@click.command()
@click.option(
    "--state",
    "states",
    multiple=True,
    metavar="STATE",
    type=click.Choice(_STATES, case_sensitive=False),
    help="Only jobs in this state; repeat it for several.",
)
@json_option
@target_options
def jobs(states: tuple[str, ...], as_json: bool, **target: str | None) -> None:
    """List running jobs, and ended ones that are still remembered, newest first.

    \b
    Examples:
      lockgate jobs
      lockgate jobs --state running --state restarting
      lockgate jobs --json | jq -r '.[] | select(.state == "RUNNING") | .key'
    """
    from lockgate import json_shapes
    from lockgate.commands import views

    with asking(target, "asking the leader for its jobs") as client:
        listed = sorted(client.jobs(with_subtasks=False), key=lambda job: job.submitted_unix_ms, reverse=True)
    found = [job for job in listed if not states or job.state.name in states]
    if listed and not found and not as_json:
        click.echo(f"none of the {counted(len(listed), 'job')} is {' or '.join(states)}")
        return
    if as_json:
        _print_json([json_shapes.summary_json(job) for job in found])
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
        click.echo(views.jobs_text(found, width))


@click.command()
@job_argument
@click.option("--story", is_flag=True, help="Its events, each with its cause.")
@click.option("--traceback", is_flag=True, help="The full traceback of the job's own Python code.")
@json_option
@target_options
def job(key: str, story: bool, traceback: bool, as_json: bool, **target: str | None) -> None:
    """Show one job: state, attempt, restarts, records in and out per operator, last checkpoint.

    With --story: the newest events of the job in the leader and in its task managers, each below its cause. With
    --traceback: the traceback of the newest failure, if the job's Python code raised it.

    \b
    Examples:
      lockgate job wordcount-1f2e3d4c
      lockgate job wordcount-1f2e3d4c --json | jq .last_checkpoint.duration_ms
      lockgate job wordcount-1f2e3d4c --story | grep 'checkpoint 7'
    """
    from lockgate import json_shapes
    from lockgate.commands import views
    from lockgate.commands.story_views import story_text

    if story and traceback:
        raise click.UsageError("choose one of --story and --traceback")
    with asking(target, f"asking the leader for job {key}") as client:
        if story:
            answer = client.story(key)
            as_text, as_data = story_text(answer), json_shapes.story_json(answer)
        else:
            status = client.job(key)
            as_data = json_shapes.job_json(status)
            as_text = views.traceback_text(status) if traceback else views.job_text(status)
    if as_json:
        _print_json(as_data)
    else:
        click.echo(as_text)


@click.command()
@job_argument
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line: {status: ...} or {event: ...}.")
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
@job_argument
@click.option("--offsets", "with_offsets", is_flag=True, help="Show how far each source had read at the barrier.")
@click.option("--history", is_flag=True, help="Also those that were aborted, and why, or are no longer retained.")
@json_option
@target_options
def checkpoints(key: str, with_offsets: bool, history: bool, as_json: bool, **target: str | None) -> None:
    """List the retained completed checkpoints, newest first. POINTER is the argument of `submit --from`.

    With --offsets: the splits of every source subtask, each with the offset at which the barrier was injected. A
    checkpoint holds the effect of each record below these offsets, and of no other.

    With --history: the newest 200 that were completed and the newest 200 that were aborted under the present leader.

    \b
    Examples:
      lockgate checkpoints wordcount-1f2e3d4c
      lockgate checkpoints wordcount-1f2e3d4c --history | grep aborted
      lockgate submit wordcount.py --from "$(lockgate checkpoints KEY --json | jq -r '.[0].pointer')"
    """
    from lockgate import json_shapes
    from lockgate.commands import views

    if history and with_offsets:
        raise click.UsageError("choose one of --offsets and --history")
    with asking(target, f"listing the checkpoints of job {key}") as client:
        if history:
            outcomes = client.checkpoint_history(key)
        else:
            found = client.checkpoints(key)
            offsets = {each.checkpoint_id: each for each in client.offsets(key)} if with_offsets else {}
    if history and as_json:
        _print_json([json_shapes.outcome_json(outcome) for outcome in outcomes])
    elif history:
        click.echo(views.outcomes_text(outcomes))
    else:
        _print_checkpoints(found, offsets if with_offsets else None, as_json=as_json)


def _print_checkpoints(
    found: Sequence[CompletedCheckpoint], offsets: Mapping[int, CheckpointOffsets] | None, *, as_json: bool
) -> None:
    """offsets: by checkpoint, if they are asked for."""
    from lockgate import json_shapes
    from lockgate.commands import views

    if offsets is not None:
        found = tuple(checkpoint for checkpoint in found if checkpoint.checkpoint_id in offsets)
    if as_json:
        extra = {number: {"offsets": json_shapes.offsets_json(each)} for number, each in (offsets or {}).items()}
        _print_json([(json_shapes.checkpoint_json(each) or {}) | extra.get(each.checkpoint_id, {}) for each in found])
    elif offsets is not None:
        click.echo(views.offsets_text([offsets[checkpoint.checkpoint_id] for checkpoint in found]))
    else:
        click.echo(views.checkpoints_text(found))


@click.command()
@job_argument
@click.option("--wait", is_flag=True, help="Return when the job has ended.")
@json_option
@target_options
def cancel(key: str, wait: bool, as_json: bool, **target: str | None) -> None:
    """Cancel a job. Its committed output stays; work since its last checkpoint is dropped.

    \b
    Examples:
      lockgate cancel wordcount-1f2e3d4c
      lockgate cancel wordcount-1f2e3d4c --wait
    """
    from lockgate.commands.progress import Silent, follow

    with asking(target, f"ending job {key}") as client:
        state = client.cancel(key)
        if wait:
            state = follow(client, key, Silent()).state
    if as_json:
        _print_json({"key": key, "state": state.name})
    else:
        click.echo(f"job {key} is {state.name.lower().replace('_', ' ')}")


@click.command()
@job_argument
@json_option
@target_options
def release(key: str, as_json: bool, **target: str | None) -> None:
    """Retry a job that is held back because leaders died while recovering it.

    \b
    Examples:
      lockgate release wordcount-1f2e3d4c
    """
    with asking(target, f"releasing job {key}") as client:
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
      kill -9 "$(lockgate leader --json | jq .pid)"      # see a failover
    """
    from lockgate import json_shapes

    with asking(target, "looking for the leader") as client:
        found = client.leader()
    if as_json:
        _print_json(json_shapes.leader_json(found))
    else:
        click.echo(f"{found.address}  pid {found.pid}  token {found.token}  session {found.session}")
