"""What is performed, and that a performance makes way before the next program is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_proto.messages import AttemptId, JobGraph, PrepareJob, Vertex

from taskmanager.runtime.performances import RUNS, perform_job, perform_sample
from tests.unit.taskmanager.runtime.theatre import Theatre, advice, chain


def always() -> bool:
    return True


def test_a_job_is_opened_wired_and_run_over_nothing(tmp_path: Path) -> None:
    theatre = Theatre()
    assert perform_job(theatre, advice("job"), tmp_path, always)
    expected = [
        *["build read-0", "open read-0", "build count-0", "open count-0"],
        "process count-0",
        *["rehearse read-0", "rehearse count-0"] * RUNS,
        *["close read-0", "close count-0"],
    ]
    assert theatre.calls_of("job") == expected


def test_vertices_listed_downstream_first_are_wired_as_well(tmp_path: Path) -> None:
    theatre = Theatre()
    assert perform_job(theatre, advice("job", graph=chain("c", "b", "a", reverse=True)), tmp_path, always)
    calls = theatre.calls_of("job")
    assert calls[:6] == ["build a-0", "open a-0", "build b-0", "open b-0", "build c-0", "open c-0"]
    assert calls[6:8] == ["process b-0", "process a-0"], "c tells b its schema, and b tells a"


@pytest.mark.parametrize(
    ("parallelism", "slots", "subtasks"), [(1, 1, 1), (1, 4, 1), (3, 2, 2), (3, 3, 3), (2, 5, 2), (2, 0, 0)]
)
def test_as_many_subtasks_as_the_free_slots_can_take(
    tmp_path: Path, parallelism: int, slots: int, subtasks: int
) -> None:
    theatre = Theatre()
    graph = chain("read", "count", parallelism=parallelism)
    assert perform_job(theatre, advice("job", slots=slots, graph=graph), tmp_path, always)
    opened = [call for call in theatre.calls_of("job") if call.startswith("open")]
    assert opened == [f"open {vertex}-{number}" for vertex in ("read", "count") for number in range(subtasks)]


def test_the_programs_are_those_of_the_run_but_marked_as_a_rehearsal(tmp_path: Path) -> None:
    theatre = Theatre()
    graph = chain("read", "count", parallelism=2)
    perform_job(theatre, PrepareJob(AttemptId("job", "run-7", 5), graph, 1), tmp_path, always)
    assert len(theatre.contexts) == 2
    for context in theatre.contexts:
        assert context.is_rehearsal
        assert context.subtask.attempt == AttemptId("job", "run-7", 0)
        assert context.graph == graph
        assert context.parallelism == {"read": 2, "count": 2}
        assert context.restore is None
        assert context.checkpoint_directory == tmp_path.as_uri()


@pytest.mark.parametrize("leave", range(1 + 2 + 1 + 2 * RUNS))
def test_a_job_is_stopped_before_any_further_call(tmp_path: Path, leave: int) -> None:
    """leave: so many programs have been opened, wired or run when something is deployed."""
    theatre = Theatre()
    worked = ("open", "process", "rehearse")
    done = perform_job(theatre, advice("job"), tmp_path, lambda: theatre.count(*worked) < leave)
    total = 2 + 1 + 2 * RUNS
    assert theatre.count(*worked) == min(leave, total)
    assert done == (leave >= total)
    assert theatre.count("close") == theatre.count("build"), "nothing is kept from the attempt that was deployed"


@pytest.mark.parametrize("call", ["build count-0", "open read-0", "process count-0", "rehearse count-0"])
def test_whatever_fails_the_programs_are_closed(tmp_path: Path, call: str) -> None:
    theatre = Theatre()
    theatre.failing["job", call] = ValueError("no such column")
    with pytest.raises(ValueError, match="no such column"):
        perform_job(theatre, advice("job"), tmp_path, always)
    opened = {one.split()[1] for one in theatre.calls_of("job") if one.startswith("open")}
    closed = {one.split()[1] for one in theatre.calls_of("job") if one.startswith("close")}
    assert opened == closed


def test_a_message_without_a_graph_or_of_an_empty_one_is_done_at_once(tmp_path: Path) -> None:
    theatre = Theatre()
    assert perform_job(theatre, PrepareJob(AttemptId("job", "run", 1), None, 2), tmp_path, always)
    assert perform_job(theatre, PrepareJob(AttemptId("job", "run", 1), JobGraph("empty"), 2), tmp_path, always)
    assert theatre.calls == []


def test_where_a_schema_is_not_known_nothing_goes_downstream(tmp_path: Path) -> None:
    theatre = Theatre()
    theatre.silent.add("read")
    assert perform_job(theatre, advice("job"), tmp_path, always)
    assert theatre.count("process") == 0
    assert theatre.count("rehearse") == 2 * RUNS  # each program knows itself what it has compiled


def test_an_edge_to_a_subtask_that_is_not_here_leads_nowhere(tmp_path: Path) -> None:
    graph = chain("read", "count")
    wide = JobGraph("wide", (graph.vertices[0], Vertex("count", parallelism=3)), graph.edges)
    theatre = Theatre()
    assert perform_job(theatre, advice("job", slots=2, graph=wide), tmp_path, always)
    assert [one for one in theatre.calls_of("job") if "process" in one] == ["process count-0", "process count-1"]


def test_the_sample_is_a_whole_attempt_with_a_checkpoint(tmp_path: Path) -> None:
    theatre = Theatre()
    theatre.batches = 2
    perform_sample(theatre, tmp_path, "sample-1", always)
    assert {context.subtask.attempt for context in theatre.contexts} == {AttemptId("rehearsal", "sample-1", 1)}
    assert not any(context.is_rehearsal for context in theatre.contexts)
    calls = theatre.calls_of("rehearsal")
    assert calls.count("process totals-0") == 3  # the prologue and two batches
    assert calls[-9:] == [
        *["snapshot rows-0", "commit rows-0", "snapshot files-0", "commit files-0"],
        *["snapshot totals-0", "commit totals-0"],
        *["close rows-0", "close files-0", "close totals-0"],
    ]


def test_a_sample_is_stopped_between_two_batches(tmp_path: Path) -> None:
    theatre = Theatre()
    theatre.batches = 5
    perform_sample(theatre, tmp_path, "sample-1", lambda: theatre.count("poll") < 2)
    assert theatre.count("poll") == 2
    assert theatre.count("snapshot") == theatre.count("commit") == 0
    assert theatre.count("close") == 3
