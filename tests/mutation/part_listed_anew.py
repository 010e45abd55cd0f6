"""A lost part restarts alone also where its partitions would be read from another place than before."""

from __future__ import annotations

from lockgate_coordinator.job import extent

extent._begins_at_the_end = lambda *_: ""
