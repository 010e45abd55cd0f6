"""Whether a snapshot fits, what outlives a job, the attempt's phases, the story of a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_proto.messages import (
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    Operator,
    SqlTransform,
    SubtaskState,
)

from coordinator.checkpoint.completed import retained_after_end
from coordinator.graph.execution_graph import ALLOWED as PHASES
from coordinator.graph.execution_graph import ExecutionGraph, Phase
from coordinator.graph.normalize import normalize
from coordinator.graph.shape import vertex_shapes
from coordinator.graph.slots import SlotOffer
from coordinator.graph.story import IllegalTransition, Story
from coordinator.recovery.job_state import ALLOWED, OUTCOMES
from coordinator.recovery.restore import misfits
from coordinator.recovery.splits import ALLOWED as SPLIT_PHASES
from coordinator.recovery.splits import SplitPhase
from tests.unit.coordinator.jobs import SUBTASKS, attempt, subtask, word_count

GRAPH = normalize(word_count())
SNAPSHOT = CheckpointMetadata(
    format_version=1,
    vertices=vertex_shapes(GRAPH),
    subtasks=tuple(SubtaskState(vertex_id=vertex, subtask=index) for vertex, index in SUBTASKS),
)
SLOTS = (SlotOffer("tm-a", "a:1"), SlotOffer("tm-b", "b:1"))


def test_a_snapshot_of_the_same_graph_fits() -> None:
    assert misfits(GRAPH, SNAPSHOT) == ()


def test_another_format_version() -> None:
    assert "format version 2" in misfits(GRAPH, replace(SNAPSHOT, format_version=2))[0]


def test_another_parallelism_says_which_to_use() -> None:
    problems = misfits(normalize(word_count(parallelism=3)), SNAPSHOT)
    assert "Vertex 'read' has parallelism 3, the snapshot was taken with 2: submit it with 2." in problems


def test_renamed_vertices_are_told_from_both_sides() -> None:
    read, count = GRAPH.vertices
    problems = misfits(replace(GRAPH, vertices=(replace(read, id="source"), count)), SNAPSHOT)
    assert problems == (
        "The snapshot has a vertex 'read', the job has not.",
        "The job has a vertex 'source', the snapshot has not.",
    )


def test_another_operator() -> None:
    read, count = GRAPH.vertices
    more = replace(read, operators=(*read.operators, Operator(id="sql", kind=SqlTransform(query="x"))))
    assert (
        "operators that the snapshot does not know: sql" in misfits(replace(GRAPH, vertices=(more, count)), SNAPSHOT)[0]
    )
    less = replace(count, operators=count.operators[:1])
    assert (
        "has state for operators that vertex 'count' lacks: sink"
        in misfits(replace(GRAPH, vertices=(read, less)), SNAPSHOT)[0]
    )


def test_another_number_of_key_groups() -> None:
    read, count = GRAPH.vertices
    graph = replace(GRAPH, vertices=(read, replace(count, max_parallelism=64)))
    assert "max_parallelism 64, the snapshot has 128" in misfits(graph, SNAPSHOT)[0]


def test_a_snapshot_that_lacks_a_subtask() -> None:
    problems = misfits(GRAPH, replace(SNAPSHOT, subtasks=SNAPSHOT.subtasks[:3]))
    assert problems == ("The snapshot lacks the state of count-1.",)


CHECKPOINTS = (
    CompletedCheckpoint(checkpoint_id=4, kind=CheckpointKind.CHECKPOINT),
    CompletedCheckpoint(checkpoint_id=3, kind=CheckpointKind.SAVEPOINT),
    CompletedCheckpoint(checkpoint_id=2, kind=CheckpointKind.CHECKPOINT),
)


@pytest.mark.parametrize(
    ("finished", "asked", "keep_all", "ids"),
    [
        (True, False, False, [3]),
        (True, True, False, [3]),
        (False, False, False, [3]),
        (False, True, False, [4, 3]),
        (False, False, True, [4, 3, 2]),
    ],
)
def test_what_outlives_a_job(finished: bool, asked: bool, keep_all: bool, ids: list[int]) -> None:
    kept = retained_after_end(CHECKPOINTS, finished=finished, retain_after_end=asked, keep_all=keep_all)
    assert [one.checkpoint_id for one in kept] == ids


def test_phases_only_go_forward() -> None:
    execution = ExecutionGraph(GRAPH, attempt(1), SLOTS)
    who = subtask("read", 0)
    assert execution.advance(who, Phase.EXHAUSTED, 1)
    assert not execution.advance(who, Phase.RUNNING, 2)
    assert not execution.advance(who, Phase.EXHAUSTED, 3)
    assert execution.started(("read", 0))
    assert not execution.all_started


def test_a_subtask_of_another_attempt_or_vertex_is_not_owned() -> None:
    execution = ExecutionGraph(GRAPH, attempt(1), SLOTS)
    assert execution.owns(subtask("read", 1))
    for stranger in (subtask("read", 1, 2), subtask("read", 2), subtask("other", 0), None):
        assert not execution.owns(stranger)


def test_subtask_i_of_every_vertex_shares_slot_i() -> None:
    views = ExecutionGraph(GRAPH, attempt(1), SLOTS).views()
    assert {(one.subtask, one.task_manager_id) for one in views} == {(0, "tm-a"), (1, "tm-b")}


def test_every_state_has_its_row_and_every_row_leads_to_known_states() -> None:
    for table in (ALLOWED, PHASES, SPLIT_PHASES):
        assert {after for row in table.values() for after in row} <= set(table)
    assert set(PHASES) == set(Phase)
    assert set(SPLIT_PHASES) == set(SplitPhase)
    assert all(not ALLOWED[state] for state in OUTCOMES.values())


def test_a_story_remembers_the_end_and_forgets_the_beginning() -> None:
    story = Story("the machine", length=2)
    for number in range(3):
        story.note(f"step {number}", number)
    assert story.lines() == ("1 ms: step 1", "2 ms: step 2")
    with pytest.raises(IllegalTransition, match=r"the machine: ENDED -> RUNNING is not allowed(.|\n)*step 2"):
        story.move(PHASES, Phase.ENDED, Phase.RUNNING, 3)
