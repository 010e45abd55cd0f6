"""Shows on a terminal that a command is waiting for something."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner with a text on standard error while the block runs; nothing where that is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from lockgate_common.printable import printable
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(printable(text))):
        yield
