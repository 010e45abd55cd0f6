"""Whether a snapshot fits, what outlives a job, the attempt's phases, the story of a machine."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lockgate_common.story import IllegalTransition, Story
from lockgate_coordinator.checkpoint.completed import retained_after_end
from lockgate_coordinator.graph.execution_graph import ALLOWED as PHASES
from lockgate_coordinator.graph.execution_graph import ExecutionGraph, Phase
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.graph.slots import SlotOffer
from lockgate_coordinator.job.in_flight import in_flight_misfits
from lockgate_coordinator.job.job_state import ALLOWED, Outcome
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_coordinator.job.redistribute import source_state as source_state_of
from lockgate_coordinator.job.restore import misfits
from lockgate_coordinator.job.splits import ALLOWED as SPLIT_PHASES
from lockgate_coordinator.job.splits import SplitAssigner, SplitPhase
from lockgate_proto.codec import decode, encode
from lockgate_proto.messages import (
    ChannelSide,
    ChannelState,
    CheckpointKind,
    CheckpointMetadata,
    CompletedCheckpoint,
    GeneratorSource,
    JobGraph,
    Operator,
    OperatorState,
    Partitioning,
    SinkState,
    SinkTransaction,
    SourceState,
    SplitState,
    SqlTransform,
    StateHandle,
    StateKind,
    SubtaskState,
)

from tests.unit.coordinator.jobs import SUBTASKS, attempt, source_state, subtask, word_count

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
    assert "has format 2" in misfits(GRAPH, replace(SNAPSHOT, format_version=2))[0]


def _with_state(vertex: str, index: int, operator: str, kind: StateKind, data: bytes = b"x") -> CheckpointMetadata:
    """The snapshot with one state in one subtask."""
    state = OperatorState(operator_id=operator, kind=kind, handle=StateHandle(inline=data))
    changed = tuple(
        replace(subtask, operators=(state,)) if (subtask.vertex_id, subtask.subtask) == (vertex, index) else subtask
        for subtask in SNAPSHOT.subtasks
    )
    return replace(SNAPSHOT, subtasks=changed)


KEYED = _with_state("count", 1, "counts", StateKind.KEYED_STATE)


def test_another_parallelism_fits() -> None:
    for parallelism in (1, 3):
        assert misfits(normalize(word_count(parallelism=parallelism)), KEYED) == ()


def test_an_operator_is_found_in_any_vertex() -> None:
    read, count = GRAPH.vertices
    assert misfits(replace(GRAPH, vertices=(read, replace(count, id="other"))), KEYED) == ()


def test_a_new_operator_starts_empty() -> None:
    read, count = GRAPH.vertices
    more = replace(read, operators=(*read.operators, Operator(id="sql", kind=SqlTransform(query="x"))))
    assert misfits(replace(GRAPH, vertices=(more, count)), KEYED) == ()


def test_state_of_a_removed_operator_is_an_error_that_names_it_unless_allowed() -> None:
    read, count = GRAPH.vertices
    graph = replace(GRAPH, vertices=(read, replace(count, operators=(replace(count.operators[0], id="renamed"),))))
    (problem,) = misfits(graph, KEYED)
    assert "operator 'counts' (keyed state)" in problem
    assert "--allow-unmatched-state" in problem
    assert misfits(graph, KEYED, allow_unmatched=True) == ()


@pytest.mark.parametrize(("pending", "is_missed"), [((), False), ((SinkTransaction(checkpoint_id=3),), True)])
def test_a_removed_sink_is_missed_only_with_pending_output(
    pending: tuple[SinkTransaction, ...], is_missed: bool
) -> None:
    read, count = GRAPH.vertices
    graph = replace(GRAPH, vertices=(read, replace(count, operators=count.operators[:1])))
    snapshot = _with_state("count", 0, "sink", StateKind.SINK_STATE, encode(SinkState(pending=pending)))
    assert bool(misfits(graph, snapshot)) is is_missed


def test_an_id_that_another_kind_of_operator_has_now() -> None:
    snapshot = _with_state("count", 0, "sink", StateKind.KEYED_STATE)
    (problem,) = misfits(GRAPH, snapshot, allow_unmatched=True)
    assert "'sink' is another kind of operator now" in problem


def test_a_source_state_that_cannot_be_read() -> None:
    snapshot = _with_state("read", 0, "source", StateKind.SOURCE_STATE, b"\xff")
    (problem,) = misfits(GRAPH, snapshot)
    assert "source state of read-0 is corrupt" in problem


def test_another_number_of_key_groups() -> None:
    read, count = GRAPH.vertices
    graph = replace(GRAPH, vertices=(read, replace(count, max_parallelism=64)))
    (problem,) = misfits(graph, KEYED)
    assert "max_parallelism 64, the snapshot of operator 'counts' has 128" in problem


def test_a_snapshot_that_lacks_a_subtask() -> None:
    problems = misfits(GRAPH, replace(SNAPSHOT, subtasks=SNAPSHOT.subtasks[:3]))
    assert problems == ("The snapshot lacks the state of count-1.",)


CHECKPOINTS = (
    CompletedCheckpoint(checkpoint_id=4, kind=CheckpointKind.CHECKPOINT),
    CompletedCheckpoint(checkpoint_id=3, kind=CheckpointKind.SAVEPOINT),
    CompletedCheckpoint(checkpoint_id=2, kind=CheckpointKind.CHECKPOINT),
)


@pytest.mark.parametrize(
    ("keep_newest", "keep_all", "ids"),
    [(False, False, [3]), (True, False, [4, 3]), (False, True, [4, 3, 2]), (True, True, [4, 3, 2])],
)
def test_savepoints_and_requested_checkpoints_outlive_a_job(keep_newest: bool, keep_all: bool, ids: list[int]) -> None:
    kept = retained_after_end(CHECKPOINTS, keep_newest=keep_newest, keep_all=keep_all)
    assert [checkpoint.checkpoint_id for checkpoint in kept] == ids


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
    assert {(view.subtask, view.task_manager_id) for view in views} == {(0, "tm-a"), (1, "tm-b")}


def test_every_state_has_its_row_and_every_row_leads_to_known_states() -> None:
    for table in (ALLOWED, PHASES, SPLIT_PHASES):
        assert {after for row in table.values() for after in row} <= set(table)
    assert set(PHASES) == set(Phase)
    assert set(SPLIT_PHASES) == set(SplitPhase)
    assert all(not ALLOWED[outcome.state] for outcome in Outcome)


def test_a_story_remembers_the_end_and_forgets_the_beginning() -> None:
    story = Story("the machine", length=2)
    for number in range(3):
        story.note(f"step {number}", number)
    assert story.lines() == ("1 ms: step 1", "2 ms: step 2")
    with pytest.raises(IllegalTransition, match=r"the machine: ENDED -> RUNNING is not allowed(.|\n)*step 2"):
        story.move(PHASES, Phase.ENDED, Phase.RUNNING, 3)


def _with_flight(source: tuple[str, int], target: tuple[str, int]) -> CheckpointMetadata:
    """A snapshot with records in flight, kept by the receiver."""
    channel = ChannelState(ChannelSide.INPUT_CHANNEL, *source, StateHandle(inline=b"x"), 1, 1)
    whole = SNAPSHOT
    states = tuple(
        replace(subtask, channels=(channel,)) if (subtask.vertex_id, subtask.subtask) == target else subtask
        for subtask in whole.subtasks
    )
    return replace(whole, subtasks=states)


def test_records_in_flight_by_key_or_in_turn_fit_any_parallelism() -> None:
    flying = _with_flight(("read", 1), ("count", 0))
    for parallelism in (1, 2, 3):
        graph = normalize(word_count(parallelism=parallelism))
        assert in_flight_misfits(graph, flying) == misfits(graph, flying) == ()
        in_turn = replace(graph, edges=(replace(graph.edges[0], keys=(), partitioning=Partitioning.REBALANCE),))
        assert in_flight_misfits(in_turn, flying) == ()


@pytest.mark.parametrize(
    ("partitioning", "reason"),
    [
        (Partitioning.FORWARD, "records of a FORWARD edge stay with the subtask that has them"),
        (Partitioning.BROADCAST, "broadcast records have reached some subtasks and not others"),
        (Partitioning.HASH, "records that go by key to an operator that is not keyed do not contain the hash"),
    ],
)
def test_other_records_in_flight_fit_the_same_shape_only(partitioning: Partitioning, reason: str) -> None:
    flying = _with_flight(("read", 0), ("count", 0))

    def graph(parallelism: int) -> JobGraph:
        made = normalize(word_count(parallelism=parallelism))
        read, count = made.vertices
        edge = replace(made.edges[0], partitioning=partitioning)
        return replace(made, vertices=(read, replace(count, operators=count.operators[1:])), edges=(edge,))

    assert in_flight_misfits(graph(2), flying) == ()
    (text,) = in_flight_misfits(graph(3), flying)
    assert "holds records in flight, which only fit the same channels: vertex 'read' has parallelism 2" in text
    assert reason in text
    assert "Start from a savepoint" in text
    assert text in misfits(graph(3), flying)
    assert in_flight_misfits(graph(3), SNAPSHOT) == ()


def test_records_in_flight_that_went_by_other_keys_are_refused() -> None:
    flying = _with_flight(("read", 1), ("count", 0))
    graph = normalize(word_count())
    other = replace(graph, edges=(replace(graph.edges[0], keys=("length",)),))
    (text,) = in_flight_misfits(other, flying)
    assert "from 'read' to 'count' were distributed by key (word), and are now distributed by key (length)" in text
    assert "Start from a savepoint" in text
    assert in_flight_misfits(other, SNAPSHOT) == (), "nothing is in flight"
    old = replace(flying, vertices=tuple(replace(vertex, inputs=()) for vertex in flying.vertices))
    assert in_flight_misfits(other, old) == (), "snapshots of before do not say"
    unkeyed = replace(graph, edges=(replace(graph.edges[0], keys=(), partitioning=Partitioning.REBALANCE),))
    assert in_flight_misfits(unkeyed, flying) == ()
    by_turns = replace(flying, vertices=vertex_shapes(unkeyed))
    (text,) = in_flight_misfits(graph, by_turns)
    assert "were distributed in turn, and are now distributed by key (word)" in text


def test_records_in_flight_over_a_removed_edge_are_refused() -> None:
    flying = _with_flight(("count", 1), ("read", 0))
    (text,) = in_flight_misfits(normalize(word_count()), flying)
    assert "from count-1 to read-0, which no edge connects" in text


def test_records_in_flight_go_to_the_subtask_that_had_them() -> None:
    flying = _with_flight(("read", 1), ("count", 0))
    restored = redistribute(normalize(word_count()), flying)
    assert [key for key, state in restored.items() if state.channels] == [("count", 0)]


def test_at_another_parallelism_no_increment_builds_on_another_subtasks_state() -> None:
    """With 4 key groups the last one belongs to subtask 2 of 3 and to subtask 3 of 4."""

    def graph(parallelism: int) -> JobGraph:
        wanted = word_count(parallelism=parallelism)
        return normalize(
            replace(wanted, vertices=tuple(replace(vertex, max_parallelism=4) for vertex in wanted.vertices))
        )

    handles = tuple(StateHandle(inline=b"x", checkpoint_id=number) for number in (5, 6))
    state = OperatorState("counts", StateKind.KEYED_STATE, handles[0], handles[1:])
    snapshot = CheckpointMetadata(
        format_version=1,
        vertices=vertex_shapes(graph(3)),
        subtasks=tuple(
            SubtaskState(vertex, index, (state,) if (vertex, index) == ("count", 2) else ())
            for vertex in ("read", "count")
            for index in range(3)
        ),
    )
    (moved,) = redistribute(graph(4), snapshot)["count", 3].operators
    assert [increment.checkpoint_id for increment in (moved.handle or StateHandle(), *moved.increments)] == [0, 0]
    (stayed,) = redistribute(graph(3), snapshot)["count", 2].operators
    assert stayed == state


def test_sources_of_another_run_look_for_splits_again() -> None:
    graph = normalize(word_count())
    files = (StateHandle(path="/storage/splits", checkpoint_id=5),)
    read = source_state("read", 0, (SplitState("a", 4, 4),))
    read = replace(read, operators=(replace(read.operators[0], files=files),))
    count = SubtaskState("count", 0, (OperatorState("counts", StateKind.KEYED_STATE, StateHandle(inline=b"x")),))
    snapshot = CheckpointMetadata(format_version=1, vertices=vertex_shapes(graph), subtasks=(read, count))
    restored = redistribute(graph, snapshot, reopens=True)
    (reopened,) = restored["read", 0].operators
    assert reopened.handle is not None
    assert decode(SourceState, reopened.handle.inline) == SourceState((SplitState("a", 4, 4),), False, True)
    assert reopened.files == files
    assert restored["count", 0].operators == count.operators
    assert redistribute(graph, snapshot)["read", 0].operators == read.operators


def test_a_generator_of_another_run_keeps_its_partitions_at_another_parallelism() -> None:
    then, now = (normalize(word_count(GeneratorSource(rows_per_partition=9), parallelism=count)) for count in (2, 4))
    read = tuple(source_state("read", index, (SplitState(str(index), 9, 9),)) for index in range(2))
    snapshot = CheckpointMetadata(format_version=1, vertices=vertex_shapes(then), subtasks=read)
    restored = redistribute(now, snapshot, reopens=True)
    own = {index: restored["read", index] for index in range(4)}
    assert SplitAssigner(now.vertices[0], attempt(1), own).deployed(0) == []
    states = [source_state_of(state.operators[0], "read") for state in own.values()]
    assert sorted(split.split for state in states for split in state.splits) == ["0", "1"]
    assert all(state.complete and state.reopened for state in states)
