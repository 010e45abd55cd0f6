"""A leader whose term is over takes in the job whose submission has just become durable."""

from __future__ import annotations

from concurrent.futures import Future

from lockgate_coordinator.runtime.submissions import Submissions
from lockgate_proto.messages import JobRecord, JobResult, SubmitResponse

_take = Submissions._take


def _though_over(
    self: Submissions, record: JobRecord, answer: Future[SubmitResponse], found: JobRecord | JobResult
) -> None:
    if self._term.fence.over.is_set() and isinstance(found, JobRecord) and found.run_id == record.run_id:
        self._term.add(found, recovered=False).load(fresh=True)
    _take(self, record, answer, found)


Submissions._take = _though_over  # type: ignore[method-assign]
