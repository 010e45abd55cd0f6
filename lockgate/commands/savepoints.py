"""The savepoint commands: `lockgate savepoint ...`, `stop`, `rescale`."""

from __future__ import annotations

import json

import click

from lockgate.commands.options import SecondsRange, asking, connect, job_argument, json_option, target_options
from lockgate.commands.working import working

_timeout_option = click.option(
    "--timeout",
    "timeout_s",
    type=SecondsRange(),
    metavar="SECONDS",
    help="Seconds for the snapshot.  [default: the job's checkpoint timeout]",
)


class _Savepoints(click.Group):
    """`lockgate savepoint KEY` is short for `lockgate savepoint take KEY`."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """An argument that is not a command is a job key."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["take", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_Savepoints)
def savepoint() -> None:
    """Take, list and dispose of savepoints: snapshots that stay until you delete them.

    \b
    Examples:
      lockgate savepoint wordcount-1f2e3d4c
      lockgate submit wordcount.py --from "$(lockgate savepoint wordcount-1f2e3d4c)"
      lockgate savepoint list wordcount-1f2e3d4c
      lockgate savepoint dispose wordcount-1f2e3d4c 17
    """


@savepoint.command()
@job_argument
@_timeout_option
@click.option("--request-id", default="", metavar="ID", help="Names this savepoint: the same ID again takes no other.")
@json_option
@target_options
def take(key: str, timeout_s: float | None, request_id: str, as_json: bool, **target: str | None) -> None:
    """Take a savepoint and print its pointer. `lockgate savepoint KEY` does the same."""
    from lockgate import json_shapes

    with asking(target, f"taking a savepoint of job {key}") as client:
        taken = client.savepoint(key, int((timeout_s or 0) * 1000), request_id=request_id)
    click.echo(json.dumps(json_shapes.checkpoint_json(taken), indent=2) if as_json else taken.pointer)


@savepoint.command("list")
@job_argument
@json_option
@target_options
def list_(key: str, as_json: bool, **target: str | None) -> None:
    """List the savepoints of a job, running or ended, newest first."""
    from lockgate import json_shapes
    from lockgate.commands import views

    with asking(target, f"listing the savepoints of job {key}") as client:
        found = client.savepoints(key)
    if as_json:
        click.echo(json.dumps([json_shapes.checkpoint_json(savepoint) for savepoint in found], indent=2))
    else:
        click.echo(views.checkpoints_text(found))


@savepoint.command()
@job_argument
@click.argument("number", type=click.IntRange(min=1))
@target_options
def dispose(key: str, number: int, **target: str | None) -> None:
    """Delete savepoint NUMBER of a job, or a retained checkpoint of a job that has ended.

    Refused while it is the newest snapshot of a running job, or another job is starting from it.
    """
    with asking(target, f"savepoint {number} of job {key} is deleted") as client:
        client.dispose_savepoint(key, number)
    click.echo(f"job {key} no longer has a savepoint {number}")


@click.command()
@job_argument
@click.option("--drain", is_flag=True, help="Sources stop reading first, and all records read reach the sinks.")
@_timeout_option
@click.option("--wait", is_flag=True, help="Return when the job has ended.")
@json_option
@target_options
def stop(key: str, drain: bool, timeout_s: float | None, wait: bool, as_json: bool, **target: str | None) -> int:
    """End a job with a savepoint and print its pointer, with --wait before the wait. Exits with 1 when the job has
    failed instead.

    Output up to the savepoint is committed, and nothing after it. A new job that starts from it continues without a
    gap.

    \b
    Examples:
      lockgate stop wordcount-1f2e3d4c
      lockgate submit wordcount.py --from "$(lockgate stop wordcount-1f2e3d4c --wait)"
    """
    from lockgate import json_shapes
    from lockgate.commands.progress import Silent, exit_code, follow

    with asking(target, f"stopping job {key} with a savepoint") as client:
        taken = client.stop(key, drain=drain, timeout_ms=int((timeout_s or 0) * 1000))
    # before the wait, whatever ends that; nothing follows on standard output, since scripts take its last line
    click.echo(json.dumps(json_shapes.checkpoint_json(taken), indent=2) if as_json else taken.pointer)
    if not wait:
        return 0
    try:
        with asking(target, f"waiting for the end of job {key}") as client:
            return exit_code(follow(client, key, Silent()))
    except KeyboardInterrupt:
        click.echo(f"the savepoint is taken, and the job ends by itself; `lockgate job {key}` shows it", err=True)
        raise


@click.command()
@job_argument
@click.argument("vertices", nargs=-1, required=True, metavar="OPERATOR=N...")
@_timeout_option
@json_option
@target_options
def rescale(key: str, vertices: tuple[str, ...], timeout_s: float | None, as_json: bool, **target: str | None) -> None:
    """Change the parallelism of a running job: take a snapshot and restart from it.

    OPERATOR is the id or name of an operator, or a vertex: the operators that are chained into one vertex have the same
    parallelism. `lockgate job KEY` shows which operator runs in which vertex. Refused, before anything is stopped, when
    there are not enough slots.

    \b
    Examples:
      lockgate rescale wordcount-1f2e3d4c counts=3
      lockgate rescale wordcount-1f2e3d4c read=4 counts=8
    """
    from lockgate import json_shapes
    from lockgate.client.rescale import by_vertex
    from lockgate.client.rescale import rescale as rescale_job

    wanted: dict[str, int] = {}
    for name, number in map(_vertex, vertices):
        if wanted.setdefault(name, number) != number:
            raise click.UsageError(f"{name}={wanted[name]} and {name}={number} contradict each other")
    with connect(target) as client:
        for name, vertex in by_vertex(client.job(key), wanted).items():
            if name != vertex:
                click.echo(f"{name} runs in vertex {vertex}", err=True)
        with working(f"taking a snapshot of job {key} and restarting it"):
            status = rescale_job(client, key, wanted, int((timeout_s or 0) * 1000))
    if as_json:
        click.echo(json.dumps(json_shapes.rescaled_json(status), indent=2))
        return
    counts: dict[str, int] = {}
    for subtask in status.subtasks:
        counts[subtask.vertex_id] = counts.get(subtask.vertex_id, 0) + 1
    shape = ", ".join(f"{name}={count}" for name, count in counts.items())
    click.echo(f"job {key} is {status.state.name.lower()} (attempt {status.attempt})" + (f": {shape}" if shape else ""))


def _vertex(text: str) -> tuple[str, int]:
    name, _, number = text.rpartition("=")
    if not name or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise click.UsageError(f"{text!r} is not OPERATOR=N, such as counts=3")
    return name, int(number)
