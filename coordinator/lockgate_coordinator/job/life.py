"""Where one job stands under one leader: its state, and what people are to know beside it."""

from __future__ import annotations

from lockgate_common.story import Story
from lockgate_proto.messages import JobState

from lockgate_coordinator.job.job_state import ALLOWED


class JobLife:
    """Steered by the JobMaster; whoever shows the job reads it."""

    def __init__(self, job_key: str, token: int) -> None:
        self.state = JobState.WAITING_FOR_SLOTS
        self.message = "the leader reads the job's records"  # what it waits for
        self.error = ""  # the last that it found
        self.is_suspended = False  # ZooKeeper is away
        self.ended_ms: int | None = None  # monotonic; when its result was durable
        self._story = Story(f"job {job_key} under token {token}")

    @property
    def has_ended(self) -> bool:
        """It is FINISHED, FAILED or CANCELED for good."""
        return self.ended_ms is not None

    def move(self, state: JobState, now_ms: int) -> None:
        """Moves to `state`. Raises IllegalTransition."""
        self.state = self._story.move(ALLOWED, self.state, state, now_ms)

    def note(self, text: str, now_ms: int) -> None:
        """For the story of a fault."""
        self._story.note(text, now_ms)
