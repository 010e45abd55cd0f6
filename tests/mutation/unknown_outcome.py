"""A write of unknown outcome counts as not done when ZooKeeper is away at the next look."""

from __future__ import annotations

from collections.abc import Callable

from lockgate_coordinator.runtime.term_fence import TermFence
from lockgate_ha.errors import StoreUnavailable

_whole = TermFence.write


def _hasty(self: TermFence, write: Callable[[], None]) -> None:
    away: list[StoreUnavailable] = []

    def once() -> None:
        try:
            write()
        except StoreUnavailable as error:
            away.append(error)

    _whole(self, once)
    if away:
        raise away[0]


TermFence.write = _hasty  # type: ignore[method-assign]
