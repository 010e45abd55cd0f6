"""For mutants that are one changed line: a method made again from its own source, with that line changed."""

from __future__ import annotations

import inspect
import sys
import textwrap


def rewrite(owner: type, method: str, line: str, changed: str) -> None:
    """Replaces a method of a class. Raises AssertionError where its source does not hold the line exactly once."""
    function = inspect.unwrap(vars(owner)[method])
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(line) == 1, f"{owner.__name__}.{method} has {source.count(line)} times {line!r}"
    made: dict[str, object] = {}
    code = compile("from __future__ import annotations\n" + source.replace(line, changed), __file__, "exec")
    exec(code, vars(sys.modules[owner.__module__]), made)
    setattr(owner, method, made[method])
