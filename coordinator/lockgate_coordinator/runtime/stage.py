"""Where a JobRunner stands; the drawing is there."""

from __future__ import annotations

from enum import Enum, auto


class Stage(Enum):
    """Where a runner stands."""

    LOADING = auto()
    RUNNING = auto()
    ENDED = auto()
    BROKEN = auto()
