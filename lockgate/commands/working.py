"""Shows on a terminal that a command is waiting for something."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lockgate_common.overtime import overtime

_AFTER_S = 0.3  # an answer that comes sooner needs no spinner, which would only flicker


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner with a text on standard error while the block runs, unless it soon ends; nothing where that is not a
    terminal.
    """
    if not sys.stderr.isatty():
        yield
        return
    stops: list[Callable[[], None]] = []
    try:
        with overtime(_AFTER_S, lambda: stops.append(_shown(text))):
            yield
    finally:
        for stop in stops:
            stop()


def _shown(text: str) -> Callable[[], None]:
    """Returns what takes it away again."""
    from lockgate_common.printable import printable
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    # what the block prints on standard output goes through the console only where it would meet the spinner
    spinner = Spinner("dots", Text(printable(text)), style="status.spinner")
    live = Live(spinner, console=Console(stderr=True), transient=True, redirect_stdout=sys.stdout.isatty())
    live.start(refresh=True)
    return live.stop
