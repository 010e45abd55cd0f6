"""The state of one job under one leader, with messages for people."""

from __future__ import annotations

from lockgate_common.story import Story
from lockgate_proto.messages import JobState

from lockgate_coordinator.job.job_state import ALLOWED


class JobLife:
    """Written by the JobMaster, read for the status."""

    def __init__(self, job_key: str, token: int) -> None:
        self.state = JobState.WAITING_FOR_SLOTS
        self.message = "the leader reads the job's records"  # what the job waits for
        self.error = ""  # the last error
        self.is_suspended = False  # ZooKeeper is unreachable
        self.suspended_because = ""
        self.ended_ms: int | None = None  # monotonic; when its result was durable
        self._story = Story(f"job {job_key} under token {token}")

    @property
    def has_ended(self) -> bool:
        """True when it is FINISHED, FAILED or CANCELED."""
        return self.ended_ms is not None

    @property
    def is_starting(self) -> bool:
        """True while the subtasks of the attempt are not known to run."""
        return self.state in (JobState.DEPLOYING, JobState.ADOPTING)

    def move(self, state: JobState, now_ms: int) -> None:
        """Moves to `state`. Raises IllegalTransition."""
        self.state = self._story.move(ALLOWED, self.state, state, now_ms)

    def note(self, text: str, now_ms: int) -> None:
        """Adds a line to the story that an internal error shows."""
        self._story.note(text, now_ms)
