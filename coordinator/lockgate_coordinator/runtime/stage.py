"""The stages of a JobRunner, drawn in job_runner.py."""

from __future__ import annotations

from enum import Enum, auto


class Stage(Enum):
    """The stage of a runner."""

    LOADING = auto()
    RUNNING = auto()
    ENDED = auto()
    BROKEN = auto()
