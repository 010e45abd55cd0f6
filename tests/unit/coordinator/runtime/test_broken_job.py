"""A job that is broken off: everything that this leader has deployed of it is cancelled."""

from __future__ import annotations

from unittest.mock import MagicMock

from lockgate_coordinator.job import effects as do
from lockgate_coordinator.runtime.job_runner import JobRunner
from lockgate_coordinator.runtime.stage import Stage
from lockgate_proto.messages import AttemptId, AttemptRecord, CancelAttempt, JobRecord


def test_of_a_job_that_runs_in_several_attempts_each_is_cancelled_where_it_runs() -> None:
    services = MagicMock()
    runner = JobRunner(JobRecord(job_key="job", run_id="run"), services)
    runner.stage = Stage.RUNNING
    record = AttemptRecord(3, ("tm-a", "tm-b", "tm-b", "tm-a"), slot_attempts=(1, 3, 2, 1))
    runner._do(do.PersistAttempt(record), "")
    runner.quarantine("a defect")
    cancelled = [(call.args[0], call.args[1].attempt) for call in services.send.call_args_list]
    assert cancelled == [
        (name, AttemptId("job", "run", number)) for name, number in (("tm-a", 1), ("tm-b", 2), ("tm-b", 3))
    ]
    assert all(isinstance(call.args[1], CancelAttempt) for call in services.send.call_args_list)
