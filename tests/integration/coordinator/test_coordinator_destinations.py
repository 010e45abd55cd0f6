"""A job that would write where another one writes is refused, whatever that one is just doing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from lockgate_coordinator.runtime.recovery_line import MAX_DEATHS
from lockgate_ha.embedded import EmbeddedZooKeeper
from lockgate_ha.records import JobRecords
from lockgate_proto import messages as m
from lockgate_proto.messages import JobState

from tests.integration.coordinator.conftest import Caller, NewCaller, NewCoordinator, NewTaskManager, graph, leading

pytestmark = pytest.mark.integration


def _writing(path: Path, *, shared: bool = False) -> m.JobGraph:
    whole = graph()
    last = whole.vertices[-1]
    sink = m.Operator("out", kind=m.FileSink(str(path), m.FileFormat.PARQUET, shared))
    return replace(whole, vertices=(*whole.vertices[:-1], replace(last, operators=(*last.operators[:-1], sink))))


def _refused(api: Caller, key: str, path: Path) -> None:
    error = api.fails("Submit", m.SubmitRequest(key, _writing(path)))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"Sink 'out' writes the folder {path}" in (error.details() or "")
    assert "job 'first', which has not ended" in (error.details() or "")


def test_until_the_first_has_ended_or_the_second_asks_for_it(api: Caller, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = api("Submit", m.SubmitRequest("first", _writing(out))).run_id
    _refused(api, "second", out)
    assert api("Submit", m.SubmitRequest("first", _writing(out))).run_id == run  # the same job, not another one
    assert api("Submit", m.SubmitRequest("elsewhere", _writing(tmp_path / "else"))).created
    assert api("Submit", m.SubmitRequest("third", _writing(out, shared=True))).created
    for key in ("first", "third"):
        api("Cancel", m.CancelRequest(key))
        api.state(key, JobState.CANCELED)
    assert api("Submit", m.SubmitRequest("second", _writing(out))).created


def test_a_later_leader_knows_where_jobs_write_that_it_holds_back(
    server: EmbeddedZooKeeper, new_coordinator: NewCoordinator, caller: NewCaller, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = leading(new_coordinator())
    caller(first)("Submit", m.SubmitRequest("first", _writing(out)))
    first.stop()
    store, grant = server.lead("default", "between")
    JobRecords(store, "default").note_recovery(grant, "first", MAX_DEATHS)
    api = caller(leading(new_coordinator()))
    api.state("first", JobState.HELD_BACK)
    _refused(api, "second", out)


def test_a_later_leader_knows_where_the_jobs_write_that_it_runs(
    new_coordinator: NewCoordinator, caller: NewCaller, new_task_manager: NewTaskManager, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    first = leading(new_coordinator())
    caller(first)("Submit", m.SubmitRequest("first", _writing(out)))
    first.stop()
    second = leading(new_coordinator())
    new_task_manager().connect(second.address)
    api = caller(second)
    api.state("first", JobState.RUNNING)
    _refused(api, "second", out)
