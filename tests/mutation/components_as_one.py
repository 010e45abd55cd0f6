"""What restarts as a whole takes along components that no edge connects with it."""

from __future__ import annotations

from lockgate_coordinator.graph import regions

regions.components = lambda graph: (graph,)
