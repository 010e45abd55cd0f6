"""A task manager obeys whoever speaks to it."""

from __future__ import annotations

from taskmanager.exchange.fencing import TokenFence


def _observe(self: TokenFence, token: int) -> bool:
    self._highest = max(self._highest, token)
    return True


assert hasattr(TokenFence, "observe")
TokenFence.observe = _observe  # type: ignore[method-assign]
