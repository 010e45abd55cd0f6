"""`lockgate run`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lockgate.commands.submit import run_file
from lockgate.commands.working import working

if TYPE_CHECKING:
    import pyarrow as pa
    from lockgate_proto.messages import JobGraph


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("arguments", nargs=-1)
@click.option(
    "--rows",
    type=click.IntRange(1, 1_000_000),
    default=100,
    metavar="N",
    show_default=True,
    help="Rows of each source.",
)
def run(file: str, arguments: tuple[str, ...], rows: int) -> int:
    """Run a pipeline file on a sample of its input, in this process, and print what its sinks would get.

    It needs no cluster and writes nothing: every sink, `foreach_batch` included, is replaced by a table on the
    terminal. Sources are read from their beginning, a few rows further than N where records come in blocks. Then
    the input ends, so that windows fire. What the pipeline's own code prints appears in between.

    \b
    Examples:
      lockgate run wordcount.py
      lockgate run wordcount.py --rows 1000 -- --input books    # the file sees --input in sys.argv
    """
    from lockgate.pipeline.submission import Steering

    steering = Steering(None, preview=lambda key, graph: _preview(key, graph, rows))
    return run_file(file, arguments, steering)


def _preview(key: str, graph: JobGraph, rows: int) -> None:
    from lockgate_common.amounts import counted
    from lockgate_common.printable import printable

    from lockgate.preview.preview import PreviewFailed, preview_graph

    click.echo(
        f"preview of {key} on {counted(rows, 'row')} of each source; Spark starts, which takes some seconds", err=True
    )
    try:
        with working(f"running job {key} on a sample"):
            output = preview_graph(graph, rows)
    except PreviewFailed as error:
        if error.traceback:
            click.echo(printable(error.traceback), err=True)
        raise
    for vertex, read in output.read.items():
        click.echo(f"{counted(read, 'row')} read by {vertex}", err=True)
    for operator_id, name in output.names.items():
        table = output.tables.get(operator_id)
        written = counted(table.num_rows if table is not None else 0, "row")
        click.echo(f"\n{printable(name)} (id '{operator_id}'): {written}")
        if table is not None:
            click.echo(table_text(table, rows))


def table_text(rows: pa.Table, most: int) -> str:
    """The first rows as a table with a header."""
    from lockgate.commands.views import table

    shown = [["NULL" if value is None else str(value) for value in row.values()] for row in rows[:most].to_pylist()]
    text = table(rows.column_names, shown)
    return text if rows.num_rows <= most else f"{text}\n... and {rows.num_rows - most:,} more"
