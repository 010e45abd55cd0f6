"""The attempt of the leader before, which may still run on its task managers."""

from __future__ import annotations

from collections.abc import Iterable

from lockgate_proto.messages import AttemptId, AttemptRecord, CancelAttempt, JobRecord

from coordinator.recovery.effects import Send


class StaleAttempt:
    """A Deploy replaces it on the task managers of the new attempt; everywhere else it has to be cancelled."""

    def __init__(self, record: JobRecord, attempt: AttemptRecord | None) -> None:
        self._places = set(attempt.task_manager_ids) - {""} if attempt is not None else set()
        number = attempt.attempt if attempt is not None else 0
        self._id = AttemptId(job_key=record.job_key, run_id=record.run_id, attempt=number)

    def covers(self, task_manager_id: str, attempt: AttemptId) -> bool:
        """True while the next deployment will deal with this attempt there: it replaces or cancels it."""
        return attempt == self._id and task_manager_id in self._places

    def cancel(self, reason: str, replaced_on: Iterable[str] = ()) -> list[Send]:
        """Cancels it wherever it is not replaced. Once."""
        places, self._places = self._places - set(replaced_on), set()
        return [Send(name, CancelAttempt(attempt=self._id, reason=reason)) for name in sorted(places)]
