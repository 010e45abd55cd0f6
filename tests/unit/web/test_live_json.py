"""A job at a glance, and by vertex."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from lockgate_proto import messages as m
from lockgate_web import live
from lockgate_web.live import PAGE, graph_json, live_json, overview_json, snapshots_json, subtasks_json
from lockgate_web.schemas import SCHEMAS

from lockgate import json_shapes


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


def test_totals_are_those_of_the_leader_and_none_is_guessed() -> None:
    """Of a job that ended under an older version they are not known."""
    for found in (overview_json(LOOP), live_json(LOOP)):
        assert (found["records_read"], found["records_written"]) == (None, None)
    known = replace(LOOP, records_read=12, records_written=0)
    for found in (overview_json(known), live_json(known)):
        assert (found["records_read"], found["records_written"]) == (12, 0)


def test_a_loop_does_not_turn_the_drawing_round() -> None:
    places = {vertex["id"]: vertex["x"] for vertex in graph_json(LOOP)["vertices"]}
    assert places["a"] == places["b"] < places["c"] < places["d"]


def test_only_sent_subtasks_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[m.SubtaskStatusView] = []
    make = json_shapes.subtask_json

    def noting(subtask: m.SubtaskStatusView) -> json_shapes.Json:
        built.append(subtask)
        return make(subtask)

    monkeypatch.setattr(json_shapes, "subtask_json", noting)
    monkeypatch.setattr(live, "subtask_json", noting)
    large = replace(LOOP, subtasks=tuple(m.SubtaskStatusView("a", number) for number in range(1_000)))
    assert live_json(large)["vertices"][0]["parallelism"] == 1_000
    assert built == []
    subtasks_json(large, "", 300)
    assert built == list(large.subtasks[300 : 300 + PAGE])


def test_a_vertex_is_as_busy_as_its_subtasks() -> None:
    subtasks = [m.SubtaskStatusView("a", number, "tm", "RUNNING") for number in range(2)]
    loaded = (replace(subtasks[0], load=m.SubtaskLoad(800, 100, 5_000, 250, True, True)), subtasks[1])
    found = live_json(replace(LOOP, subtasks=loaded))["vertices"]
    load = ("busy", "backpressured", "idle", "busiest", "watermark_unix_ms", "lag_ms")
    assert [found[0][name] for name in load] == [0.8, 0.1, 0.1, 0.8, 5_000, 250]
    assert [found[1][name] for name in load] == [None] * 6
    page = subtasks_json(replace(LOOP, subtasks=loaded), "a", 0)["subtasks"]
    names = [name for name in load if name != "busiest"]
    assert [page[0][name] for name in names] == [0.8, 0.1, 0.1, 5_000, 250]
    assert [page[1][name] for name in names] == [None] * 5


def test_a_backlog_is_null_where_it_is_not_known() -> None:
    names = ("backlog_records", "backlog_bytes", "backlog_splits")
    load = m.SubtaskLoad(backlog_bytes=70, backlog_splits=2, has_backlog_bytes=True, has_backlog_splits=True)
    known = replace(LOOP, subtasks=(m.SubtaskStatusView("a", 0, "tm", "RUNNING", load),))
    found = live_json(known)
    assert [found[name] for name in names] == [None, 70, 2]
    assert [found["vertices"][0][name] for name in names] == [None, 70, 2]
    assert [found["vertices"][1][name] for name in names] == [None] * 3
    assert [subtasks_json(known, "a", 0)["subtasks"][0][name] for name in names] == [None, 70, 2]
    assert [overview_json(known)[name] for name in names] == [None, 70, 2]


def test_the_slowest_subtasks_of_a_checkpoint_come_first() -> None:
    parts = [m.SubtaskSnapshot("ab"[number % 2], number, "tm", number % 1_000, 9) for number in range(2_000)]
    found = snapshots_json(7, parts, "", 0)
    assert (found["id"], found["total"], len(found["subtasks"])) == (7, 2_000, PAGE)
    assert [part["duration_ms"] for part in found["subtasks"][:3]] == [999, 999, 998]
    assert snapshots_json(7, parts, "a", 900)["subtasks"][-1]["duration_ms"] == 0
    assert {part["vertex"] for part in snapshots_json(7, parts, "b", 100)["subtasks"]} == {"b"}
    assert snapshots_json(7, (), "", 0) == {"id": 7, "total": 0, "offset": 0, "subtasks": []}


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


def test_standby_copies_are_shown_as_the_schemas_say() -> None:
    standby = m.StandbyStatus(2, 1, (m.CopyStatus("tm", ("other",), 3, 2, 9, 1, problem="the disk is full"),))
    found = live_json(replace(LOOP, standby_copies=standby))["standby_copies"]
    assert (found["wanted"], found["complete"]) == (2, 1)
    (keeper,) = found["keepers"]
    assert keeper.keys() == SCHEMAS["CopyKeeper"]["properties"].keys()
    assert (keeper["files_kept"], keeper["complete_checkpoint"]) == (1, None)
    assert live_json(LOOP)["standby_copies"] is None
