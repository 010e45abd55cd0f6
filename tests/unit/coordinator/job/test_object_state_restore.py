"""State of functions' objects: whether it fits, and which subtasks get it."""

from __future__ import annotations

import pytest
from lockgate_coordinator.graph.normalize import normalize
from lockgate_coordinator.graph.reshape import reshape_problems
from lockgate_coordinator.graph.shape import vertex_shapes
from lockgate_coordinator.job.redistribute import redistribute
from lockgate_coordinator.job.restore import misfits
from lockgate_proto.messages import (
    CheckpointMetadata,
    ConsoleSink,
    GeneratorSource,
    JobGraph,
    ObjectState,
    Operator,
    OperatorState,
    RecordCall,
    RecordFunction,
    StateHandle,
    StateKind,
    SubtaskState,
    Vertex,
    VertexParallelism,
)

FIXED, SPLIT, UNION, BROADCAST = (
    ObjectState.OBJECT_STATE_FIXED,
    ObjectState.OBJECT_STATE_SPLIT,
    ObjectState.OBJECT_STATE_UNION,
    ObjectState.OBJECT_STATE_BROADCAST,
)


def graph(parallelism: int, state: ObjectState) -> JobGraph:
    function = RecordFunction(b"x", "f", RecordCall.FILTER, state=state)
    operators = (
        Operator("rows", "rows", GeneratorSource()),
        Operator("f", "f", function),
        Operator("print", "print", ConsoleSink()),
    )
    return normalize(JobGraph("job", (Vertex("v", "v", parallelism, operators=operators),)))


def state_of(subtask: int) -> OperatorState:
    return OperatorState("f", StateKind.OBJECT_STATE, StateHandle(inline=b"%d" % subtask))


def snapshot(parallelism: int) -> CheckpointMetadata:
    subtasks = tuple(SubtaskState("v", subtask, (state_of(subtask),)) for subtask in range(parallelism))
    return CheckpointMetadata(1, vertices=vertex_shapes(graph(parallelism, SPLIT)), subtasks=subtasks)


@pytest.mark.parametrize(("state", "after"), [(SPLIT, 3), (SPLIT, 1), (UNION, 3), (UNION, 2)])
def test_each_subtask_gets_the_states_of_all_in_order(state: ObjectState, after: int) -> None:
    assert misfits(graph(after, state), snapshot(2)) == ()
    restored = redistribute(graph(after, state), snapshot(2))
    assert [restored["v", subtask].operators for subtask in range(after)] == [(state_of(0), state_of(1))] * after


@pytest.mark.parametrize(("after", "copies"), [(1, [0]), (2, [0, 1]), (5, [0, 1, 0, 1, 0])])
def test_each_subtask_gets_one_copy_of_broadcast_state(after: int, copies: list[int]) -> None:
    assert misfits(graph(after, BROADCAST), snapshot(2)) == ()
    restored = redistribute(graph(after, BROADCAST), snapshot(2))
    assert [restored["v", subtask].operators for subtask in range(after)] == [(state_of(copy),) for copy in copies]


@pytest.mark.parametrize("state", [FIXED, SPLIT])
def test_at_the_same_parallelism_each_keeps_its_own(state: ObjectState) -> None:
    assert misfits(graph(2, state), snapshot(2)) == ()
    restored = redistribute(graph(2, state), snapshot(2))
    assert [restored["v", subtask].operators for subtask in range(2)] == [(state_of(0),), (state_of(1),)]


def test_what_cannot_be_divided_is_refused_before_anything_is_stopped() -> None:
    (problem,) = misfits(graph(3, FIXED), snapshot(2))
    assert "'f' was taken with parallelism 2 and cannot be divided among 3: keep 2, or let snapshot_state()" in problem
    (problem,) = reshape_problems(graph(2, FIXED), [VertexParallelism("v", 3)])
    assert "The state of the object of operator 'f' cannot be divided" in problem
    assert reshape_problems(graph(2, FIXED), [VertexParallelism("v", 2)]) == ()
    assert reshape_problems(graph(2, SPLIT), [VertexParallelism("v", 3)]) == ()


def test_state_is_not_dropped_because_the_object_has_none_any_more() -> None:
    (problem,) = misfits(graph(2, ObjectState.OBJECT_STATE_UNSPECIFIED), snapshot(2))
    assert "has state of the object of operator 'f', and its object has none now" in problem
    operators = (Operator("f", "f", GeneratorSource()), Operator("print", "print", ConsoleSink()))
    other = normalize(JobGraph("job", (Vertex("v", "v", 2, operators=operators),)))
    (problem,) = misfits(other, snapshot(2))
    assert "is state of a function's object, but 'f' is another kind of operator now" in problem
