"""`lockgate query`: reads keyed state as of a completed checkpoint."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import click
from lockgate_common.json_input import JsonError, parse_json

from lockgate.commands.options import asking, job_argument, json_option, target_options


class _TakesDashes(click.Command):
    """What begins with one dash and is no option is an argument: a key may be -5."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        names = {name for option in known for name in option.opts}
        with_value = {name for option in known if not (option.is_flag or option.count) for name in option.opts}
        options, arguments, rest = list[str](), list[str](), iter(args)
        for text in rest:
            if text == "--":
                arguments += rest
            elif text.startswith("--") or text in names:
                given = list(islice(rest, int(text in with_value)))
                if text in with_value and not given:
                    return super().parse_args(ctx, [*options, text])  # which says that the value is missing
                options += (text, *given)
            else:
                arguments.append(text)
        return super().parse_args(ctx, [*options, "--", *arguments])


@click.command(cls=_TakesDashes)
@job_argument
@click.argument("operator")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option(
    "--checkpoint", type=click.IntRange(min=1), metavar="N", help="As of this checkpoint.  [default: the newest]"
)
@json_option
@target_options
def query(
    key: str, operator: str, keys: tuple[str, ...], checkpoint: int | None, as_json: bool, **target: str | None
) -> None:
    """Read what OPERATOR of job KEY holds for some keys, all as of one completed checkpoint.

    OPERATOR is an operator's id, see `lockgate job KEY`. A KEY is the value of the key column; with several key columns
    it is a JSON list with a value for each. A text that is a JSON list itself is put into a list: '["[1, 2]"]' is the
    key [1, 2]. Bytes are in hexadecimal. Keys that begin with -- come last, behind a -- of its own. The stream is not
    disturbed: values are read from storage.

    \b
    Examples:
      lockgate query wordcount-1f2e3d4c counts the of
      lockgate query orders totals '["EUR", 2024]' --json
      lockgate query readings sensors -5
      lockgate query wordcount-1f2e3d4c counts the --checkpoint 196
    """
    from lockgate import json_shapes
    from lockgate.commands import views

    with asking(target, f"reading the state of {operator} in job {key}") as client:
        answer = client.query(key, {operator: [_values(text) for text in keys]}, checkpoint or 0)
    if as_json:
        click.echo(json.dumps(json_shapes.queried_json(answer), indent=2))
    else:
        click.echo(views.queried_text(answer))


def _values(text: str) -> list[Any]:
    """The values of the key columns."""
    if text.startswith("["):
        try:
            found = parse_json(text)
        except JsonError:
            return [text]
        if isinstance(found, list):
            return found
    return [text]
