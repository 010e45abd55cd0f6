"""What is performed, and that a performance makes way before the next program is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from lockgate_proto.messages import AttemptId, JobGraph, PrepareJob, Vertex
from lockgate_taskmanager.runtime.warmup_jobs import RUNS, run_batches, run_sample, warm_up_job

from tests.unit.taskmanager.runtime.fake_program_factory import FakeProgramFactory, advice, chain


def always() -> bool:
    return True


def test_a_job_is_opened_wired_and_run_over_nothing(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    assert warm_up_job(factory, advice("job"), tmp_path, always)
    expected = [
        *["build read-0", "open read-0", "build count-0", "open count-0"],
        "process count-0",
        *["warm_up read-0", "warm_up count-0"] * RUNS,
        *["close read-0", "close count-0"],
    ]
    assert factory.calls_of("job") == expected


def test_vertices_listed_downstream_first_are_wired_as_well(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    assert warm_up_job(factory, advice("job", graph=chain("c", "b", "a", reverse=True)), tmp_path, always)
    calls = factory.calls_of("job")
    assert calls[:6] == ["build a-0", "open a-0", "build b-0", "open b-0", "build c-0", "open c-0"]
    assert calls[6:8] == ["process b-0", "process a-0"], "c tells b its schema, and b tells a"


@pytest.mark.parametrize(
    ("parallelism", "slots", "subtasks"), [(1, 1, 1), (1, 4, 1), (3, 2, 2), (3, 3, 3), (2, 5, 2), (2, 0, 0)]
)
def test_as_many_subtasks_as_the_free_slots_can_take(
    tmp_path: Path, parallelism: int, slots: int, subtasks: int
) -> None:
    factory = FakeProgramFactory()
    graph = chain("read", "count", parallelism=parallelism)
    assert warm_up_job(factory, advice("job", slots=slots, graph=graph), tmp_path, always)
    opened = [call for call in factory.calls_of("job") if call.startswith("open")]
    assert opened == [f"open {vertex}-{number}" for vertex in ("read", "count") for number in range(subtasks)]


def test_the_programs_are_those_of_the_run_but_marked_as_a_warm_up(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    graph = chain("read", "count", parallelism=2)
    warm_up_job(factory, PrepareJob(AttemptId("job", "run-7", 5), graph, 1), tmp_path, always)
    assert len(factory.contexts) == 2
    for context in factory.contexts:
        assert context.is_warmup
        assert context.subtask.attempt == AttemptId("job", "run-7", 0)
        assert context.graph == graph
        assert context.parallelism == {"read": 2, "count": 2}
        assert context.restore is None
        assert context.checkpoint_directory == tmp_path.as_uri()


@pytest.mark.parametrize("leave", range(1 + 2 + 1 + 2 * RUNS))
def test_a_job_is_stopped_before_any_further_call(tmp_path: Path, leave: int) -> None:
    """leave: so many programs have been opened, wired or run when something is deployed."""
    factory = FakeProgramFactory()
    worked = ("open", "process", "warm_up")
    done = warm_up_job(factory, advice("job"), tmp_path, lambda: factory.count(*worked) < leave)
    total = 2 + 1 + 2 * RUNS
    assert factory.count(*worked) == min(leave, total)
    assert done == (leave >= total)
    assert factory.count("close") == factory.count("build"), "nothing is kept from the attempt that was deployed"


@pytest.mark.parametrize("call", ["build count-0", "open read-0", "process count-0", "warm_up count-0"])
def test_programs_are_closed_after_any_failure(tmp_path: Path, call: str) -> None:
    factory = FakeProgramFactory()
    factory.failing["job", call] = ValueError("no such column")
    with pytest.raises(ValueError, match="no such column"):
        warm_up_job(factory, advice("job"), tmp_path, always)
    opened = {call.split()[1] for call in factory.calls_of("job") if call.startswith("open")}
    closed = {call.split()[1] for call in factory.calls_of("job") if call.startswith("close")}
    assert opened == closed


def test_a_message_without_a_graph_or_of_an_empty_one_is_done_at_once(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    assert warm_up_job(factory, PrepareJob(AttemptId("job", "run", 1), None, 2), tmp_path, always)
    assert warm_up_job(factory, PrepareJob(AttemptId("job", "run", 1), JobGraph("empty"), 2), tmp_path, always)
    assert factory.calls == []


def test_without_a_known_schema_nothing_is_sent_downstream(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    factory.silent.add("read")
    assert warm_up_job(factory, advice("job"), tmp_path, always)
    assert factory.count("process") == 0
    assert factory.count("warm_up") == 2 * RUNS  # each program knows itself what it has compiled


def test_an_edge_to_a_subtask_that_is_not_here_leads_nowhere(tmp_path: Path) -> None:
    graph = chain("read", "count")
    wide = JobGraph("wide", (graph.vertices[0], Vertex("count", parallelism=3)), graph.edges)
    factory = FakeProgramFactory()
    assert warm_up_job(factory, advice("job", slots=2, graph=wide), tmp_path, always)
    assert [call for call in factory.calls_of("job") if "process" in call] == ["process count-0", "process count-1"]


def test_the_sample_is_a_whole_attempt_with_a_checkpoint(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    factory.batches = 2
    took: list[float] = []
    run_sample(factory, tmp_path, "sample-1", always, took.append)
    assert len(took) == 2, "after each micro-batch it may rest"
    assert {context.subtask.attempt for context in factory.contexts} == {AttemptId("warm-up", "sample-1", 1)}
    assert not any(context.is_warmup for context in factory.contexts)
    calls = factory.calls_of("warm-up")
    assert calls.count("process totals-0") == 3  # the prologue and two batches
    assert calls[-9:] == [
        *["snapshot rows-0", "commit rows-0", "snapshot files-0", "commit files-0"],
        *["snapshot totals-0", "commit totals-0"],
        *["close rows-0", "close files-0", "close totals-0"],
    ]


def test_a_sample_is_stopped_between_two_batches(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    factory.batches = 5
    run_sample(factory, tmp_path, "sample-1", lambda: factory.count("poll") < 2)
    assert factory.count("poll") == 2
    assert factory.count("snapshot") == factory.count("commit") == 0
    assert factory.count("close") == 3


def test_a_sample_is_stopped_after_a_rest(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    factory.batches = 5
    rests: list[float] = []
    run_sample(factory, tmp_path, "sample-1", lambda: not rests, rests.append)
    assert factory.count("poll") == 1, "something was deployed meanwhile"
    assert factory.count("close") == 3


def test_small_micro_batches_pass_both_programs_until_they_are_stopped(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    factory.batches = 9
    took: list[float] = []
    assert run_batches(factory, tmp_path, "batches-1", lambda: len(took) < 3, took.append) == 3
    calls = factory.calls_of("warm-up")
    assert calls[:5] == ["build lines-0", "open lines-0", "build counts-0", "open counts-0", "process counts-0"]
    assert calls[5:] == [*["poll lines-0", "process counts-0"] * 3, "close lines-0", "close counts-0"]
    assert all(seconds > 0 for seconds in took)
    assert not list((tmp_path / "batches-1").iterdir()), "what has been read is removed"


def test_small_micro_batches_that_are_not_read_are_an_error(tmp_path: Path) -> None:
    factory = FakeProgramFactory()
    with pytest.raises(RuntimeError, match="was not read: Exhausted"):
        run_batches(factory, tmp_path, "batches-1", always, lambda _seconds: None)
    assert factory.count("close") == 2
