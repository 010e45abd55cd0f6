"""Every path of the JSON API over a real coordinator: its shape, its orders, its errors."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import jsonschema
import pytest
from lockgate_coordinator.graph.execution_graph import ExecutionGraph
from lockgate_proto import messages as m
from lockgate_web import clients, dashboard
from lockgate_web.app import ORDERS
from lockgate_web.endpoints import API, Endpoint, endpoints
from lockgate_web.reads import Reads
from lockgate_web.schemas import SCHEMAS

from lockgate import json_shapes
from lockgate.client import Client
from tests.http_client import ask
from tests.integration.coordinator.conftest import SECRET, NewCoordinator, abort_one, graph, poll
from tests.integration.coordinator.fake_task_manager import FakeFleet
from tests.integration.web.conftest import KEY, Events, Site

pytestmark = pytest.mark.integration

TABLE = endpoints(Reads("default", "embedded"))
OpenEvents = Callable[..., Events]


def check(schema: Any, value: Any) -> None:
    """Raises when the value is not as it is described."""
    jsonschema.validate(value, {**schema, "components": {"schemas": SCHEMAS}})


def newest(status: m.JobStatus) -> int:
    return status.last_checkpoint.checkpoint_id if status.last_checkpoint is not None else 0


def _path(endpoint: Endpoint) -> str:
    return endpoint.path.replace("{key}", KEY).replace("{id}", "1")


def test_every_answer_that_is_read_is_as_described(busy: Site) -> None:
    reads = [endpoint for endpoint in TABLE if endpoint.method == "GET" and not endpoint.is_stream]
    assert len(reads) > 8
    for endpoint in reads:
        answer = busy.get(_path(endpoint))
        assert answer.status == 200, (endpoint.path, answer.body)
        assert answer.headers["content-type"] == "application/json"
        check(endpoint.answer, answer.json)
    assert busy.get(f"{API}/jobs/{KEY}/checkpoints").json
    assert busy.get(f"{API}/jobs/{KEY}/story").json["lines"]


def test_the_description_names_every_path(site: Site) -> None:
    described = site.get(f"{API}/openapi.json").json
    found = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert found == {(endpoint.method, endpoint.path) for endpoint in TABLE}
    for endpoint in TABLE:
        other = "GET" if endpoint.method == "POST" else "PUT"
        sent = {"Content-Type": "application/json"}
        assert ask(site.address, _path(endpoint), other, sent, b"{}").status == 405
    assert described["openapi"] == "3.1.0"


def test_a_job_reads_as_on_the_command_line(busy: Site) -> None:
    with Client([busy.leader.address], credentials=SECRET) as client:
        status, listed, cluster = client.job(KEY), client.jobs(), client.cluster()
    found = busy.get(f"{API}/jobs/{KEY}").json
    wanted = json_shapes.job_json(status)
    assert list(found) == list(wanted)
    assert {**found, "checkpoints": 0, "last_checkpoint": 0} == {**wanted, "checkpoints": 0, "last_checkpoint": 0}
    assert busy.get(f"{API}/jobs").json == [json_shapes.summary_json(job) for job in listed]
    shown = busy.get(f"{API}/cluster").json
    assert shown["task_managers"] == json_shapes.status_json(cluster, listed)["task_managers"]
    assert shown["leader"]["token"] == cluster.leader.token
    assert shown["coordinators"][0]["dashboard"] == busy.leader.dashboard == shown["leader"]["dashboard"]
    assert shown["jobs"] == {"RUNNING": 1}


def test_subtasks_come_in_pages(busy: Site) -> None:
    found = busy.get(f"{API}/jobs/{KEY}/subtasks?vertex=count").json
    assert (found["total"], [subtask["vertex"] for subtask in found["subtasks"]]) == (1, ["count"])
    assert busy.get(f"{API}/jobs/{KEY}/subtasks?offset=1").json["total"] == 2
    assert busy.get(f"{API}/jobs/{KEY}/subtasks?offset=two").status == 400


def test_the_subtasks_of_a_checkpoint_are_listed(busy: Site) -> None:
    number = newest(busy.api.until(KEY, lambda status: newest(status) > 1))
    path = f"{API}/jobs/{KEY}/checkpoints"
    found = busy.get(f"{path}/{number}").json
    parts = next(endpoint for endpoint in TABLE if endpoint.path.endswith("/checkpoints/{id}"))
    check(parts.answer, found)
    assert (found["id"], found["total"]) == (number, 2)
    assert {(part["vertex"], part["task_manager"] != "") for part in found["subtasks"]} == {
        ("source", True),
        ("count", True),
    }
    assert all(part["size_bytes"] > 0 for part in found["subtasks"])
    assert busy.get(f"{path}/{number}?vertex=count").json["total"] == 1
    assert busy.get(f"{path}/999999").json["subtasks"] == []
    assert (busy.get(f"{path}/one").status, busy.get(f"{path}/one").error) == (
        400,
        "'one' is not the id of a checkpoint",
    )
    assert busy.get(f"{API}/jobs/none/checkpoints/1").status == 404


def test_the_history_of_checkpoints_is_that_of_the_command_line(busy: Site, fleet: FakeFleet) -> None:
    assert busy.task_manager is not None
    aborted = abort_one(fleet, busy.task_manager, busy.api, "no space is left")
    busy.api.until(KEY, lambda status: newest(status) > aborted)
    path = f"{API}/jobs/{KEY}/checkpoints"
    answer = busy.get(f"{path}/history").json
    history = next(endpoint for endpoint in TABLE if endpoint.path.endswith("/history"))
    check(history.answer, answer)
    found = {each["id"]: each for each in answer}
    assert list(found) == sorted(found, reverse=True)
    assert (found[aborted]["outcome"], found[aborted]["reason"]) == ("aborted", "storage_declined")
    assert found[aborted]["text"].endswith("declined it: no space is left")
    assert (found[1]["outcome"], found[1]["retained"], found[1]["subtasks"]) == ("completed", False, 2)
    with Client([busy.leader.address], credentials=SECRET) as client:
        assert json_shapes.outcome_json(client.checkpoint_history(KEY)[-1]) == answer[-1]
    plain = busy.get(path).json
    assert plain
    assert all("outcome" not in each for each in plain)
    assert {each["id"] for each in plain}.isdisjoint({1, aborted})
    assert busy.get(f"{API}/jobs/none/checkpoints/history").status == 404


def test_an_ended_job_still_says_what_became_of_its_checkpoints(busy: Site) -> None:
    busy.api.until(KEY, lambda status: newest(status) > 2)
    busy.api("Cancel", m.CancelRequest(KEY))
    busy.api.state(KEY, m.JobState.CANCELED)
    found = busy.get(f"{API}/jobs/{KEY}/checkpoints/history").json
    assert found[-1]["id"] == 1
    assert not any(each["retained"] for each in found)
    assert busy.get(f"{API}/jobs/{KEY}/checkpoints").json == []


def test_the_leaders_are_named(busy: Site) -> None:
    poll(lambda: busy.get(f"{API}/cluster").json["leaders"])
    (leader,) = busy.get(f"{API}/cluster").json["leaders"]
    assert (leader["token"], leader["address"], leader["ended_unix_us"]) == (1, busy.leader.address, None)


def test_the_overview_asks_for_no_subtasks_and_counts_them(busy: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[object] = []
    views = ExecutionGraph.views

    def noting(graph: ExecutionGraph) -> tuple[m.SubtaskStatusView, ...]:
        built.append(graph)
        return views(graph)

    term = busy.leader.dispatcher.term
    assert term is not None
    monkeypatch.setattr(term.jobs[KEY].hub, "_watchers", [])  # nor does anyone watch
    monkeypatch.setattr(ExecutionGraph, "views", noting)
    (job,) = busy.get(f"{API}/overview").json["jobs"]
    assert job["subtasks"] == 2
    assert busy.get(f"{API}/jobs").json
    assert built == []
    assert len(busy.get(f"{API}/jobs/{KEY}").json["subtasks"]) == 2
    assert built


def test_the_graph_is_drawn(busy: Site) -> None:
    drawn = busy.get(f"{API}/jobs/{KEY}/graph").json
    places = {vertex["id"]: vertex["x"] for vertex in drawn["vertices"]}
    assert places["source"] + drawn["vertex_width"] < places["count"]
    assert [(edge["source"], edge["target"], edge["partitioning"]) for edge in drawn["edges"]] == [
        ("source", "count", "hash")
    ]


def test_orders_reach_the_job(busy: Site, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lockgate.audit")
    job = f"{API}/jobs/{KEY}"
    by_path = {endpoint.path.rpartition("{key}/")[2]: endpoint for endpoint in TABLE if endpoint.method == "POST"}
    taken = busy.post(f"{job}/savepoint", {"request_id": "once"})
    assert taken.status == 200, taken.body
    check(by_path["savepoint"].answer, taken.json)
    assert busy.post(f"{job}/savepoint", {"request_id": "once"}).json["id"] == taken.json["id"]
    busy.api.until(KEY, lambda status: newest(status) > taken.json["id"])  # it would be restored until then
    disposed = busy.post(f"{job}/savepoints/{taken.json['id']}/dispose")
    assert disposed.json == {"key": KEY, "disposed": taken.json["id"]}
    check(by_path["savepoints/{id}/dispose"].answer, disposed.json)
    kinds = [found["kind"] for found in busy.get(f"{job}/checkpoints").json]
    assert "savepoint" not in kinds
    released = busy.post(f"{job}/release")
    assert released.json == {"key": KEY, "state": "RUNNING"}
    check(by_path["release"].answer, released.json)
    canceled = busy.post(f"{job}/cancel")
    check(by_path["cancel"].answer, canceled.json)
    busy.api.state(KEY, m.JobState.CANCELED)
    lines = [record.message for record in caplog.records if "from=http:" in record.message]
    assert [line.rpartition(": ")[2] for line in lines] == ["asked", "OK"] * 5
    assert lines[0].startswith("TriggerSavepoint job='job' by='the secret' from=http:127.0.0.1:")


def test_a_stop_answers_with_its_savepoint(busy: Site) -> None:
    stopped = busy.post(f"{API}/jobs/{KEY}/stop", {"drain": False})
    assert (stopped.status, stopped.json["kind"]) == (200, "savepoint")
    assert busy.api.state(KEY, m.JobState.FINISHED)
    assert busy.post(f"{API}/jobs/{KEY}/savepoint").status == 409


def test_a_rescale_is_checked_and_made(busy: Site) -> None:
    path = f"{API}/jobs/{KEY}/rescale"
    for body in ({}, {"parallelism": {}}, {"parallelism": {"count": "2"}}, {"parallelism": [1]}, {"other": 1}, 7):
        answer = busy.post(path, body)
        assert (answer.status, bool(answer.error)) == (400, True)
    unknown = busy.post(path, {"parallelism": {"nowhere": 2}})
    assert (unknown.status, "nowhere" in unknown.error) == (409, True)
    answer = busy.post(path, {"parallelism": {"count": 1}})
    assert (answer.status, answer.json["parallelism"]["count"]) == (200, 1)


def test_errors_are_one_sentence(site: Site) -> None:
    for path in ("jobs/none", "jobs/none/graph", "jobs/none/checkpoints", "jobs/none/events", "jobs/none/story"):
        answer = site.get(f"{API}/{path}")
        assert (answer.status, "no job 'none'" in answer.error) == (404, True), path
    assert site.post(f"{API}/jobs/none/cancel").status == 404
    assert (site.get("/api/v2/jobs").status, site.get("/api/v2/jobs").error) == (404, "there is no such path")
    assert site.get("/static/../app.py").status == 404
    assert site.get("/static/nothing.js").status == 404
    assert site.post(f"{API}/jobs/{KEY}/savepoints/one/dispose").status == 400
    assert site.get("/healthz").status == 200


def test_without_a_leader_it_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_PATIENCE_MS", 3_000)
    monkeypatch.setattr(type(site.leader.elector), "leader", property(lambda _elector: None))
    answers = [site.get(f"{API}/jobs")]
    # on a busy machine the connection may take longer than the patience, and the answer says that
    while "leader" not in answers[-1].error and len(answers) < 20:
        answers.append(site.get(f"{API}/jobs"))
    assert "leader" in answers[-1].error
    assert [answer.status for answer in answers] == [503] * len(answers)
    assert site.get("/healthz").status == 200


def test_a_job_is_watched_until_its_end(busy: Site, open_events: OpenEvents) -> None:
    events = open_events(busy.address, f"{API}/jobs/{KEY}/events")
    assert events.answer.headers["content-type"].startswith("text/event-stream")
    status = events.until("status", lambda value: value["state"] == "RUNNING")
    check({"$ref": "#/components/schemas/JobByVertex"}, status)
    assert [vertex["id"] for vertex in status["vertices"]] == ["source", "count"]
    event = events.until("event", lambda value: value["kind"] == "CHECKPOINT_COMPLETED")
    check({"$ref": "#/components/schemas/Event"}, event)
    busy.api("Cancel", m.CancelRequest(KEY))
    assert events.until("status", lambda value: value["state"] == "CANCELED")
    assert events.until("end") == {}


def test_the_overview_is_live(busy: Site, open_events: OpenEvents) -> None:
    events = open_events(busy.address, f"{API}/events")
    found = events.until("overview", lambda value: value["jobs"])
    check({"$ref": "#/components/schemas/Overview"}, found)
    assert (found["jobs"][0]["key"], found["jobs"][0]["state"]) == (KEY, "RUNNING")
    busy.api("Cancel", m.CancelRequest(KEY))
    assert events.until("overview", lambda value: value["jobs"][0]["state"] == "CANCELED")


def test_stopping_the_coordinator_ends_its_streams(busy: Site, open_events: OpenEvents) -> None:
    streams = [open_events(busy.address, path) for path in (f"{API}/events", f"{API}/jobs/{KEY}/events")]
    for stream in streams:
        assert next(iter(stream))
    busy.leader.stop()
    for stream in streams:
        list(stream)


def test_users_beyond_the_bound_are_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_KEPT", 0)
    answer = site.get(f"{API}/jobs")
    assert (answer.status, "too many users" in answer.error) == (503, True)


def test_the_default_port_may_be_taken(
    site: Site, new_coordinator: NewCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:

    monkeypatch.setattr(dashboard, "DASHBOARD", site.address)
    other = new_coordinator(web=dashboard.Dashboard, dashboard="")
    assert other.dashboard.startswith("http://127.0.0.1:")
    assert other.dashboard != site.leader.dashboard
    with pytest.raises(OSError, match=r"^cannot listen on .*coordinator\.dashboard \(--dashboard\)$"):
        new_coordinator(web=dashboard.Dashboard, dashboard=site.address)
    assert new_coordinator(web=dashboard.Dashboard, dashboard="off").dashboard == ""
    with pytest.raises(ValueError, match=r"^dashboard: 'nowhere' is not host:port; give host:port, or off$"):
        new_coordinator(web=dashboard.Dashboard, dashboard="nowhere")


def test_the_metrics_of_the_coordinator_are_on_its_dashboard(busy: Site) -> None:
    answer = busy.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    assert b"lockgate_coordinator_is_leader 1.0" in answer.body
    assert busy.post("/metrics").status == 405


def test_orders_that_wait_hold_up_nothing_else(site: Site) -> None:
    def is_full() -> bool:
        answer = site.post(f"{API}/jobs/{KEY}/release")
        return answer.status == 503 and "wait at this dashboard" in answer.json["error"]

    site.api("Submit", m.SubmitRequest(KEY, graph()))
    site.api.until(KEY, lambda status: "slot" in status.message)
    stop = partial(site.post, f"{API}/jobs/{KEY}/stop")
    # The job never runs, so none is answered before it is cancelled; one is refused while `is_full` asks.
    waiting = [threading.Thread(target=poll, args=(lambda: stop().status != 503,)) for _ in range(ORDERS)]
    for thread in waiting:
        thread.start()
    poll(is_full)
    assert site.get(f"{API}/jobs/{KEY}").status == 200
    site.api("Cancel", m.CancelRequest(KEY))
    for thread in waiting:
        thread.join()
    assert not is_full()
