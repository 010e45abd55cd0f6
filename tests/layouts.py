"""Layouts of attempts, as tests write and read them."""

from __future__ import annotations

from functools import lru_cache

from lockgate_proto.codec import encode
from lockgate_proto.layout import layout_for, layout_of, participant, subtasks_on
from lockgate_proto.messages import Deploy, JobGraph, Layout, Participant


@lru_cache(maxsize=8)
def layout_in(data: bytes) -> Layout:
    """The layout of an attempt, as each of its deployments carries it."""
    return layout_of(Deploy(layout=data))


def layout(graph: JobGraph, *slots: Participant) -> bytes:
    """What a Deploy carries. slots[i] runs subtask i of every vertex."""
    return encode(layout_for(graph, slots))


def begun(deploy: Deploy) -> set[tuple[str, int]]:
    """The subtasks that begin in the attempt."""
    found = layout_of(deploy)
    names = {place.task_manager_id for place in found.participants if place.task_manager_id}
    return {subtask for name in names for subtask in subtasks_on(found, name)}


def places(deploy: Deploy) -> dict[tuple[str, int], str]:
    """The task manager of every subtask of the attempt."""
    found = layout_of(deploy)
    assert found.graph is not None
    return {
        (vertex.id, index): participant(found, index).task_manager_id
        for vertex in found.graph.vertices
        for index in range(vertex.parallelism)
    }
