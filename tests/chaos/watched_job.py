"""A job that is watched from its start, and whose input flows until the test ends it."""

from __future__ import annotations

import contextlib
from typing import Self

from lockgate_devtools.drill.observer import JobObserver
from lockgate_proto.messages import JobEvent, JobEventKind, JobGraph, JobState, JobStatus

from lockgate.client import ClientError
from tests.chaos.testing_cluster import TestingCluster
from tests.drained import PATIENCE_S, drain, path_of, patient, rows_read


class WatchedJob:
    """Submits it. Leaving the block cancels it unless it has ended."""

    def __init__(self, testing: TestingCluster, key: str, graph: JobGraph) -> None:
        self.key = key
        self._testing = testing
        testing.client.submit(key, patient(graph))
        self._observer = JobObserver(testing.client, key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ended = self._observer.has_ended
        self._observer.close()
        if not ended:
            with contextlib.suppress(ClientError):
                self._testing.client.cancel(self.key)

    @property
    def status(self) -> JobStatus:
        """As last reported."""
        assert self._observer.status is not None
        return self._observer.status

    @property
    def events(self) -> tuple[JobEvent, ...]:
        """All that were reported so far."""
        return self._observer.events

    def seen(self, kind: JobEventKind, attempt: int = 0) -> int:
        """How many events of a kind were reported; attempt: of that one and later ones."""
        return sum(event.kind is kind and event.attempt >= attempt for event in self.events)

    def wait_event(self, kind: JobEventKind) -> None:
        """Waits for the first one of a kind."""
        assert self._observer.wait_for(lambda: self.seen(kind) > 0, PATIENCE_S), f"{self.key}: no {kind.name}"

    def wait_checkpoints(self, count: int, attempt: int = 0) -> None:
        """Waits until so many are complete in all; attempt: of that one and later ones, so after as many failures."""

        def completed() -> int:
            kind = JobEventKind.CHECKPOINT_COMPLETED
            return len(
                {event.checkpoint_id for event in self.events if event.kind is kind and event.attempt >= attempt}
            )

        done = self._observer.wait_for(lambda: completed() >= count, PATIENCE_S)
        assert done, f"{self.key}: {count} checkpoints of attempt {attempt} or later were not completed: {self.status}"

    def wait_in_flight(self, more_than_bytes: int) -> None:
        """Waits until a snapshot was unaligned, and holds so much that was on its way between two subtasks."""

        def is_held() -> bool:
            last = self._observer.status and self._observer.status.last_checkpoint
            return last is not None and last.unaligned and last.channel_state_bytes > more_than_bytes

        done = self._observer.wait_for(is_held, PATIENCE_S)
        assert done, f"{self.key}: no snapshot holds {more_than_bytes} bytes in flight: {self.status}"

    def pause(self, seconds: float) -> None:
        """Lets the job run for a while."""
        self._observer.wait_for(lambda: False, seconds)

    def drain(self) -> dict[str, dict[str, int]]:
        """Ends the input, and waits until the job is finished. What was read, see `rows_read`."""
        savepoint = drain(self._testing.client, self.key)
        self.wait_finished()
        return rows_read(path_of(savepoint))

    def wait_finished(self) -> None:
        """Waits for the end."""
        self.wait_end(JobState.FINISHED)

    def wait_end(self, state: JobState) -> None:
        """Waits for the end, which must be this one."""
        assert self._observer.wait_for(lambda: self._observer.has_ended, PATIENCE_S + 30), f"{self.key} has not ended"
        assert self.status.state is state, f"{self.key}: {self.status.state.name} {self.status.error}"
