"""A write of unknown outcome counts as not done when ZooKeeper is away at the next look."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.runtime.persistence import Persistence
from ha.errors import StoreUnavailable

_whole = Persistence._fenced


def _hasty(self: Persistence, write: Callable[[], None]) -> None:
    away: list[StoreUnavailable] = []

    def once() -> None:
        try:
            write()
        except StoreUnavailable as error:
            away.append(error)

    _whole(self, once)
    if away:
        raise away[0]


Persistence._fenced = _hasty  # type: ignore[method-assign]
