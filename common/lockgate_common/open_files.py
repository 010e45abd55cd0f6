"""How many files and connections this process may have open."""

from __future__ import annotations

import contextlib
import resource


def allow_many() -> None:
    """Raises the soft limit to the hard one. Each peer and each stranger is a connection; the default is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
