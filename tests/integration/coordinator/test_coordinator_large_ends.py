"""However much there is to say of a job, its end can be written."""

from __future__ import annotations

import dataclasses

import pytest
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.codec import encode
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import NewCaller, NewCoordinator, NewTaskManager, graph, leading, poll

pytestmark = pytest.mark.integration


def test_a_job_whose_failure_message_takes_megabytes_ends(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    leader = leading(new_coordinator())
    api, task_manager = caller(leader), new_task_manager().connect(leader.address)
    never = m.RestartStrategy(strategy=m.NoRestart())
    api("Submit", m.SubmitRequest("job", dataclasses.replace(graph(), restart=never)))
    api.state("job", JobState.RUNNING)
    task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, error="x" * 3_000_000)
    assert api.state("job", JobState.FAILED).error


def test_a_job_with_thousands_of_savepoints_ends(
    server: EmbeddedZooKeeper, new_coordinator: NewCoordinator, caller: NewCaller
) -> None:
    """No leader takes that many, but one of an earlier version may have."""
    many = 5_000
    store, grant = server.lead("default", "former")
    records = JobRecords(store, "default")
    records.submit(grant, m.JobRecord("job", "run", graph=encode(graph()), submitted_unix_ms=1))
    records.write_checkpoint_id(grant, "job", many)
    pointer = "s3://a-bucket-of-the-company/streaming/checkpoints/default/job/3f2a4c8e-run/savepoints/chk-{}/_metadata"
    for number in range(1, many + 1):
        checkpoint = m.CompletedCheckpoint(
            number,
            kind=m.CheckpointKind.SAVEPOINT,
            pointer=pointer.format(number),
            checksum="0123456789abcdef",
            token=1,
            request_ids=("0123456789abcdef0123456789abcdef",),
        )
        records.add_checkpoint(grant, "job", checkpoint)
    api = caller(leading(new_coordinator()))
    api("Cancel", m.CancelRequest("job"))
    api.state("job", JobState.CANCELED)
    poll(lambda: records.job("job") is None)
    assert len(api("ListCheckpoints", m.ListCheckpointsRequest("job")).checkpoints) == many
