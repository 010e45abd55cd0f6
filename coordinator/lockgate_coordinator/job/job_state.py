"""The states of a job under one leader.

    WAITING_FOR_SLOTS --slots--> DEPLOYING --all run--> RUNNING --all exhausted--> FINISHING --committed--> FINISHED
        ^     |                      |                  ^  |                           |
        |     +--its attempt--------------> ADOPTING ---+  |                           |
        |        still runs          | fault   | fault     | fault                     | fault
        |                            v         v           v                           v
        +------delay over------- RESTARTING <--------------+---------------------------+

    any of these --CancelRequested--> CANCELING --> CANCELED
    any of these --invalid job | restarts used up | snapshot unreadable--> FAILED

A job of which only a part restarts goes the same way while the rest runs on. If that fails too, or a client orders
something, it goes back to RESTARTING as a whole, from RESTARTING and WAITING_FOR_SLOTS as well.

FINISHED, FAILED and CANCELED are entered only when the result is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from lockgate_proto.messages import JobState

_STOPS = frozenset({JobState.CANCELING, JobState.FAILED})

ALLOWED: Mapping[JobState, frozenset[JobState]] = {
    JobState.WAITING_FOR_SLOTS: _STOPS | {JobState.DEPLOYING, JobState.ADOPTING, JobState.RESTARTING},
    JobState.ADOPTING: _STOPS | {JobState.RUNNING, JobState.RESTARTING},
    JobState.DEPLOYING: _STOPS | {JobState.RUNNING, JobState.RESTARTING},
    JobState.RUNNING: _STOPS | {JobState.FINISHING, JobState.RESTARTING},
    JobState.FINISHING: _STOPS | {JobState.FINISHED, JobState.RESTARTING},
    JobState.RESTARTING: _STOPS | {JobState.WAITING_FOR_SLOTS, JobState.RESTARTING},
    JobState.CANCELING: frozenset({JobState.CANCELED}),
    JobState.FINISHED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.CANCELED: frozenset(),
}


class Outcome(Enum):
    """How a job has ended. The value is JobResult.outcome."""

    FINISHED = "FINISHED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def state(self) -> JobState:
        """The final job state."""
        return JobState[self.name]
