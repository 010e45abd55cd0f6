"""Subtasks run on without a leader for ever."""

from __future__ import annotations

from lockgate_taskmanager.runtime.leader_grace import LeaderGrace

LeaderGrace.is_over = lambda _self, _is_registered, _now_ms: False  # type: ignore[method-assign]
