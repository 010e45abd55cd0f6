"""A component of which a slot restarts runs on in its other slots, also where it restarts as a whole."""

from __future__ import annotations

from lockgate_coordinator.job import extent

extent.affected = lambda _graph, slots, _beside: (frozenset(slots), "")
