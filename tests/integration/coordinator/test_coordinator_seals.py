"""A savepoint of another cluster: refused, unless someone who may bring code says that it is trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from lockgate_common.security import Credentials
from lockgate_common.token_book import issue
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from lockgate.client import Client, NotAllowed
from tests.integration.coordinator.conftest import (
    NewCaller,
    NewCoordinator,
    NewTaskManager,
    Running,
    graph,
    leading,
    poll,
)

pytestmark = pytest.mark.integration

OTHER = Credentials(secret="the secret of another cluster")


def test_a_savepoint_of_another_cluster_starts_a_job_only_if_it_is_trusted(
    running: Callable[..., Running],
    new_coordinator: NewCoordinator,
    caller: NewCaller,
    new_task_manager: NewTaskManager,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    caplog.set_level(logging.INFO, "lockgate.audit")
    savepoint = running(checkpoints=1).api("TriggerSavepoint", m.TriggerSavepointRequest("job")).savepoint
    file = tmp_path / "tokens.json"
    other = leading(new_coordinator(cluster="other", credentials=OTHER, tokens_file=str(file)))
    task_manager = new_task_manager("tm-other", credentials=OTHER).connect(other.address)
    api = caller(other, OTHER)
    refused = api.fails("Submit", m.SubmitRequest("next", graph(), savepoint.pointer))
    assert refused.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.details().startswith(f"cannot start from {savepoint.pointer}: ")
    assert "the seal of another secret or cluster than other; if " in refused.details()
    assert "--trust-snapshot" in refused.details()
    may_submit = issue(file, OTHER.secret, "submitter", ("submit",), 0)
    with (
        Client([other.address], credentials=Credentials(token=may_submit)) as client,
        pytest.raises(NotAllowed, match="--trust-snapshot needs the role code, which submitter does not have"),
    ):
        client.submit("next", graph(), savepoint.pointer, trust_snapshot=True)
    may_code = issue(file, OTHER.secret, "coder", ("code",), 0)
    with Client([other.address], credentials=Credentials(token=may_code)) as client:
        assert client.submit("next", graph(), savepoint.pointer, trust_snapshot=True).created
        api.state("next", JobState.RUNNING)
        assert not client.submit("next", graph(), savepoint.pointer).created, "asked again, it is the same job"
    deploy = task_manager.expect(m.Deploy)
    assert isinstance(deploy, m.Deploy)
    assert deploy.restored_checkpoint_id == savepoint.checkpoint_id
    poll(lambda: len(_audited(caplog)) >= 8)
    start = f"Submit job='next' trust-snapshot={savepoint.pointer!r}"
    assert [line for line in _audited(caplog) if "trust" in line] == [
        f"{start} by='submitter' asked",
        f"{start} by='submitter' PERMISSION_DENIED",
        f"{start} by='coder' asked",
        f"{start} by='coder' OK",
    ]


def _audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.name == "lockgate.audit"]
    return [line.partition(" from=")[0] + line.rpartition(":")[2] for line in found]
