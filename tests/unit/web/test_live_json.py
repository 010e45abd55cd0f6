"""A job at a glance, and by vertex."""

from __future__ import annotations

import json

from lockgate_proto import messages as m
from lockgate_web.live import PAGE, live_json, overview_json, subtasks_json


def _operator(name: str, vertex: str, records_in: int, records_out: int) -> m.OperatorStatus:
    return m.OperatorStatus(name, name, vertex, records_in, records_out)


LOOP = m.JobStatus(
    "k",
    state=m.JobState.RUNNING,
    operators=(
        _operator("read", "a", 0, 5),
        _operator("map", "a", 5, 4),
        _operator("read other", "b", 0, 7),
        _operator("merge", "c", 11, 11),
        _operator("write", "c", 11, 0),
        _operator("late", "d", 2, 0),
    ),
    edges=(
        m.EdgeView("a", "c", m.Partitioning.HASH),
        m.EdgeView("b", "c", m.Partitioning.REBALANCE),
        m.EdgeView("c", "a", m.Partitioning.FEEDBACK),
        m.EdgeView("c", "d", m.Partitioning.FORWARD, "late"),
    ),
)


def test_what_sources_read_and_sinks_get_is_counted() -> None:
    found = overview_json(LOOP)
    assert (found["records_read"], found["records_written"]) == (12, 2)


def test_of_an_ended_job_the_first_and_the_last_operator_count() -> None:
    found = overview_json(m.JobStatus("k", operators=LOOP.operators))
    assert (found["records_read"], found["records_written"]) == (5, 2)
    nothing = overview_json(m.JobStatus("k"))
    assert (nothing["records_read"], nothing["records_written"]) == (0, 0)


def test_a_page_of_ten_thousand_subtasks_is_small() -> None:
    subtasks = tuple(m.SubtaskStatusView("a", number, f"tm-{number % 50}", "RUNNING") for number in range(10_000))
    large = m.JobStatus("k", operators=LOOP.operators, subtasks=subtasks, edges=LOOP.edges)
    found = live_json(large)
    assert found["vertices"][0]["states"] == {"RUNNING": 10_000}
    assert found["vertices"][0]["operators"] == ["read", "map"]
    assert len(json.dumps(found)) < 5_000
    page = subtasks_json(large, "a", 9_950)
    assert (page["total"], len(page["subtasks"]), page["subtasks"][0]["subtask"]) == (10_000, 50, 9_950)
    assert len(subtasks_json(large, "", 0)["subtasks"]) == PAGE
    assert subtasks_json(large, "b", 0)["total"] == 0
