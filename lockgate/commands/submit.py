"""`lockgate submit`."""

from __future__ import annotations

import json
import re
import secrets
import sys
from contextlib import nullcontext, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lockgate.commands.options import find, target_options
from lockgate.commands.working import working

if TYPE_CHECKING:
    from lockgate.client import JobHandle
    from lockgate.pipeline.submission import Steering


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("arguments", nargs=-1)
@click.option("--wait", is_flag=True, help="Follow the job to its end; exits with 1 when it fails.")
@click.option("--key", help="The job key; the same key and graph again is the same job.")
@click.option("--from", "restore_from", metavar="POINTER", help="Start from a savepoint or retained checkpoint.")
@click.option(
    "--allow-unmatched-state", is_flag=True, help="With --from: drop the state of operators that no longer exist."
)
@click.option(
    "--trust-snapshot",
    is_flag=True,
    help="With --from: accept a snapshot that this cluster has not sealed; needs the role code.",
)
@click.option("--dry-run", is_flag=True, help="Print the job graph as JSON instead; needs no cluster.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line for each job; everything else goes to stderr."
)
@target_options
def submit(
    file: str,
    arguments: tuple[str, ...],
    wait: bool,
    key: str | None,
    restore_from: str | None,
    allow_unmatched_state: bool,
    trust_snapshot: bool,
    dry_run: bool,
    as_json: bool,
    **target: str | None,
) -> int:
    """Submit a pipeline file, whose last line is `job.submit()`, or a job graph (.json, .pb).

    Returns once the job is running; errors in it (an unknown column, an unreadable path) are shown here. A job that is
    still waiting after a minute, for example for slots, starts automatically later: the command shows what it is
    waiting for, and succeeds.

    \b
    Examples:
      lockgate submit wordcount.py
      lockgate submit wordcount.py --wait
      lockgate submit wordcount.py -- --input books       # the file sees --input in sys.argv
      lockgate submit wordcount.py --key nightly          # safe to repeat: one job
      lockgate submit wordcount.py --from /data/savepoint/_metadata
      lockgate submit wordcount.py --dry-run > graph.json
      lockgate submit wordcount.py --json | jq -r .key
      lockgate submit graph.json --cluster host1:7070,host2:7070
    """
    from lockgate.pipeline.submission import Start, Steering

    if as_json and dry_run:
        raise click.UsageError("--dry-run prints JSON already; leave out --json")
    if dry_run and (wait or restore_from):
        raise click.UsageError("--dry-run starts no job; leave out --wait and --from")
    start = Start(restore_from or "", allow_unmatched_state, trust_snapshot)
    steering = Steering(None if dry_run else find(target), key, start)
    steering.busy = working
    if as_json:
        steering.say = partial(click.echo, err=True)
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        if Path(file).suffix in (".json", ".pb"):
            if arguments:
                raise click.UsageError("arguments are only allowed for a pipeline file, not for a job graph")
            _submit_graph(Path(file), steering)
        elif code := run_file(file, arguments, steering):
            return code
        code = _follow(steering.handles, as_json) if wait and not dry_run else 0
    if as_json:
        _print_json(steering)
    return code


def _print_json(steering: Steering) -> None:
    from lockgate.json_shapes import submission_json

    for handle, answer in zip(steering.handles, steering.answers, strict=True):
        click.echo(json.dumps(submission_json(handle.status(), answer)))


def _submit_graph(path: Path, steering: Steering) -> None:
    from lockgate.pipeline.graph_file import read_graph
    from lockgate.pipeline.submission import submit_graph

    graph = read_graph(path)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", graph.name).strip("-")[:100] or "job"
    submit_graph(steering, graph, f"{slug}-{secrets.token_hex(4)}")


def run_file(file: str, arguments: tuple[str, ...], steering: Steering) -> int:
    """Runs a pipeline file under `steering`; returns the code that it has exited with. Raises UserError."""
    from lockgate.commands.script import ScriptError, ScriptExit, run_script
    from lockgate.pipeline.submission import steer

    steer(steering)
    try:
        run_script(file, arguments)
    except ScriptExit as exit_:
        return exit_.code
    finally:
        steer(None)
    if not steering.submitted:
        raise ScriptError(f"{file} submits no job; its last line should be job.submit()")
    return 0


def _follow(handles: list[JobHandle], is_silent: bool) -> int:
    from lockgate.commands.progress import Silent, exit_code, follow, for_terminal

    worst = 0
    for handle in handles:
        try:
            status = follow(handle.client, handle.key, Silent() if is_silent else for_terminal())
        except KeyboardInterrupt:
            click.echo(
                f"the job keeps running; `lockgate watch {handle.key}` follows it, `lockgate cancel` ends it", err=True
            )
            raise
        click.echo(f"job {handle.key} has ended: {status.state.name}")
        worst = max(worst, exit_code(status))
    return worst
