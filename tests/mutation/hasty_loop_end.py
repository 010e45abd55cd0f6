"""A loop is over after the first quiet round, whatever other heads have seen meanwhile."""

from __future__ import annotations

from typing import Any

from lockgate_taskmanager.task.loop_rounds import LoopRounds

_init = LoopRounds.__init__


def _hasty(self: Any, *arguments: Any, **named: Any) -> None:
    _init(self, *arguments, **named)
    self._enough = 1


LoopRounds.__init__ = _hasty  # type: ignore[method-assign]
