"""An attempt that starts removes every staged file but its own, its successor's too."""

from __future__ import annotations

import re

from taskmanager.spark.sinks import staged

_SOURCE = "int(match.group(1)) < context.attempt"


def _mutate() -> None:
    import inspect
    import textwrap

    source = textwrap.dedent(inspect.getsource(staged.StagedSink._sweep))
    assert _SOURCE in source
    scope = vars(staged)
    made: dict[str, object] = {}
    exec(re.sub(re.escape(_SOURCE), _SOURCE.replace("<", "!="), source), scope, made)
    staged.StagedSink._sweep = made["_sweep"]  # type: ignore[assignment,method-assign]


_mutate()
