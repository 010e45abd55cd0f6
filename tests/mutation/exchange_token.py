"""A task manager remembers the token of every channel that is opened to it, as if a leader had named it."""

from __future__ import annotations

from lockgate_taskmanager.exchange.fencing import TokenFence

assert hasattr(TokenFence, "admits")
TokenFence.admits = TokenFence.observe  # type: ignore[method-assign]
