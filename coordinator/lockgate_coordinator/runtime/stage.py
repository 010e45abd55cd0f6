"""The stages of a JobRunner, drawn in job_runner.py."""

from __future__ import annotations

from enum import Enum, auto

from lockgate_proto.messages import JobState


class Stage(Enum):
    """The stage of a runner."""

    LOADING = auto()
    RUNNING = auto()
    ENDED = auto()
    BROKEN = auto()


def state_without_master(stage: Stage, *, is_held: bool, is_given_up: bool) -> JobState:
    """The state of a job without a JobMaster. is_given_up: a client's cancel is being written."""
    if stage is Stage.BROKEN:
        return JobState.CANCELING if is_given_up else JobState.FAILED
    return JobState.HELD_BACK if is_held else JobState.WAITING_FOR_SLOTS
