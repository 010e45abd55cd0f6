"""What depends on records ends the job at once, as what is wrong without any."""

from __future__ import annotations

from lockgate_proto.messages import FailureCause
from lockgate_taskmanager.runtime import failures, subtask_task

_cause_of = failures.cause_of


def _final(error: BaseException) -> FailureCause:
    cause = _cause_of(error)
    return FailureCause.USER_ERROR if cause in (FailureCause.DATA_ERROR, FailureCause.USER_CODE) else cause


failures.cause_of = _final
subtask_task.cause_of = _final
