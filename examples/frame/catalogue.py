"""Which examples there are: every module in `examples/runnable/`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import examples.runnable
from examples.frame.example import Example
from lockgate.errors import UserError


def names() -> tuple[str, ...]:
    """The names of all examples, sorted."""
    found = (module.name for module in pkgutil.iter_modules(examples.runnable.__path__))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def find(name: str) -> Example:
    """The example of that name. Raises UserError that names those there are."""
    if name not in names():
        raise UserError(f"there is no example {name!r}; there are: {', '.join(names())}")
    example = import_module(f"examples.runnable.{name}").EXAMPLE
    assert isinstance(example, Example), f"EXAMPLE in examples/runnable/{name}.py is no Example"
    return example
