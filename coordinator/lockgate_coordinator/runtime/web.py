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


class WebInterfaceFactory(Protocol):
    """Makes the dashboard of a coordinator."""

    def __call__(
        self,
        settings: CoordinatorSettings,
        address: str,
        callers: Callers,
        others: Callable[[], tuple[str, ...]],
        metrics: Callable[[], tuple[str, bytes]],
    ) -> WebInterface:
        """Opens its port. Raises SecurityError, and OSError when the port is taken.

        address: of the job API; callers: without the secret; others: the URLs of the other coordinators' dashboards;
        metrics: the content type and the text of the page of metrics.
        """
        ...
