"""Which calls of operators have not returned for seconds: in most cases the author's code is in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from lockgate_proto.messages import SubtaskCounters, SubtaskId

from coordinator.graph.execution_graph import SubtaskKey

_SHOWN = 3


class AtWork:
    """Of one attempt, as heartbeats have told it last."""

    def __init__(self) -> None:
        self._told: dict[SubtaskKey, tuple[str, int]] = {}

    def update(self, counters: Iterable[SubtaskCounters], owns: Callable[[SubtaskId | None], bool]) -> None:
        """Out of a heartbeat; of subtasks of the current attempt (`owns`) only."""
        for one in counters:
            if one.subtask is None or not owns(one.subtask):
                continue
            key = (one.subtask.vertex_id, one.subtask.subtask)
            if one.at_work:
                self._told[key] = (one.at_work, one.at_work_ms)
            else:
                self._told.pop(key, None)

    def clear(self) -> None:
        """Another attempt begins."""
        self._told.clear()

    def sentence(self, place_of: Callable[[SubtaskKey], str], on: Collection[str] | None = None) -> str:
        """What is still at work, where and for how long; "" for nothing. on: only on these task managers."""
        found = [
            f"{what} of {key[0]}-{key[1]} on {place_of(key)} (for {since_ms // 1000} s)"
            for key, (what, since_ms) in sorted(self._told.items())
            if on is None or place_of(key) in on
        ]
        if not found:
            return ""
        rest = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        return f"Still at work when last heard of: {', '.join(found[:_SHOWN])}{rest}."
