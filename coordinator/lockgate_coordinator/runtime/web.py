"""What a coordinator knows of its web dashboard, which is a client of the job API and made by a room above."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lockgate_coordinator.runtime.callers import Callers
from lockgate_coordinator.runtime.settings import CoordinatorSettings


class WebInterface(Protocol):
    """Its port is open when it is made."""

    @property
    def url(self) -> str:
        """Where others reach it."""
        ...

    def start(self) -> None:
        """Returns at once."""
        ...

    def stop(self) -> None:
        """Idempotent, also before the start."""
        ...


WebInterfaceFactory = Callable[
    [CoordinatorSettings, str, Callers, Callable[[], tuple[str, ...]], Callable[[], tuple[str, bytes]]], WebInterface
]
"""Settings, the address of the job API, who calls without the secret, the URLs of the other coordinators' dashboards,
the page of metrics: its content type and text.

May raise SecurityError, and OSError when the port is taken.
"""
