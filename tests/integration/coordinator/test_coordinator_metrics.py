"""The page of metrics of a leader with jobs, and of a standby."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lockgate_common.clock import unix_ms
from lockgate_coordinator.runtime.metric_families import FAMILIES
from lockgate_coordinator.runtime.process import Coordinator
from lockgate_proto import messages as m

from tests.http_client import ask
from tests.integration.coordinator.conftest import NewCaller, NewCoordinator, NewTaskManager, graph, leading, poll
from tests.prometheus import Page, complaints

pytestmark = pytest.mark.integration

LOOPBACK = "127.0.0.1:0"
METRICS_PAGE = Path(__file__).resolve().parents[3] / "docs/metrics.md"


@pytest.fixture
def measured(new_coordinator: NewCoordinator) -> Coordinator:
    coordinator = new_coordinator(metrics=LOOPBACK)
    leading(coordinator)
    return coordinator


def _body(coordinator: Coordinator) -> bytes:
    assert coordinator.metrics is not None
    answer = ask(coordinator.metrics.address, "/metrics")
    assert answer.status == 200, answer.body
    return answer.body


def _page(coordinator: Coordinator) -> Page:
    return Page(_body(coordinator))


def test_a_leader_shows_its_jobs_and_forgets_removed_ones(
    measured: Coordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    new_task_manager().connect(measured.address)
    api = caller(measured)
    api("Submit", m.SubmitRequest("job", graph()))
    status = api.until("job", lambda status: status.checkpoints_completed >= 2)
    body = _body(measured)
    page = Page(body)
    assert complaints(body) == ""
    assert page.own_names <= {family.name for family in FAMILIES}
    assert page.get("lockgate_metrics_incomplete") == 0
    assert page.get("lockgate_coordinator_is_leader") == 1
    assert page.get("lockgate_fencing_token") == 1
    assert page.get("lockgate_task_managers") == 1
    assert page.get("lockgate_job_state", job_key="job", state="RUNNING") == 1
    assert page.get("lockgate_job_attempts_deployed_total", job_key="job") == 1
    completed = page.get("lockgate_checkpoints_total", job_key="job", result="completed", reason="")
    assert completed is not None
    assert completed >= status.checkpoints_completed
    assert page.get("lockgate_checkpoint_duration_seconds_count", job_key="job") == completed
    assert page.get("lockgate_checkpoint_interval_seconds", job_key="job") == 0.1
    assert page.get("lockgate_zookeeper_write_seconds_count")
    assert page.get("lockgate_grpc_streams", kind="task_manager") == 1
    assert page.labels("lockgate_operator_records_in_total", "operator") == {"numbers", "total", "out"}
    api("Cancel", m.CancelRequest("job"))
    api.state("job", m.JobState.CANCELED)
    assert "job" not in {label for name in page.own_names for label in _jobs(_page(measured), name)}


def _jobs(page: Page, name: str) -> set[str]:
    family = page.families.get(name.removesuffix("_total"))
    return {sample.labels.get("job_key", "") for sample in family.samples} if family is not None else set()


def _documented_causes() -> set[str]:
    listed = re.search(r"^`cause` of an attempt's end: ([^.]*)\.", METRICS_PAGE.read_text(), re.MULTILINE)
    assert listed is not None
    return set(re.findall(r"\w+", listed[1]))


def test_attempts_are_counted_by_the_cause_of_their_end(
    measured: Coordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    task_manager = new_task_manager().connect(measured.address)
    api = caller(measured)
    api("Submit", m.SubmitRequest("job", graph()))
    api.until("job", lambda status: status.checkpoints_completed >= 1)
    family, causes = "lockgate_job_attempts_ended_total", _documented_causes()
    assert {cause: _page(measured).get(family, job_key="job", cause=cause) for cause in causes} == dict.fromkeys(
        causes, 0
    )
    task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, m.FailureCause.USER_CODE, "OSError: gone")
    api.until("job", lambda status: status.attempt == 2 and status.state is m.JobState.RUNNING)
    task_manager.die()
    api.until("job", lambda status: status.restarts >= 2 or "lost" in status.error)
    page = _page(measured)
    assert page.get(family, job_key="job", cause="user_code") == 1
    assert page.get(family, job_key="job", cause="task_manager_lost") == 1
    assert page.labels(family, "cause") == causes


def test_the_interval_is_shown_before_a_job_runs_and_its_start_while_it_does(
    measured: Coordinator, caller: NewCaller, new_task_manager: NewTaskManager
) -> None:
    before = unix_ms() / 1e3
    api = caller(measured)
    api("Submit", m.SubmitRequest("job", graph()))
    api.until("job", lambda status: "slot" in status.message)
    page = _page(measured)
    assert page.get("lockgate_job_state", job_key="job", state="WAITING_FOR_SLOTS") == 1
    assert page.get("lockgate_checkpoint_interval_seconds", job_key="job") == 0.1
    assert page.get("lockgate_job_running_since_timestamp_seconds", job_key="job") is None
    new_task_manager().connect(measured.address)
    api.state("job", m.JobState.RUNNING)
    since = _page(measured).get("lockgate_job_running_since_timestamp_seconds", job_key="job")
    assert since is not None
    assert before - 1 <= since <= unix_ms() / 1e3 + 1


def _ended(coordinator: Coordinator) -> dict[str, float | None]:
    page = _page(coordinator)
    outcomes = ("FINISHED", "FAILED", "CANCELED")
    return {outcome: page.get("lockgate_jobs_ended_total", outcome=outcome) for outcome in outcomes}


def test_jobs_are_counted_by_their_outcome_and_a_standby_shows_zeros(
    measured: Coordinator, caller: NewCaller, new_task_manager: NewTaskManager, new_coordinator: NewCoordinator
) -> None:
    none = dict.fromkeys(("FINISHED", "FAILED", "CANCELED"), 0)
    standby = new_coordinator(metrics=LOOPBACK)
    assert _ended(measured) == _ended(standby) == none
    task_manager = new_task_manager().connect(measured.address)
    api = caller(measured)
    api("Submit", m.SubmitRequest("job", replace(graph(), restart=m.RestartStrategy(m.NoRestart()))))
    api.state("job", m.JobState.RUNNING)
    task_manager.report(m.SubtaskPhase.SUBTASK_FAILED, m.FailureCause.USER_CODE, "OSError: gone")
    api.state("job", m.JobState.FAILED)
    assert _ended(measured) == none | {"FAILED": 1}
    assert _ended(standby) == none


@pytest.mark.usefixtures("measured")
def test_a_standby_shows_itself_and_no_job(new_coordinator: NewCoordinator) -> None:
    standby = new_coordinator(metrics=LOOPBACK)
    page = _page(standby)
    assert page.get("lockgate_coordinator_is_leader") == 0
    assert page.get("lockgate_zookeeper_session_connected") == 1
    assert page.get("lockgate_task_managers") is None
    assert page.get("lockgate_metrics_incomplete") == 0


def test_a_term_that_ends_is_counted(measured: Coordinator) -> None:
    measured.elector.step_down("for this test")
    leading(measured)
    poll(lambda: _page(measured).get("lockgate_leadership_grants_total") == 2)
    page = _page(measured)
    assert page.get("lockgate_leadership_revocations_total") == 1
    assert page.get("lockgate_fencing_token") == 2


def test_without_the_setting_there_is_no_port(new_coordinator: NewCoordinator) -> None:
    assert new_coordinator().metrics is None


def test_no_port_stays_open_when_that_of_the_metrics_is_taken(
    measured: Coordinator, new_coordinator: NewCoordinator
) -> None:
    assert measured.metrics is not None
    dashboard, addresses = SimpleNamespace(url="http://here", is_open=True), list[str]()
    dashboard.stop = lambda: setattr(dashboard, "is_open", False)

    def web(_settings: Any, address: str, *_others: Any) -> Any:
        addresses.append(address)
        return dashboard

    with pytest.raises(OSError, match=r"cannot listen on .*coordinator\.metrics"):
        new_coordinator(web=web, metrics=measured.metrics.address)
    assert not dashboard.is_open
    host, _, port = addresses[0].rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
