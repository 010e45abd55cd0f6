"""A task manager obeys whoever speaks to it."""

from __future__ import annotations

from lockgate_taskmanager.exchange.fencing import TokenFence


def _observe(self: TokenFence, token: int) -> bool:
    self._highest = max(self._highest, token)
    return True


def _admits(self: TokenFence, token: int) -> bool:
    del self, token
    return True


assert hasattr(TokenFence, "observe")
assert hasattr(TokenFence, "admits")
TokenFence.admits = _admits  # type: ignore[method-assign]
TokenFence.observe = _observe  # type: ignore[method-assign]
